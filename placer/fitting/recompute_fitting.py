"""Tensors computed again until a step fits: what is decided on the reduced problem is judged by the
prediction of the rewritten graph, and the budget of the problem lowered by what that is over."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cost_models.byte_sizes import format_bytes
from placer.fitting.fitted_step import FittedStep
from placer.fitting.recompute_sequences import first_sequence
from placer.fitting.reduction import StepReduction
from placer.fitting.rewriting import PlannedStep, RewritingPlanner, reads_what_ran
from placer.fitting.step_trials import Base, Reductions, StepTrials
from placer.graph.rewriting import rewrite_graph

_LOG = logging.getLogger(__name__)


def fit_by_recomputation(trials: StepTrials, base: Base) -> None:
    """Lowers the budgets until what is computed again fits."""
    _Recomputation(trials, base).run()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    """The result of one try: the ``step``, ``None`` if it cannot beat the best; whether its
    sequence ``keeps`` the budgets; the ``order`` of the graph; the bytes ``over`` the caps."""

    step: FittedStep | None
    keeps: bool
    order: tuple[int, ...]
    over: int

    @property
    def rank(self) -> tuple[float, ...]:
        """Smaller is better."""
        return (1, self.over) if self.step is None else (0, *self.step.rank)


class _Recomputation:
    def __init__(self, trials: StepTrials, base: Base) -> None:
        self.trials, self.base = trials, base

    def run(self) -> None:
        budgets: Mapping[str, int] = self.trials.full(self.base)
        if min(budgets.values()) <= 0:
            return

        def reductions(order: Sequence[int]) -> Reductions:
            return self.trials.reductions(self.base, order, budgets)

        found = reductions(self.base.order)
        nodes = [root for some in found.values() for op in some.nodes for root in some.large[op]]
        if not nodes:
            return
        tries = [found, reductions(self.trials.low_order(self.base.graph, self.base.step, nodes))]
        for number in range(self.trials.schedule.most_budgets):
            if number >= self.trials.schedule.least_budgets and self.trials.is_over():
                break
            attempts = [self._plan(some, budgets) for some in tries]
            best = min(attempts, key=lambda attempt: attempt.rank)
            if best.step is not None and best.step.fits:
                break
            used = next(iter(tries[attempts.index(best)].values())).order
            if best.keeps and best.step is not None:
                budgets = self.trials.lowered(budgets, best.step.over_bytes)
            elif best.order == used:  # a lower budget is not kept either
                break
            tries = [{name: some.along(best.order) for name, some in found.items()}]

    def _plan(self, reductions: Reductions, budgets: Mapping[str, int]) -> _Attempt:
        """The step that the reduced problem gives for ``budgets``, or one that is nearly as small.

        Its order is lowered with what is computed again in it, since that is held, too.
        """
        some = next(iter(reductions.values()))
        planner = self.trials.planner(self.base, reductions)
        room = {**self.trials.room(self.base.step), **budgets}
        keeps = True
        for name, reduction in reductions.items():
            reduced = reduction.reduce(budgets[name])
            if reduced is None:
                continue
            problem, sequence = reduced.problem, first_sequence(reduced.problem)
            keeps = keeps and problem.peak_bytes(sequence) <= problem.budget_bytes
            planner.add(reduced, sequence)
        planned = planner.finish(self.base.rewriting)
        over, order = self.trials.excess(planned, room), some.order
        if over:
            lowered, along = self._with_less(planned, some, room)
            is_order = reads_what_ran(self.base.step.layout, along)
            if is_order and (less := self.trials.excess(lowered, room)) < over:
                planned, order, over = lowered, along, less
        if self.trials.excess(planned) > sum(self.trials.best.over_bytes.values()):
            return _Attempt(step=None, keeps=keeps, order=order, over=over)
        step = self.trials.hold(planned.rewriting, planned.order)
        told = {name: format_bytes(size) for name, size in step.over_bytes.items()}
        _LOG.info("computing again to fit: over by %s", told or "nothing")
        return _Attempt(step=step, keeps=keeps, order=order, over=over)

    def _with_less(
        self, planned: PlannedStep, some: StepReduction, room: Mapping[str, int]
    ) -> tuple[PlannedStep, tuple[int, ...]]:
        """Returns ``planned`` in an order with fewer bytes over the ``room``, and that without
        the clones."""
        clones = tuple(replace(clone, after=()) for clone in planned.rewriting.clones)
        free = replace(planned.rewriting, clones=clones)
        graph = rewrite_graph(self.trials.graph, free)
        step = self.trials.step(graph, free)
        ops = self.trials.descend(graph, step, step.numbers(planned.order), room)
        names = tuple(step.layout.names[op] for op in ops)
        order = tuple(
            self.base.step.number[name] for name in names if name in self.base.step.number
        )
        planner = RewritingPlanner(self.base.graph, self.base.step.layout, order, some.is_forward)
        planner.add_clones(replace(planned, order=names), some.roots)
        return planner.finish(self.base.rewriting), order
