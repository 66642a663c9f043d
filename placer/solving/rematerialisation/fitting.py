"""A placed training step made to fit: gradients released, ops in order, tensors computed again.

What is decided on the reduced problem is judged by the prediction of the rewritten graph, and the
budget of the problem lowered by what that is over.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter

from cost_models.byte_sizes import format_bytes
from cost_models.devices import Cluster
from cost_models.op_cost import OpCost
from cost_models.roofline import op_seconds
from placer.graph.control_edges import ControlEdge, add_control_edges
from placer.graph.op_graph import OpGraph
from placer.graph.rewriting import NO_REWRITING, Rewriting, rewrite_graph
from placer.prediction.memory.timelines import StepMemory
from placer.prediction.orders.execution_orders import uses_accelerator
from placer.prediction.prediction import predict, predict_step_seconds
from placer.prediction.step.executor import prepare
from placer.solving.orders.list_scheduling import find_low_order
from placer.solving.orders.sequence_edges import edges_along
from placer.solving.process import clock
from placer.solving.rematerialisation.greedy import first_sequence
from placer.solving.rematerialisation.reduction import StepReduction, working_sets
from placer.solving.rematerialisation.rewriting import PlannedStep, RewritingPlanner
from placer.solving.rematerialisation.solver import solve_rematerialisation
from placer.solving.solution import SolverParameters

_LOG = logging.getLogger(__name__)

RELEASE, ORDER, RECOMPUTE = MEANS = ("release", "order", "recompute")

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
    floors: tuple[float, ...] = (0.8,)  # of the caps: edges only where more is in use, on CPUs


_SCHEDULE = FitSchedule()


@dataclass(frozen=True, slots=True, kw_only=True)
class FitRequest:
    """By which of :data:`MEANS` a step is to fit, in how many ``seconds`` that is to be decided,
    and by what share it may take longer (``None``: any).  Caps hold for what allocators need, or
    without ``with_needs`` for the peaks alone."""

    means: tuple[str, ...] = MEANS
    seconds: float = 30.0
    with_needs: bool = True
    most_slowdown: float | None = None
    seed: int = 0
    workers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """The op that needs most at once, what is resident included: no step is below ``bytes``."""

    op: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedStep:
    """What a step becomes, and what that is predicted to take.

    ``over_bytes`` is what the devices need beyond their caps, of those that do.  ``step_seconds``
    and ``free_seconds`` are those of the step and of the original one; no sequence of the same
    order computes again in less than ``least_extra_seconds``, where that is known.  ``floors`` has
    what no rewriting gets below, by device.
    """

    rewriting: Rewriting = NO_REWRITING
    control_edges: tuple[ControlEdge, ...] = ()
    over_bytes: Mapping[str, int] = field(default_factory=dict)
    free_seconds: float = 0.0
    step_seconds: float = 0.0
    least_extra_seconds: float | None = None
    floors: Mapping[str, Floor] = field(default_factory=dict)

    @property
    def fits(self) -> bool:
        """Whether all devices keep their caps."""
        return not self.over_bytes

    @property
    def rank(self) -> tuple[float, ...]:
        """Smaller is better: what is over, then the time, then the edges."""
        over = sum(self.over_bytes.values())
        return over, self.step_seconds, len(self.control_edges)

    @property
    def is_rewritten(self) -> bool:
        """Whether anything was done."""
        return bool(self.rewriting or self.control_edges)

    @property
    def extra_seconds(self) -> float:
        """What the step takes longer."""
        return self.step_seconds - self.free_seconds

    @property
    def slowdown(self) -> float:
        """By what share the step takes longer."""
        return self.step_seconds / self.free_seconds - 1 if self.free_seconds else 0.0


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
        self.best = FittedStep()
        self.padding = dict.fromkeys(self.names, 1.0)

    def run(self) -> FittedStep:
        """Tries what costs least first."""
        self.best = self._judge(NO_REWRITING, ())
        if self.best.fits:
            return self.best
        self._relieve()
        return replace(self.best, floors=self._floors())

    def _relieve(self) -> None:
        bases = list(self._bases())
        if self.best.fits:
            return
        if ORDER in self.request.means:
            for base in bases:
                names = [base.step.layout.names[op] for op in base.order]
                along = base.step.peaks(names)
                low = all(along[name] <= self.caps[name] for name in self.names)
                if low and self._hold(base.rewriting, names).fits:
                    return
        if RECOMPUTE in self.request.means:
            base = min(bases, key=self._low_excess)
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
            order = self._low_order(graph, step)
            yield _Base(rewriting=rewriting, graph=graph, step=step, order=order)

    def _step(self, graph: OpGraph, rewriting: Rewriting) -> StepMemory:
        costs, placement = self._completed(rewriting)
        own = {name: placement[name] for name in graph.ops}
        return StepMemory(graph, costs, own, self.names, self.host)

    def _completed(self, rewriting: Rewriting) -> tuple[Mapping[str, OpCost], Mapping[str, str]]:
        """Costs and placement with the ops that are added."""
        added = {name: self.costs[source] for name, source in rewriting.sources.items()}
        return {**self.costs, **added}, rewriting.extend_placement(self.placement, self.host)

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
        costs, placement = self._completed(rewriting)
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
        if found.rank < self.best.rank:
            self.best = found
        return found.fits

    def _hold(
        self, rewriting: Rewriting, order: Sequence[str], bound: float | None = None
    ) -> FittedStep:
        """The step held to ``order``, with few edges if they are enough."""
        step = self._step(rewrite_graph(self.graph, rewriting), rewriting)
        best = self._judge(rewriting, edges_along(step, order, dict.fromkeys(self.caps, 0)), bound)
        self._keep(best)
        for floor in _SCHEDULE.floors if best.fits and not self.accelerated else ():
            if clock.monotonic() > self.deadline:
                break
            floors = {name: floor * cap for name, cap in self.caps.items()}
            found = self._judge(rewriting, edges_along(step, order, floors), bound)
            if self._keep(found):
                return found
        return best

    def _low_excess(self, base: _Base) -> int:
        """By how much the low order is over the caps."""
        names = [base.step.layout.names[op] for op in base.order]
        peaks = base.step.peaks(names)
        return sum(max(peaks[name] - self.caps[name], 0) for name in self.names)

    def _recompute(self, base: _Base) -> None:
        """Lowers the budgets until what is computed again fits, first sequences before any search;
        then searches for one that takes less time."""
        devices = {device.name: device for device in self.cluster.devices}
        ops = base.graph.ops
        seconds = [op_seconds(self.costs[n], devices[self.placement[n]]) for n in ops]
        layout = base.step.layout
        names = [layout.names[op] for op in base.order]
        peaks = base.step.peaks(names)
        full = [name for name in self.names if peaks[name] > self.caps[name]] or [
            name for name in self.names if name in self.best.over_bytes
        ]
        budgets = {
            name: int((self.caps[name] - base.step.resident_bytes(name)) / self.padding[name])
            for name in full
        }
        if min(budgets.values()) <= 0:
            return

        def reductions(order: Sequence[int]) -> dict[str, StepReduction]:
            return {name: StepReduction(base.graph, layout, order, name, seconds) for name in full}

        found = reductions(base.order)
        nodes = [root for some in found.values() for op in some.nodes for root in some.large[op]]
        if not nodes:
            return
        tries = [found, reductions(self._low_order(base.graph, base.step, nodes))]
        low = self._lower(base, tries, budgets, _SCHEDULE.most_budgets, search=False)
        self._lower(base, tries, low or budgets, _SCHEDULE.most_searches, search=True)

    def _lower(
        self,
        base: _Base,
        tries: Sequence[Mapping[str, StepReduction]],
        budgets: Mapping[str, int],
        count: int,
        *,
        search: bool,
    ) -> Mapping[str, int] | None:
        """The first of so many budgets for which a step fits; the best one is kept in any case."""
        for number in range(count):
            if clock.monotonic() > self.deadline and (search or number >= _SCHEDULE.least_budgets):
                return None
            found = []
            for some in tries:
                step, keeps = self._plan(base, some, budgets, search=search)
                if step is not None and step.fits:
                    return budgets
                if step is not None and keeps:
                    found.append((step.rank, step.over_bytes, some))
            if not found:  # a lower budget is not kept either
                return None
            _, over, better = min(found, key=itemgetter(0))
            budgets, tries = _lowered(budgets, over), (better,)
        return None

    def _plan(
        self,
        base: _Base,
        reductions: Mapping[str, StepReduction],
        budgets: Mapping[str, int],
        *,
        search: bool,
    ) -> tuple[FittedStep | None, bool]:
        """The step that the reduced problem gives for ``budgets``, or one that is nearly as small,
        ``None`` if it is not worth a look; and whether its sequence keeps to them."""
        some = next(iter(reductions.values()))
        planner = RewritingPlanner(base.graph, base.step.layout, some.order, some.is_forward)
        bound: float | None = 0.0 if search else None
        keeps = True
        for name, reduction in reductions.items():
            reduced = reduction.reduce(budgets[name])
            if reduced is None:
                continue
            problem = reduced.problem
            sequence: Sequence[int] = first_sequence(problem)  # a child may be slow to start
            if search and problem.working_set_bytes <= problem.budget_bytes:
                answer = solve_rematerialisation(problem, self._parameters(), [sequence])
                sequence = answer.sequence or sequence
                if bound is not None:
                    bound += max((answer.lower_bound or 0.0) - problem.least_seconds, 0.0)
            keeps = keeps and problem.peak_bytes(sequence) <= problem.budget_bytes
            planner.add(reduced, sequence)
        planned = planner.finish(base.rewriting.released)
        if self._is_hopeless(planned):
            return None, keeps
        found = self._hold(planned.rewriting, planned.order, bound)
        over = {name: format_bytes(size) for name, size in found.over_bytes.items()}
        _LOG.info("computing again to fit: over by %s", over or "nothing")
        return found, keeps

    def _parameters(self) -> SolverParameters:
        """Of one search."""
        left = self.deadline - clock.monotonic()
        seconds = min(_SCHEDULE.solve_seconds, _SCHEDULE.share_of_time * left)
        return SolverParameters(
            time_limit_seconds=max(seconds, _SCHEDULE.least_seconds),
            seed=self.request.seed,
            workers=self.request.workers,
        )

    def _is_hopeless(self, planned: PlannedStep) -> bool:
        """Whether the order itself is over the caps by more than what is known."""
        step = self._step(rewrite_graph(self.graph, planned.rewriting), planned.rewriting)
        peaks = step.peaks(planned.order)
        over = sum(max(peaks[name] - self.caps[name], 0) for name in self.names)
        return over > sum(self.best.over_bytes.values())


def _lowered(budgets: Mapping[str, int], over: Mapping[str, int]) -> dict[str, int]:
    """The ``budgets`` less what a step for them is ``over``."""
    return {
        name: size - max(over[name], int(_SCHEDULE.least_step * size)) if name in over else size
        for name, size in budgets.items()
    }
