"""A placed training step made to fit: gradients released, ops in order, tensors on the host or
computed again."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from cost_models.byte_sizes import format_bytes
from cost_models.devices import Cluster
from cost_models.op_cost import OpCost
from placer.fitting.fitted_step import (
    ORDER,
    RECOMPUTE,
    RELEASE,
    SWAP,
    FitRequest,
    FittedStep,
    Floor,
)
from placer.fitting.recompute_fitting import fit_by_recomputation
from placer.fitting.recompute_sequences import first_sequence
from placer.fitting.reduction import working_sets
from placer.fitting.rewriting import PlannedStep
from placer.fitting.step_trials import Base, Reductions, StepTrials
from placer.fitting.swapping import choose_swaps, hidden_relief
from placer.graph.op_graph import OpGraph
from placer.graph.rewriting import NO_REWRITING, Rewriting, rewrite_graph

_JOIN = "IdentityN"


def fit_step(
    graph: OpGraph,
    costs: Mapping[str, OpCost],
    placement: Mapping[str, str],
    cluster: Cluster,
    request: FitRequest,
) -> FittedStep:
    """The step with the least extra time found that keeps the caps of ``cluster``, else the one
    that comes nearest.

    Raises :class:`~placer.errors.UsageError` if the placement does not fit the graph.
    """
    trials = StepTrials(graph, costs, placement, cluster, request)
    trials.best = trials.free = trials.judge(NO_REWRITING, ())
    return trials.free if trials.free.fits else _fit(trials)


def _fit(trials: StepTrials) -> FittedStep:
    """Tries what costs least first; where nothing fits, all of it with ops in line: more waits,
    but gaps between buffers are those of one order then, and not of whichever comes about."""
    padding, found = trials.padding, []
    bases: list[Base] = []
    for trials.in_line in (False, True):
        trials.best, trials.padding = trials.free, dict(padding)
        bases = bases or [*_bases(trials)]
        if not trials.best.fits:
            _relieve(trials, bases)
        found.append(trials.best)
        if trials.best.fits or (trials.request.seconds > 0 and trials.is_over()):
            break
    best = min(found, key=lambda step: step.rank)
    return replace(best, floors=_floors(trials), is_cut=trials.is_cut)


def _relieve(trials: StepTrials, bases: Sequence[Base]) -> None:
    means = trials.request.means
    if ORDER in means and any(_hold_order(trials, base) for base in bases):
        return
    base = min(bases, key=trials.low_peak)
    if SWAP in means:
        fit_by_swaps(trials, base)
    if RECOMPUTE in means and not (trials.best.fits and trials.best.is_proven):
        if SWAP in means:
            fit_by_both(trials, base)
        fit_by_recomputation(trials, base)


def _hold_order(trials: StepTrials, base: Base) -> bool:
    """Whether the order of ``base`` alone is enough."""
    along = base.peaks()
    over = sum(max(along[name] - cap, 0) for name, cap in trials.caps.items())
    known = sum(trials.best.over_bytes.values())
    return over < known and trials.hold(base.rewriting, base.names).fits


def _floors(trials: StepTrials) -> dict[str, Floor]:
    """The bytes that no rewriting gets below."""
    released = _joins(trials.graph) if RELEASE in trials.request.means else ()
    rewriting = Rewriting(released=released)
    step = trials.step(rewrite_graph(trials.graph, rewriting), rewriting)
    return {
        name: Floor(op=op, bytes=size + step.resident_bytes(name))
        for name, (op, size) in working_sets(step.layout).items()
        if name in trials.caps
    }


def _joins(graph: OpGraph) -> tuple[str, ...]:
    """The joins of gradients."""
    return tuple(op.name for op in graph.ops.values() if op.op_type == _JOIN)


def _bases(trials: StepTrials) -> Iterator[Base]:
    """The graph as it is, and with its joins of gradients released."""
    rewritings = [NO_REWRITING]
    joins = _joins(trials.graph)
    if RELEASE in trials.request.means and joins:
        rewritings.append(Rewriting(released=joins))
        if trials.keep(trials.judge(rewritings[1], ())):
            return
    for rewriting in rewritings:
        graph = rewrite_graph(trials.graph, rewriting)
        step = trials.step(graph, rewriting)
        order = trials.descend(graph, step, trials.low_order(graph, step), trials.room(step))
        yield Base(rewriting=rewriting, graph=graph, step=step, order=order)


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
