"""Control edges under which the executor keeps memory low, whichever order it takes.

An order with a low peak is found first (:mod:`placer.solving.orders.list_scheduling`).  To force
all of it would leave nothing to run in parallel; so the orders of the executor are followed, and
where one of them holds more than the goal, the ops that differ from the low order there are held to
it:

- what ran ahead, and is alive at that moment though the low order makes it later, waits for the
  last op at which there is no room for it;
- what lags behind, and keeps a buffer that the low order has freed by then, is waited for by the
  first op at which there is no room for that buffer.

All edges go forward in the low order, so that there is never a cycle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from cost_models.devices import Cluster
from cost_models.op_cost import OpCost
from placer.graph.control_edges import (
    ControlEdge,
    add_control_edges,
    direct_edges,
    joinable_ops,
)
from placer.graph.op_graph import OpGraph
from placer.prediction.memory.buffers import Lifetime
from placer.prediction.memory.lifetimes import find_lifetimes
from placer.prediction.memory.timelines import StepMemory
from placer.prediction.metrics import PeakRange
from placer.prediction.orders.execution_orders import executor_orders, peaks_along, uses_accelerator
from placer.prediction.orders.possible_steps import predict_peak_ranges
from placer.prediction.step.executor import prepare
from placer.solving.orders.list_scheduling import find_low_order


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeSchedule:
    """How far control edges are searched and left out again."""

    room: float = 1.005  # without caps the goal is the low order's peak, and a little more
    most_rounds: int = 60
    ops_in_rounds: int = 200_000  # followed over all rounds, which bounds the time
    orders_per_round: int = 3  # those that hold most
    moments_per_order: int = 6  # those at which most is in use
    ops_pruned: int = 50_000  # followed over all attempts to leave edges out
    least_share: float = 0.002  # of what is not resident: smaller buffers are left alone


_SCHEDULE = EdgeSchedule()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOrder:
    """The ``edges`` and the ranges of every device's peak, ``before`` and ``after`` adding them."""

    edges: tuple[ControlEdge, ...]
    before: Mapping[str, PeakRange]
    after: Mapping[str, PeakRange]


def order_for_memory(
    graph: OpGraph,
    costs: Mapping[str, OpCost],
    placement: Mapping[str, str],
    cluster: Cluster,
    caps: Mapping[str, int] | None = None,
) -> MemoryOrder:
    """Control edges that lower the predicted peaks of ``placement``.

    With ``caps`` (bytes by device) as few as bring every high peak under its cap, none if they are
    there already; without, those that bring the peaks as low as an order was found.  None are kept
    that do not help.  Raises :class:`~placer.errors.UsageError` if the placement does not fit.
    """
    names = [device.name for device in cluster.devices]
    search = _Search(graph, costs, placement, names, cluster.host.name)
    before = search.ranges(())
    if caps is not None and not excess_bytes(before, caps):
        return MemoryOrder(edges=(), before=before, after=before)
    goal = search.aim({name: peak.high_bytes for name, peak in before.items()}, caps)
    edges, after = search.restrain(goal, before)
    return MemoryOrder(edges=edges, before=before, after=after)


