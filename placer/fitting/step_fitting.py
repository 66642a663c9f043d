"""A placed training step made to fit: gradients released, ops in order, tensors on the host or
computed again."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

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
from placer.fitting.recompute_sequences import first_sequence
from placer.fitting.reduction import StepReduction
from placer.fitting.rewriting import PlannedStep, RewritingPlanner, reads_what_ran
from placer.fitting.step_trials import Base, Reductions, StepTrials
from placer.fitting.swapping import hidden_relief, swap_planner
from placer.fitting.working_sets import working_sets
from placer.graph.op_graph import OpGraph
from placer.graph.passes.roles import find_roles
from placer.graph.rewriting import NO_REWRITING, Rewriting
from placer.graph.rewritten_graphs import rewrite_graph

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
    starts, bases = _starts(trials), dict[int, Base]()
    found = [starts[0].step]
    for trials.in_line, (number, start) in product((False, True), enumerate(starts)):
        if found[-1].fits or trials.is_late():
            break
        trials.best, trials.padding = start.step, dict(start.padding)
        if number not in bases:
            bases[number] = _base(trials, start.rewriting)
        _relieve(trials, bases[number])
        found.append(trials.best)
    best = min(found, key=lambda step: step.rank)
    return replace(best, floors=_floors(trials), is_cut=trials.is_cut)


def _relieve(trials: StepTrials, base: Base) -> None:
    means = trials.request.means
    if ORDER in means and _hold_order(trials, base):
        return
    if trials.is_late():
        return
    if SWAP in means:
        fit_by_swaps(trials, base)
    if RECOMPUTE in means and not (trials.best.fits and trials.best.is_proven):
        if SWAP in means and not trials.is_late():
            fit_by_both(trials, base)
        _Recomputation(trials, base).run()


def _hold_order(trials: StepTrials, base: Base) -> bool:
    """Whether the order of ``base`` alone is enough; where it seems not to be, that is tried only
    if nothing else may be done."""
    if trials.is_late():
        return False
    along, room = base.peaks(), trials.room(base.step)
    over = sum(max(along[name] - cap, 0) for name, cap in trials.caps.items())
    is_much = any(
        along[name] - base.step.resident_bytes(name) > (1 + trials.schedule.least_step) * room[name]
        for name in trials.names
    )
    if is_much and {SWAP, RECOMPUTE} & set(trials.request.means):
        return False
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """A ``rewriting`` to begin with, its ``step`` without edges, and the ``padding`` of that."""

    rewriting: Rewriting
    step: FittedStep
    padding: Mapping[str, float]


def _starts(trials: StepTrials) -> list[_Start]:
    """The step with its joins released, if that is among the means, and with those of gradients
    kept; the better one first.

    Without a join variables are updated while the backward pass goes on, and their new values lie
    between the large buffers: a step with small variables may need more for that.
    """
    kept = _Start(rewriting=NO_REWRITING, step=trials.free, padding=dict(trials.padding))
    joins = _joins(trials.graph)
    if RELEASE not in trials.request.means or not joins:
        return [kept]
    starts = [_start(trials, joins)]
    gradients = trials.graph.ask_once(find_roles).gradients
    others = tuple(name for name in joins if name not in gradients)
    if others != joins:
        starts.append(_start(trials, others) if others else kept)
    return sorted(starts, key=lambda start: start.step.rank)


def _start(trials: StepTrials, released: tuple[str, ...]) -> _Start:
    rewriting = Rewriting(released=released)
    step = trials.judge(rewriting, ())
    allowed = step if trials.is_allowed(step) else trials.free
    return _Start(rewriting=rewriting, step=allowed, padding=dict(trials.padding))


def _base(trials: StepTrials, rewriting: Rewriting) -> Base:
    """The graph, rewritten so, with an order in which it holds little."""
    graph = rewrite_graph(trials.graph, rewriting)
    step = trials.step(graph, rewriting)
    order = trials.descend(graph, step, trials.low_order(graph, step), trials.room(step))
    return Base(rewriting=rewriting, graph=graph, step=step, order=order)


_LOG = logging.getLogger(__name__)


def fit_by_swaps(trials: StepTrials, base: Base) -> None:
    """Lowers the budgets until what waits on the host meanwhile lets the step fit, then tries some
    near the best: gaps between buffers come and go with one swap more or less."""
    budgets: Mapping[str, int] = trials.full(base)
    reductions = trials.reductions(base, base.order, budgets)
    seen: list[PlannedStep] = []
    found: list[tuple[int, Mapping[str, int]]] = []

    def over(budgets: Mapping[str, int]) -> Mapping[str, int] | None:
        planned = None if trials.is_late() else _plan_swaps(trials, base, reductions, budgets)
        if planned is None or planned in seen:
            return None
        seen.append(planned)
        over = trials.hold(planned.rewriting, planned.order).over_bytes
        told = {name: format_bytes(size) for name, size in over.items()}
        _LOG.info("swapping to fit: over by %s", told or "nothing")
        found.append((sum(over.values()), budgets))
        return over

    for _ in range(trials.schedule.most_budgets):
        if not (excess := over(budgets)):
            break
        budgets = trials.lowered(budgets, excess)
    least, best = min(found, key=lambda each: each[0], default=(0, budgets))
    for share in trials.schedule.near_shares if least else ():
        near = over({name: int(share * size) for name, size in best.items()})
        if near is not None and not near:
            break


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
        if trials.is_late():
            return
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
        swaps = swap_planner(base.step, reduction, trials.cluster, budgets[name], left).run()
        left -= sum(swap.tensor.bytes for swap in swaps)
        planner.swap(swaps)
    return planner.finish(base.rewriting) if planner.swaps else None


def _host_room(trials: StepTrials, base: Base) -> int:
    """The bytes that the host has left."""
    left = trials.caps[trials.host] - base.peaks()[trials.host]
    return int(left / trials.padding[trials.host])


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
    """Lowers the budgets until what is computed again fits."""

    def __init__(self, trials: StepTrials, base: Base) -> None:
        self.trials, self.base = trials, base

    def run(self) -> None:
        budgets: Mapping[str, int] = self.trials.full(self.base)
        if min(budgets.values()) <= 0:
            return

        def reductions(order: Sequence[int]) -> Reductions:
            return self.trials.reductions(self.base, order, budgets)

        found = reductions(self.base.order)
        nodes = [root for some in found.values() for root in some.chosen.roots()]
        if not nodes:
            return
        tries = [found, reductions(self.trials.low_order(self.base.graph, self.base.step, nodes))]
        schedule = self.trials.schedule
        timed = self.trials.request.seconds > 0
        for _ in range(schedule.most_budgets if timed else schedule.untimed_budgets):
            if self.trials.is_late():
                break
            attempts = [self._plan(tries[0], budgets)]
            for some in tries[1:] if not self.trials.is_late() else ():
                attempts.append(self._plan(some, budgets))
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
