"""A placed training step made to fit: gradients released, ops in order, tensors computed again.

What is decided on the reduced problem is judged by the prediction of the rewritten graph, and the
budget of the problem lowered by what that is over.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cost_models.byte_sizes import format_bytes
from cost_models.devices import Cluster
from cost_models.op_cost import OpCost
from cost_models.roofline import op_seconds
from placer.graph.control_edges import ControlEdge, add_control_edges
from placer.graph.op_graph import OpGraph
from placer.graph.rewriting import NO_REWRITING, Rewriting, rewrite_graph
from placer.prediction.costs.op_costs import rewritten_costs
from placer.prediction.memory.timelines import StepMemory
from placer.prediction.orders.execution_orders import uses_accelerator
from placer.prediction.prediction import predict, predict_step_seconds
from placer.prediction.step.executor import prepare
from placer.solving.orders.list_scheduling import find_low_order
from placer.solving.orders.order_descent import descend
from placer.solving.orders.sequence_edges import edges_along, edges_in_line
from placer.solving.process import clock
from placer.solving.rematerialisation.fitted_step import (
    ORDER,
    RECOMPUTE,
    RELEASE,
    SWAP,
    FitRequest,
    FittedStep,
    Floor,
)
from placer.solving.rematerialisation.greedy import first_sequence
from placer.solving.rematerialisation.reduction import StepReduction, working_sets
from placer.solving.rematerialisation.rewriting import (
    PlannedStep,
    RewritingPlanner,
    reads_what_ran,
)
from placer.solving.rematerialisation.solver import solve_rematerialisation
from placer.solving.rematerialisation.swapping import choose_swaps, hidden_relief
from placer.solving.solution import SolverParameters

_LOG = logging.getLogger(__name__)

_JOIN = "IdentityN"


@dataclass(frozen=True, slots=True, kw_only=True)
class FitSchedule:
    """How budgets are tried."""

    most_budgets: int = 8
    least_budgets: int = 6  # however long that takes
    most_searches: int = 3
    solve_seconds: float = 5.0  # of one search, at most
    share_of_time: float = 0.25  # of what is left, for one search
    least_seconds: float = 1.0  # of one search
    least_step: float = 0.04  # by which a budget falls when its plan does not fit
    edge_shares: tuple[float, ...] = (0.004, 0.001)  # of the peak: smaller buffers are left alone
    relief_shares: tuple[float, ...] = (1.0, 0.3)  # of hidden swaps: what they may bring
    floors: tuple[float, ...] = (0.8, 0.6)  # of the caps: edges only where more is in use, on CPUs


_SCHEDULE = FitSchedule()


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
    return _Fitting(graph, costs, placement, cluster, request).run()


@dataclass(slots=True, kw_only=True)
class _Base:
    """The graph, its joins released or not, with an order in which it holds little."""

    rewriting: Rewriting
    graph: OpGraph
    step: StepMemory
    order: tuple[int, ...]


_Reductions = Mapping[str, StepReduction]
"""The step as a problem, by the device whose memory is full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    """What came of one try: the ``step``, ``None`` if it is not worth a look; whether its sequence
    ``keeps`` the budgets; the ``order`` of the graph; what that order is ``over`` the caps."""

    step: FittedStep | None
    keeps: bool
    order: tuple[int, ...]
    over: int

    @property
    def rank(self) -> tuple[float, ...]:
        """Smaller is better."""
        return (1, self.over) if self.step is None else (0, *self.step.rank)