class _Search:
    """The edges of one placement while they are searched; ``place_of`` has where in the low order
    each op is, ``low_bytes`` what is in use there, by device."""

    def __init__(
        self,
        graph: OpGraph,
        costs: Mapping[str, OpCost],
        placement: Mapping[str, str],
        device_names: Sequence[str],
        host: str,
    ) -> None:
        self.graph, self.costs, self.placement = graph, costs, placement
        self.device_names, self.host = device_names, host
        self.accelerated = uses_accelerator(device_names)
        self.step = StepMemory(graph, costs, placement, device_names, host)
        joinable = joinable_ops(graph)
        self.joinable = [name in joinable for name in graph.ops]
        self.low_order: tuple[int, ...] = ()
        self.place_of = [0] * len(graph.ops)
        self.low_bytes: dict[str, list[int]] = {}

    def ranges(self, edges: Sequence[ControlEdge]) -> dict[str, PeakRange]:
        """The ranges of the peaks with the ``edges``."""
        ordered = add_control_edges(self.graph, edges)
        return predict_peak_ranges(
            ordered, self.costs, self.placement, self.device_names, self.host
        )

    def aim(self, peaks: Mapping[str, int], caps: Mapping[str, int] | None) -> dict[str, int]:
        """Finds the low order; what every device's peak shall be under."""
        layout, names = self.step.layout, self.step.device_names
        aside = {name: self.step.resident_bytes(name) for name in names}
        for op in layout.feeds:
            for value in layout.outputs[op]:
                aside[layout.memory[value]] += layout.bytes[value]
        wanted = peaks if caps is None else {**peaks, **caps}
        budget = [max(wanted[name] - aside[name], 0) for name in names]
        prepared = prepare(self.graph, self.accelerated)
        successors = [[op for _, op, _ in edges] for edges in prepared.successors]
        low = find_low_order(layout, successors, names, budget, least=caps is None)
        self.low_order = low.ops
        for place, op in enumerate(low.ops):
            self.place_of[op] = place
        self.low_bytes = self._bytes_along(find_lifetimes(layout, low.ops))
        if caps is not None:
            return dict(wanted)
        return {
            name: aside[name]
            + int(_SCHEDULE.room * (max(found, default=aside[name]) - aside[name]))
            for name, found in self.low_bytes.items()
        }

    def restrain(
        self, goal: Mapping[str, int], before: dict[str, PeakRange]
    ) -> tuple[tuple[ControlEdge, ...], dict[str, PeakRange]]:
        """The edges that come nearest to the goal, and the ranges with them."""
        edges = dict.fromkeys(self._edges_after_control_flow(goal))
        best: tuple[tuple[ControlEdge, ...], dict[str, PeakRange]] = (), before
        if edges:
            found = self.ranges(tuple(edges))
            if excess_bytes(found, goal) < excess_bytes(before, goal):
                best = tuple(edges), found
        for _ in range(
            min(_SCHEDULE.most_rounds, _SCHEDULE.ops_in_rounds // len(self.graph.ops) + 1)
        ):
            if not excess_bytes(best[1], goal):
                break
            ordered = add_control_edges(self.graph, edges)
            new = [edge for edge in self._missing_edges(ordered, goal) if edge not in edges]
            if not new:
                break
            edges |= dict.fromkeys(new)
            found = self.ranges(tuple(edges))
            if excess_bytes(found, goal) < excess_bytes(best[1], goal):
                best = tuple(edges), found
        return self._pruned(*best, goal)

    def _pruned(
        self,
        edges: tuple[ControlEdge, ...],
        ranges: dict[str, PeakRange],
        goal: Mapping[str, int],
    ) -> tuple[tuple[ControlEdge, ...], dict[str, PeakRange]]:
        """Fewer edges that do as much: none that others imply, and without the parts that can be
        left out at no loss."""
        edges = tuple(direct_edges(self.graph, edges))
        excess = excess_bytes(ranges, goal)
        left = max(_SCHEDULE.ops_pruned // max(len(self.graph.ops), 1), 1)
        size = (len(edges) + 1) // 2
        while edges and size and left:
            for start in range(0, len(edges), size):
                left -= 1
                kept = edges[:start] + edges[start + size :]
                found = self.ranges(kept)
                if excess_bytes(found, goal) <= excess:
                    edges, ranges = kept, found
                    break
                if not left:
                    break
            else:
                size //= 2
        return edges, ranges

    def _edges_after_control_flow(self, goal: Mapping[str, int]) -> Iterator[ControlEdge]:
        """From what reads the results of a branch or loop that reads much, to what allocates much
        next: its pieces run when the executor comes to them, and not at once as in the orders
        that are followed."""
        layout, order = self.step.layout, self.low_order
        least = _SCHEDULE.least_share * min(goal[name] for name in goal)
        takes = [
            self.joinable[op] and sum(layout.bytes[v] for v in layout.outputs[op]) >= least
            for op in order
        ]
        names = layout.names
        for op in order:
            read = sum(layout.bytes[value] for value in layout.inputs[op])
            if not self.graph.ops[names[op]].bodies or read < least:
                continue
            readers = {
                self.step.number[reader]
                for tensor in self.graph.output_names[names[op]]
                for reader in self.graph.tensors[tensor].consumers
            }
            for reader in sorted(reader for reader in readers if self.joinable[reader]):
                after = range(self.place_of[reader] + 1, len(order))
                same = (p for p in after if takes[p] and self._together(op, order[p]))
                if (found := next(same, None)) is not None:
                    yield names[reader], names[order[found]]

    def _together(self, one: int, other: int) -> bool:
        return self.step.layout.devices[one] == self.step.layout.devices[other]

    def _missing_edges(self, ordered: OpGraph, goal: Mapping[str, int]) -> Iterator[ControlEdge]:
        """Edges against the worst moments of the orders that hold most."""
        orders = executor_orders(ordered, accelerated=self.accelerated)
        peaks = peaks_along(self.step, orders)
        for device in self.step.device_names:
            over = [n for n in range(len(orders)) if peaks[n][device] > goal[device]]
            over.sort(key=lambda n: -peaks[n][device])
            for number in over[: _SCHEDULE.orders_per_round]:
                yield from self._edges_against(orders[number], device, goal[device])

    def _edges_against(self, names: Sequence[str], device: str, goal: int) -> Iterator[ControlEdge]:
        order = self.step.numbers(names)
        lifetimes = find_lifetimes(self.step.layout, order, with_reads=True)
        lifetimes = [lifetime for lifetime in lifetimes if lifetime.device == device]
        least = _SCHEDULE.least_share * (goal - self.step.resident_bytes(device))
        in_use = self._bytes_along(lifetimes)[device]
        for moment in _worst_moments(in_use, goal):
            for lifetime in lifetimes:
                if lifetime.first <= moment <= lifetime.last and lifetime.bytes >= least:
                    yield from self._edges_of(lifetime, order, moment, device, goal)

    def _edges_of(
        self, lifetime: Lifetime, order: Sequence[int], moment: int, device: str, goal: int
    ) -> Iterator[ControlEdge]:
        """What keeps a buffer from being alive at a moment at which the low order has none."""
        now = self.place_of[order[moment]]
        owner = self.step.number[lifetime.owner]
        room = goal - lifetime.bytes
        low = self.low_bytes[device]
        if self.place_of[owner] > now:
            for op in self._beginnings(owner, now):
                full = (p for p in range(self.place_of[op] - 1, now, -1) if low[p] > room)
                yield from self._join(next(full, now), self.place_of[op], backwards=True)
            return
        late = [order[read.holder] for read in lifetime.reads if read.holder > moment]
        if late and max(self.place_of[reader] for reader in late) < now:
            for reader in late:
                first = self.place_of[reader]
                full = (p for p in range(first + 1, now) if low[p] > room)
                yield from self._join(first, next(full, now), backwards=False)

    def _beginnings(self, owner: int, now: int) -> list[int]:
        """The first ops of what ran ahead to make a buffer: ``owner`` may have written it over
        others."""
        layout = self.step.layout
        found, seen, stack = [], {owner}, [owner]
        while stack:
            op = stack.pop()
            producers = {layout.producer[v] for v in layout.inputs[op] if layout.bytes[v]}
            ahead = [
                producer
                for producer in sorted(producers)
                if self.place_of[producer] > now and self.joinable[producer]
            ]
            if not ahead:
                found.append(op)
            stack.extend(producer for producer in ahead if producer not in seen)
            seen.update(ahead)
        return found

    def _join(self, first: int, last: int, *, backwards: bool) -> Iterator[ControlEdge]:
        """The edge between two places of the low order; the one that may move is moved between
        them, to an op of the same device that an edge may join."""
        order, devices = self.low_order, self.step.layout.devices
        fixed, places = (
            (last, range(first, -1, -1)) if backwards else (first, range(last, first, -1))
        )
        if not self.joinable[order[fixed]]:
            return
        for place in places:
            op = order[place]
            if self.joinable[op] and devices[op] == devices[order[fixed]]:
                pair = (op, order[fixed]) if backwards else (order[fixed], op)
                names = self.step.layout.names
                yield names[pair[0]], names[pair[1]]
                return

    def _bytes_along(self, lifetimes: Sequence[Lifetime]) -> dict[str, list[int]]:
        """What is in use on every device at every moment."""
        count = len(self.graph.ops)
        changes = {name: [0] * (count + 1) for name in self.step.device_names}
        for lifetime in lifetimes:
            changes[lifetime.device][lifetime.first] += lifetime.bytes
            changes[lifetime.device][lifetime.last + 1] -= lifetime.bytes
        return {
            name: [self.step.resident_bytes(name) + size for size in accumulate(change[:-1])]
            for name, change in changes.items()
        }


def excess_bytes(peaks: Mapping[str, PeakRange], goal: Mapping[str, int]) -> int:
    """By how much the high peaks are over the goal, in all, and the expected ones once more:
    none exactly if all high peaks are within it."""
    return sum(
        max(size - goal[name], 0)
        for name, peak in peaks.items()
        for size in (peak.high_bytes, peak.expected_bytes)
    )


def _worst_moments(in_use: Sequence[int], goal: int) -> list[int]:
    """The moments over the goal at which most is in use, one of each stretch above it."""
    stretches: list[int] = []
    above = False
    for moment, size in enumerate(in_use):
        if size <= goal:
            above = False
        elif not above:
            stretches.append(moment)
            above = True
        elif size > in_use[stretches[-1]]:
            stretches[-1] = moment
    return sorted(stretches, key=lambda moment: -in_use[moment])[: _SCHEDULE.moments_per_order]
