"""The tries to make one placed step fit: the prediction of each, and the best."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from cost_models.devices import Cluster
from cost_models.op_cost import OpCost
from cost_models.roofline import op_seconds
from placer.fitting.fitted_step import FitRequest, FittedStep
from placer.fitting.list_scheduling import find_low_order
from placer.fitting.order_descent import OrderDescent
from placer.fitting.reduction import StepReduction
from placer.fitting.rewriting import PlannedStep, RewritingPlanner
from placer.fitting.sequence_edges import edges_along, edges_in_line
from placer.graph.control_edges import ControlEdge, add_control_edges
from placer.graph.op_graph import OpGraph
from placer.graph.rewriting import Rewriting
from placer.graph.rewritten_graphs import rewrite_graph
from placer.prediction.costs.op_costs import rewritten_costs
from placer.prediction.memory.timelines import StepMemory
from placer.prediction.metrics import over_caps
from placer.prediction.orders.execution_orders import uses_accelerator
from placer.prediction.prediction import predict, predict_step_seconds
from placer.prediction.step.executor import prepare


@dataclass(frozen=True, slots=True, kw_only=True)
class FitSchedule:
    """The budgets that are tried, and the edges."""

    most_budgets: int = 8
    untimed_budgets: int = 6  # where no time is given
    least_step: float = 0.04  # by which a budget falls when its plan does not fit
    near_shares: tuple[float, ...] = (0.99, 1.01, 0.98, 1.02, 0.97, 1.03)  # of the best budgets
    descent_share: float = 0.1  # of the time that is left, for an order with less in use
    edge_shares: tuple[float, ...] = (0.001, 0.004)  # of the peak: smaller buffers are left alone
    relief_shares: tuple[float, ...] = (1.0, 0.3)  # of hidden swaps: what they may bring
    floors: tuple[float, ...] = (0.8, 0.6)  # of the caps: edges only where more is in use, on CPUs


SCHEDULE = FitSchedule()


@dataclass(slots=True, kw_only=True)
class Base:
    """The graph, its joins released or not, with an order in which it holds little."""

    rewriting: Rewriting
    graph: OpGraph
    step: StepMemory
    order: tuple[int, ...]

    @property
    def names(self) -> list[str]:
        """The ops along the order."""
        return [self.step.layout.names[op] for op in self.order]

    def peaks(self) -> dict[str, int]:
        """The most bytes that every device holds along the order."""
        return self.step.peaks(self.names)


Reductions = Mapping[str, StepReduction]
"""The step as a problem, by the device whose memory is full."""


class StepTrials:
    """The tries for one placed step, and the ``best`` of them; ``free`` is the step as it is."""

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
        self.caps = cluster.caps
        self.host = cluster.host.name
        self.deadline = time.monotonic() + request.seconds
        self.accelerated = uses_accelerator(self.names)
        self.free_seconds = predict_step_seconds(graph, costs, placement, cluster)
        self.best = self.free = FittedStep()  # until they are judged
        self.is_cut = False
        self.padding = dict.fromkeys(self.names, 1.0)
        self.in_line = False  # every op waits for the one before
        self.schedule = SCHEDULE

    def judge(self, rewriting: Rewriting, edges: Sequence[ControlEdge]) -> FittedStep:
        """The step with its prediction."""
        graph = add_control_edges(rewrite_graph(self.graph, rewriting), edges)
        costs, placement = self.completed(graph, rewriting)
        with_needs = self.request.with_needs
        metrics = predict(graph, costs, placement, self.cluster, with_needs=with_needs)
        high = metrics.taken_bytes(self.caps)
        for name in self.names:  # what the allocator takes beyond what is in use
            resident = metrics.timelines[name].resident_bytes
            in_use = max(metrics.peaks[name].high_bytes - resident, 1)
            self.padding[name] = max((high[name] - resident) / in_use, 1.0)
        return FittedStep(
            rewriting=rewriting,
            control_edges=tuple(edges),
            over_bytes=over_caps(high, self.caps),
            free_seconds=self.free_seconds,
            step_seconds=metrics.schedule.step_seconds,
        )

    def keep(self, found: FittedStep) -> bool:
        """Keeps what is better than all before; says whether it fits."""
        if not self.is_allowed(found):
            return False
        if found.rank < self.best.rank:
            self.best = found
        return found.fits

    def is_allowed(self, found: FittedStep) -> bool:
        """Whether it takes no longer than it may."""
        limit = self.request.most_slowdown
        return limit is None or found.slowdown <= limit

    def hold(self, rewriting: Rewriting, order: Sequence[str]) -> FittedStep:
        """The step held to ``order``; if that is enough, or nearly, with fewer edges too: those of
        small buffers are left out, many of which may be as much as one that is large."""
        step = self.step(rewrite_graph(self.graph, rewriting), rewriting)
        along = edges_in_line if self.in_line else edges_along
        shares = self.schedule.edge_shares
        best, share = None, shares[0]
        for each in shares:
            found = self.judge(rewriting, along(step, order, dict.fromkeys(self.caps, 0), each))
            self.keep(found)
            if best is None or found.rank < best.rank:
                best, share = found, each
            near = self.schedule.least_step * min(self.caps.values())
            if sum(found.over_bytes.values()) > near or self.is_late():
                break
        assert best is not None
        for floor in self.schedule.floors if best.fits and not self.accelerated else ():
            if self.is_late():
                break
            floors = {name: floor * cap for name, cap in self.caps.items()}
            found = self.judge(rewriting, along(step, order, floors, share))
            if self.keep(found):
                return found
        return best

    def is_late(self, until: float | None = None) -> bool:
        """Whether a time was given, and is over (or it is ``until``); the clock then had a say in
        the answer."""
        deadline = self.deadline if until is None else until
        late = self.request.seconds > 0 and time.monotonic() > deadline
        self.is_cut = self.is_cut or late
        return late

    def step(self, graph: OpGraph, rewriting: Rewriting) -> StepMemory:
        """The memory of ``graph``, rewritten so, along its orders."""
        costs, placement = self.completed(graph, rewriting)
        own = {name: placement[name] for name in graph.ops}
        return StepMemory(graph, costs, own, self.names, self.host)

    def completed(
        self, graph: OpGraph, rewriting: Rewriting
    ) -> tuple[Mapping[str, OpCost], Mapping[str, str]]:
        """Costs and placement with the ops that are added, which ``graph`` has."""
        costs = rewritten_costs(self.costs, graph, rewriting)
        return costs, rewriting.extend_placement(self.placement, self.host)

    def excess(self, planned: PlannedStep, room: Mapping[str, int] | None = None) -> int:
        """By how much the order is over the ``room`` beside what is resident, or the caps."""
        step = self.step(rewrite_graph(self.graph, planned.rewriting), planned.rewriting)
        peaks = step.peaks(planned.order)
        over = 0
        for name in self.names:
            cap = self.caps[name] if room is None else room[name] + step.resident_bytes(name)
            over += max(peaks[name] - cap, 0)
        return over

    def low_order(
        self, graph: OpGraph, step: StepMemory, weightless: Sequence[int] = ()
    ) -> tuple[int, ...]:
        """An order with a low peak, some values not counted."""
        layout = step.layout
        if weightless:
            sizes = list(layout.bytes)
            for value in weightless:
                sizes[value] = 0
            layout = replace(layout, bytes=sizes)
        successors = self._successors(graph)
        names = step.device_names
        budget = [max(self.caps[name] - step.resident_bytes(name), 1) for name in names]
        return find_low_order(layout, successors, names, budget).ops

    def descend(
        self, graph: OpGraph, step: StepMemory, order: Sequence[int], budgets: Mapping[str, int]
    ) -> tuple[int, ...]:
        """The ``order`` with less over ``budgets``, found in a share of the time."""
        now = time.monotonic()
        until = now + self.schedule.descent_share * (self.deadline - now)
        after = self._successors(graph)
        return OrderDescent(step, after, order, budgets, lambda: self.is_late(until)).run()

    def _successors(self, graph: OpGraph) -> list[list[int]]:
        """The ops that wait for each op."""
        prepared = prepare(graph, self.accelerated)
        return [[op for _, op, _ in edges] for edges in prepared.successors]

    def room(self, step: StepMemory) -> dict[str, int]:
        """The bytes that the caps leave beside what is resident."""
        return {
            name: int((self.caps[name] - step.resident_bytes(name)) / self.padding[name])
            for name in self.names
        }

    def full(self, base: Base) -> dict[str, int]:
        """The devices that are too full, each with what there is room for."""
        peaks, room = base.peaks(), self.room(base.step)
        over = self.best.over_bytes or self.free.over_bytes
        full = [name for name in self.names if peaks[name] > self.caps[name]] or [
            name for name in self.names if name in over
        ]
        return {name: room[name] for name in full}

    def reductions(self, base: Base, order: Sequence[int], names: Iterable[str]) -> Reductions:
        """The step along the ``order``, as the problem of each of the devices."""
        devices = {device.name: device for device in self.cluster.devices}
        costs, placement = self.completed(base.graph, base.rewriting)
        seconds = [op_seconds(costs[n], devices[placement[n]]) for n in base.graph.ops]
        layout, fixed, order = base.step.layout, base.rewriting.changed, tuple(order)
        return {
            name: StepReduction(base.graph, layout, order, name, seconds, fixed) for name in names
        }

    def planner(self, base: Base, reductions: Reductions) -> RewritingPlanner:
        """The planner that rewrites ``base`` by what is decided on its ``reductions``."""
        some = next(iter(reductions.values()))
        layout, fixed = base.step.layout, base.rewriting.changed
        return RewritingPlanner(base.graph, layout, some.order, some.is_forward, fixed)

    def lowered(self, budgets: Mapping[str, int], over: Mapping[str, int]) -> dict[str, int]:
        """The ``budgets`` less what a step for them is ``over``."""
        least = self.schedule.least_step
        return {
            name: size - max(over[name], int(least * size)) if name in over else size
            for name, size in budgets.items()
        }
