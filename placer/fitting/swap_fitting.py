"""Tensors on the host meanwhile until a step fits, alone or with what is computed again."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from cost_models.byte_sizes import format_bytes
from placer.fitting.recompute_sequences import first_sequence
from placer.fitting.rewriting import PlannedStep
from placer.fitting.step_trials import Base, Reductions, StepTrials
from placer.fitting.swapping import choose_swaps, hidden_relief
from placer.graph.rewriting import rewrite_graph

_LOG = logging.getLogger(__name__)


def fit_by_swaps(trials: StepTrials, base: Base) -> None:
    """Lowers the budgets until what waits on the host meanwhile lets the step fit."""
    budgets: Mapping[str, int] = trials.full(base)
    reductions, known = trials.reductions(base, base.order, budgets), None
    for _ in range(trials.schedule.most_budgets):
        planned = _plan_swaps(trials, base, reductions, budgets)
        if planned is None or planned == known:
            return
        known = planned
        step = trials.hold(planned.rewriting, planned.order)
        told = {name: format_bytes(size) for name, size in step.over_bytes.items()}
        _LOG.info("swapping to fit: over by %s", told or "nothing")
        if step.fits:
            return
        budgets = trials.lowered(budgets, step.over_bytes)


def fit_by_both(trials: StepTrials, base: Base) -> None:
    """Computes again as much as hidden swaps leave too much, then swaps the rest."""
    budgets = trials.full(base)
    reductions, left = trials.reductions(base, base.order, budgets), _host_room(trials, base)
    if trials.host in budgets or min(budgets.values()) <= 0:
        return
    relief = {
        name: hidden_relief(base.step, reduction, trials.cluster, budgets[name], left)
        for name, reduction in reductions.items()
    }
    for share in trials.schedule.relief_shares if any(relief.values()) else ():
        planner = trials.planner(base, reductions)
        for name, reduction in reductions.items():
            reduced = reduction.reduce(budgets[name] + int(share * relief[name]))
            if reduced is not None:
                planner.add(reduced, first_sequence(reduced.problem))
        planned = planner.finish(base.rewriting)
        graph = rewrite_graph(trials.graph, planned.rewriting)
        step = trials.step(graph, planned.rewriting)
        order = tuple(step.numbers(planned.order))
        fit_by_swaps(trials, Base(rewriting=planned.rewriting, graph=graph, step=step, order=order))


def _plan_swaps(
    trials: StepTrials, base: Base, reductions: Reductions, budgets: Mapping[str, int]
) -> PlannedStep | None:
    """The step with tensors on the host for those ``budgets``, if that changes anything."""
    if trials.host in budgets or min(budgets.values()) <= 0:
        return None
    planner = trials.planner(base, reductions)
    left = _host_room(trials, base)
    for name, reduction in reductions.items():
        swaps = choose_swaps(base.step, reduction, trials.cluster, budgets[name], left)
        left -= sum(swap.tensor.bytes for swap in swaps)
        planner.swap(swaps)
    return planner.finish(base.rewriting) if planner.swaps else None


def _host_room(trials: StepTrials, base: Base) -> int:
    """The bytes that the host has left."""
    left = trials.caps[trials.host] - base.peaks()[trials.host]
    return int(left / trials.padding[trials.host])