class _Fitting:
    def __init__(
        self,
        graph: OpGraph,
        costs: Mapping[str, OpCost],
        placement: Mapping[str, str],
        cluster: Cluster,
        request: FitRequest,
    ) -> None:
        self.graph, self.costs, self.placement = graph, costs, placement
        self.cluster, self.request = cluster, request
        self.names = [device.name for device in cluster.devices]
        self.caps = {device.name: device.usable_bytes for device in cluster.devices}
        self.host = cluster.host.name
        self.deadline = clock.monotonic() + request.seconds
        self.accelerated = uses_accelerator(self.names)
        self.free_seconds = predict_step_seconds(graph, costs, placement, cluster)
        self.best = self.free = FittedStep()
        self.is_cut = False
        self.padding = dict.fromkeys(self.names, 1.0)
        self.bases: list[_Base] = []
        self.in_line = False

    def run(self) -> FittedStep:
        """Tries what costs least first; where nothing fits, all of it with ops in line: more waits,
        but gaps between buffers are those of one order then, and not of whichever comes about."""
        free, found = self._judge(NO_REWRITING, ()), []
        self.free = free
        if free.fits:
            return free
        padding = self.padding
        for self.in_line in (False, True):
            self.best, self.padding = free, dict(padding)
            self._relieve()
            found.append(self.best)
            if self.best.fits or (self.request.seconds > 0 and self._is_over()):
                break
        self.best = min(found, key=lambda step: step.rank)
        return replace(self.best, floors=self._floors(), is_cut=self.is_cut)

    def _relieve(self) -> None:
        self.bases = bases = self.bases or list(self._bases())
        if self.best.fits:
            return
        if ORDER in self.request.means:
            for base in bases:
                names = [base.step.layout.names[op] for op in base.order]
                along = base.step.peaks(names)
                over = sum(max(along[name] - self.caps[name], 0) for name in self.names)
                known = sum(self.best.over_bytes.values())
                if over < known and self._hold(base.rewriting, names).fits:
                    return
        base = min(bases, key=self._low_peak)
        recomputes, swaps = (means in self.request.means for means in (RECOMPUTE, SWAP))
        if swaps:
            self._swap(base)
        if recomputes and not (self.best.fits and self.best.is_proven):
            if swaps:
                self._recompute_and_swap(base)
            self._recompute(base)

    def _floors(self) -> dict[str, Floor]:
        """What no rewriting gets below."""
        released = tuple(self._joins()) if RELEASE in self.request.means else ()
        rewriting = Rewriting(released=released)
        step = self._step(rewrite_graph(self.graph, rewriting), rewriting)
        found: dict[str, Floor] = {}
        for name, (op, size) in working_sets(step.layout).items():
            if name in self.caps:
                found[name] = Floor(op=op, bytes=size + step.resident_bytes(name))
        return found

    def _joins(self) -> list[str]:
        """The joins of gradients."""
        return [op.name for op in self.graph.ops.values() if op.op_type == _JOIN]

    def _bases(self) -> Iterator[_Base]:
        """The graph as it is, and with its joins of gradients released."""
        rewritings = [NO_REWRITING]
        joins = tuple(self._joins())
        if RELEASE in self.request.means and joins:
            rewritings.append(Rewriting(released=joins))
            if self._keep(self._judge(rewritings[1], ())):
                return
        for rewriting in rewritings:
            graph = rewrite_graph(self.graph, rewriting)
            step = self._step(graph, rewriting)
            order = self._descend(graph, step, self._low_order(graph, step), self._room(step))
            yield _Base(rewriting=rewriting, graph=graph, step=step, order=order)

    def _room(self, step: StepMemory) -> dict[str, int]:
        """What the caps leave beside what is resident."""
        return {
            name: int((self.caps[name] - step.resident_bytes(name)) / self.padding[name])
            for name in self.names
        }

    def _descend(
        self, graph: OpGraph, step: StepMemory, order: Sequence[int], budgets: Mapping[str, int]
    ) -> tuple[int, ...]:
        prepared = prepare(graph, self.accelerated)
        successors = [[op for _, op, _ in edges] for edges in prepared.successors]
        return descend(step, successors, order, budgets)

    def _step(self, graph: OpGraph, rewriting: Rewriting) -> StepMemory:
        costs, placement = self._completed(graph, rewriting)
        own = {name: placement[name] for name in graph.ops}
        return StepMemory(graph, costs, own, self.names, self.host)

    def _completed(
        self, graph: OpGraph, rewriting: Rewriting
    ) -> tuple[Mapping[str, OpCost], Mapping[str, str]]:
        """Costs and placement with the ops that are added, which ``graph`` has."""
        costs = rewritten_costs(self.costs, graph, rewriting)
        return costs, rewriting.extend_placement(self.placement, self.host)

    def _low_order(
        self, graph: OpGraph, step: StepMemory, weightless: Sequence[int] = ()
    ) -> tuple[int, ...]:
        """An order with a low peak, some values not counted."""
        layout = step.layout
        if weightless:
            sizes = list(layout.bytes)
            for value in weightless:
                sizes[value] = 0
            layout = replace(layout, bytes=sizes)
        prepared = prepare(graph, self.accelerated)
        successors = [[op for _, op, _ in edges] for edges in prepared.successors]
        names = step.device_names
        budget = [max(self.caps[name] - step.resident_bytes(name), 1) for name in names]
        return find_low_order(layout, successors, names, budget, least=True).ops

    def _judge(
        self, rewriting: Rewriting, edges: Sequence[ControlEdge], bound: float | None = None
    ) -> FittedStep:
        """What is predicted of the step."""
        graph = add_control_edges(rewrite_graph(self.graph, rewriting), edges)
        costs, placement = self._completed(graph, rewriting)
        with_needs = self.request.with_needs
        metrics = predict(graph, costs, placement, self.cluster, with_needs=with_needs)
        high = {name: metrics.peaks[name].high_bytes for name in self.names}
        for name, found in metrics.needs.items():
            high[name] = max(high[name], found.need.high_bytes)
        for name in self.names:  # what the allocator takes beyond what is in use
            resident = metrics.timelines[name].resident_bytes
            in_use = max(metrics.peaks[name].high_bytes - resident, 1)
            self.padding[name] = max((high[name] - resident) / in_use, 1.0)
        return FittedStep(
            rewriting=rewriting,
            control_edges=tuple(edges),
            over_bytes={n: high[n] - self.caps[n] for n in self.names if high[n] > self.caps[n]},
            free_seconds=self.free_seconds,
            step_seconds=metrics.schedule.step_seconds,
            least_extra_seconds=bound,
        )

    def _keep(self, found: FittedStep) -> bool:
        """Keeps what is better than all before; says whether it fits."""
        limit = self.request.most_slowdown
        if limit is not None and found.slowdown > limit:
            return False
        proves = found.rank == self.best.rank and found.least_extra_seconds is not None
        if found.rank < self.best.rank or proves:
            self.best = found
        return found.fits

    def _hold(
        self, rewriting: Rewriting, order: Sequence[str], bound: float | None = None
    ) -> FittedStep:
        """The step held to ``order``, with few edges if they are enough: at first those of small
        buffers are left out, too, many of which may be as much as one that is large."""
        step = self._step(rewrite_graph(self.graph, rewriting), rewriting)
        along = edges_in_line if self.in_line else edges_along
        best, share = None, 0.0
        for share in _SCHEDULE.edge_shares:
            edges = along(step, order, dict.fromkeys(self.caps, 0), share)
            found = self._judge(rewriting, edges, bound)
            self._keep(found)
            best = found if best is None or found.rank < best.rank else best
            if best.fits:
                break
        assert best is not None
        for floor in _SCHEDULE.floors if best.fits and not self.accelerated else ():
            floors = {name: floor * cap for name, cap in self.caps.items()}
            found = self._judge(rewriting, along(step, order, floors, share), bound)
            if self._keep(found):
                return found
        return best

    def _is_over(self) -> bool:
        """Whether the time is; the clock then had a say in the answer."""
        over = clock.monotonic() > self.deadline
        self.is_cut = self.is_cut or over
        return over

    def _low_peak(self, base: _Base) -> float:
        """How full the order leaves the fullest device."""
        names = [base.step.layout.names[op] for op in base.order]
        peaks = base.step.peaks(names)
        return max(peaks[name] / max(self.caps[name], 1) for name in self.names)

    def _full(self, base: _Base) -> dict[str, int]:
        """The devices that are too full, each with what there is room for."""
        names = [base.step.layout.names[op] for op in base.order]
        peaks, room = base.step.peaks(names), self._room(base.step)
        over = self.best.over_bytes or self.free.over_bytes
        full = [name for name in self.names if peaks[name] > self.caps[name]] or [
            name for name in self.names if name in over
        ]
        return {name: room[name] for name in full}

    def _reductions(self, base: _Base, order: Sequence[int], names: Iterable[str]) -> _Reductions:
        devices = {device.name: device for device in self.cluster.devices}
        costs, placement = self._completed(base.graph, base.rewriting)
        seconds = [op_seconds(costs[n], devices[placement[n]]) for n in base.graph.ops]
        layout, fixed = base.step.layout, base.rewriting.changed
        return {
            name: StepReduction(base.graph, layout, order, name, seconds, fixed) for name in names
        }

    def _swap(self, base: _Base) -> None:
        """Lowers the budgets until what waits on the host meanwhile lets the step fit."""
        budgets: Mapping[str, int] = self._full(base)
        reductions, known = self._reductions(base, base.order, budgets), None
        for _ in range(_SCHEDULE.most_budgets):
            planned = self._plan_swaps(base, reductions, budgets)
            if planned is None or planned == known:
                return
            known = planned
            step = self._hold(planned.rewriting, planned.order)
            told = {name: format_bytes(size) for name, size in step.over_bytes.items()}
            _LOG.info("swapping to fit: over by %s", told or "nothing")
            if step.fits:
                return
            budgets = _lowered(budgets, step.over_bytes)

    def _plan_swaps(
        self, base: _Base, reductions: _Reductions, budgets: Mapping[str, int]
    ) -> PlannedStep | None:
        """The step with tensors on the host for those ``budgets``, if that changes anything."""
        if self.host in budgets or min(budgets.values()) <= 0:
            return None
        planner = self._planner(base, reductions)
        left = self._host_room(base)
        for name, reduction in reductions.items():
            swaps = choose_swaps(base.step, reduction, self.cluster, budgets[name], left)
            left -= sum(swap.tensor.bytes for swap in swaps)
            planner.swap(swaps)
        return planner.finish(base.rewriting) if planner.swaps else None

    def _recompute_and_swap(self, base: _Base) -> None:
        """What hidden swaps leave is computed again, then what is still too much is swapped."""
        budgets = self._full(base)
        reductions, left = self._reductions(base, base.order, budgets), self._host_room(base)
        if self.host in budgets or min(budgets.values()) <= 0:
            return
        relief = {
            name: hidden_relief(base.step, reduction, self.cluster, budgets[name], left)
            for name, reduction in reductions.items()
        }
        for share in _SCHEDULE.relief_shares if any(relief.values()) else ():
            planner = self._planner(base, reductions)
            for name, reduction in reductions.items():
                reduced = reduction.reduce(budgets[name] + int(share * relief[name]))
                if reduced is not None:
                    planner.add(reduced, first_sequence(reduced.problem))
            planned = planner.finish(base.rewriting)
            graph = rewrite_graph(self.graph, planned.rewriting)
            step = self._step(graph, planned.rewriting)
            order = tuple(step.numbers(planned.order))
            self._swap(_Base(rewriting=planned.rewriting, graph=graph, step=step, order=order))

    def _planner(self, base: _Base, reductions: _Reductions) -> RewritingPlanner:
        some = next(iter(reductions.values()))
        layout, fixed = base.step.layout, base.rewriting.changed
        return RewritingPlanner(base.graph, layout, some.order, some.is_forward, fixed)

    def _host_room(self, base: _Base) -> int:
        """What the host has left."""
        names = [base.step.layout.names[op] for op in base.order]
        left = self.caps[self.host] - base.step.peaks(names)[self.host]
        return int(left / self.padding[self.host])

    def _recompute(self, base: _Base) -> None:
        """Lowers the budgets until what is computed again fits, first sequences before any search;
        then searches for one that takes less time."""
        budgets: Mapping[str, int] = self._full(base)
        if min(budgets.values()) <= 0:
            return

        def reductions(order: Sequence[int]) -> _Reductions:
            return self._reductions(base, order, budgets)

        found = reductions(base.order)
        nodes = [root for some in found.values() for op in some.nodes for root in some.large[op]]
        if not nodes:
            return
        tries = [found, reductions(self._low_order(base.graph, base.step, nodes))]
        for count, search in ((_SCHEDULE.most_budgets, False), (_SCHEDULE.most_searches, True)):
            budgets, order = self._lower(base, tries, budgets, count, search=search)
            if order is not None:
                tries = [reductions(order)]

    def _lower(
        self,
        base: _Base,
        tries: Sequence[_Reductions],
        budgets: Mapping[str, int],
        count: int,
        *,
        search: bool,
    ) -> tuple[Mapping[str, int], Sequence[int] | None]:
        """The first of so many budgets for which a step fits, and its order; the best one is kept
        in any case."""
        first, order = budgets, None
        for number in range(count):
            if (search or number >= _SCHEDULE.least_budgets) and self._is_over():
                break
            found = [self._plan(base, some, budgets, search=search) for some in tries]
            best = min(found, key=lambda attempt: attempt.rank)
            order = best.order
            if best.step is not None and best.step.fits:
                return budgets, order
            used = next(iter(tries[found.index(best)].values())).order
            if best.keeps and best.step is not None:
                budgets = _lowered(budgets, best.step.over_bytes)
            elif order == used:  # a lower budget is not kept either
                break
            tries = [{name: some.along(order) for name, some in tries[0].items()}]
        return first, order

    def _plan(
        self,
        base: _Base,
        reductions: _Reductions,
        budgets: Mapping[str, int],
        *,
        search: bool,
    ) -> _Attempt:
        """The step that the reduced problem gives for ``budgets``, or one that is nearly as small.

        Its order is lowered with what is computed again in it, since that is held, too.
        """
        some = next(iter(reductions.values()))
        planner = self._planner(base, reductions)
        whole = self._room(base.step)
        room = {**whole, **budgets}
        is_proven = search and len(reductions) == 1 and room == whole
        bound: float | None = 0.0 if is_proven else None
        keeps = True
        for name, reduction in reductions.items():
            reduced = reduction.reduce(budgets[name])
            if reduced is None:
                continue
            problem = reduced.problem
            sequence: Sequence[int] = first_sequence(problem)  # a child may be slow to start
            if search and problem.working_set_bytes <= problem.budget_bytes:
                answer = solve_rematerialisation(problem, self._parameters(), [sequence])
                self.is_cut = self.is_cut or answer.is_cut
                sequence = answer.sequence or sequence
                if bound is not None:
                    bound += max((answer.lower_bound or 0.0) - problem.least_seconds, 0.0)
            keeps = keeps and problem.peak_bytes(sequence) <= problem.budget_bytes
            planner.add(reduced, sequence)
        planned = planner.finish(base.rewriting)
        over, order = self._excess(planned, room), some.order
        if over:
            lowered, along = self._with_less(base, planned, some, room)
            is_order = reads_what_ran(base.step.layout, along)
            if is_order and (less := self._excess(lowered, room)) < over:
                planned, order, over, bound = lowered, along, less, None
        if self._excess(planned) > sum(self.best.over_bytes.values()):
            return _Attempt(step=None, keeps=keeps, order=order, over=over)
        step = self._hold(planned.rewriting, planned.order, bound)
        told = {name: format_bytes(size) for name, size in step.over_bytes.items()}
        _LOG.info("computing again to fit: over by %s", told or "nothing")
        return _Attempt(step=step, keeps=keeps, order=order, over=over)

    def _with_less(
        self, base: _Base, planned: PlannedStep, some: StepReduction, room: Mapping[str, int]
    ) -> tuple[PlannedStep, tuple[int, ...]]:
        """``planned`` in an order with less over the ``room``, and that of the graph itself."""
        clones = tuple(replace(clone, after=()) for clone in planned.rewriting.clones)
        free = replace(planned.rewriting, clones=clones)
        graph = rewrite_graph(self.graph, free)
        step = self._step(graph, free)
        ops = self._descend(graph, step, step.numbers(planned.order), room)
        names = tuple(step.layout.names[op] for op in ops)
        order = tuple(base.step.number[name] for name in names if name in base.step.number)
        planner = RewritingPlanner(base.graph, base.step.layout, order, some.is_forward)
        planner.add_clones(replace(planned, order=names), some.roots)
        return planner.finish(base.rewriting), order

    def _parameters(self) -> SolverParameters:
        """Of one search."""
        seconds = self.deadline - clock.monotonic()
        if self.request.work_limit is None:
            seconds = min(_SCHEDULE.solve_seconds, _SCHEDULE.share_of_time * seconds)
        return SolverParameters(
            time_limit_seconds=max(seconds, _SCHEDULE.least_seconds),
            seed=self.request.seed,
            workers=self.request.workers,
            work_limit=self.request.work_limit,
        )

    def _excess(self, planned: PlannedStep, room: Mapping[str, int] | None = None) -> int:
        """By how much the order is over the ``room`` beside what is resident, or the caps."""
        step = self._step(rewrite_graph(self.graph, planned.rewriting), planned.rewriting)
        peaks = step.peaks(planned.order)
        over = 0
        for name in self.names:
            cap = self.caps[name] if room is None else room[name] + step.resident_bytes(name)
            over += max(peaks[name] - cap, 0)
        return over


def _lowered(budgets: Mapping[str, int], over: Mapping[str, int]) -> dict[str, int]:
    """The ``budgets`` less what a step for them is ``over``."""
    return {
        name: size - max(over[name], int(_SCHEDULE.least_step * size)) if name in over else size
        for name, size in budgets.items()
    }
