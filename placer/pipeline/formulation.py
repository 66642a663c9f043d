"""From a graph, its costs, a cluster and constraints to the bare placement problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cost_models.devices import Cluster
from cost_models.op_cost import OpCost
from cost_models.roofline import op_seconds
from placer.graph.op_graph import Op, OpGraph
from placer.graph.op_types import ENTERS
from placer.prediction.memory.live_moments import moment_finder, working_set_bytes
from placer.prediction.memory.timelines import StepMemory, predict_memory
from placer.prediction.metrics import MemoryTimeline
from placer.prediction.orders.execution_orders import (
    executor_orders,
    peaks_along,
    ranges_of_peaks,
    uses_accelerator,
)
from placer.prediction.orders.possible_lifetimes import PossibleLifetimes, find_possible_lifetimes
from placer.prediction.orders.possible_steps import PossibleSteps
from placer.problem.constraints import Constraints
from placer.problem.placement_problem import PlacementProblem, ProblemTensor
from placer.problem.requests import confine
from placer.solving.caps.reservation import DevicePeak

STRETCH_COUNT = 16
"""The fullest moment of each stretch of the step becomes a row of every device's cap."""

WIDE_SHARE = 0.4
WIDEST_COUNT = 48
"""So do the moments of this many ops, if they take that share of the smallest cap alone."""


def formulate(
    graph: OpGraph,
    costs: Mapping[str, OpCost],
    cluster: Cluster,
    constraints: Constraints,
    *,
    objective: str = "transfer",
    spill: str = "auto",
) -> PlacementProblem:
    """The problem with a few moments of the step at which memory is fullest.

    Ops and devices are numbered in the order of ``graph.ops`` and ``cluster.devices``.
    """
    names = tuple(graph.ops)
    number = {name: index for index, name in enumerate(names)}
    device_names = [device.name for device in cluster.devices]
    host = device_names.index(cluster.host.name)
    capacity = tuple(device.usable_bytes for device in cluster.devices)
    group, allowed, spillable = _group_arrays(constraints, number, device_names)
    widths = working_set_bytes(graph, costs)
    loops = any(op.op_type in ENTERS for op in graph.ops.values())
    certain = tuple(0 if loops else _certain_width(graph.ops[name], widths) for name in names)
    allowed, homeless = _wide_enough(
        allowed,
        group,
        certain,
        capacity,
        host if spill == "auto" else None,
        spillable,
    )
    confinement = confine(
        constraints, number, {name: index for index, name in enumerate(device_names)}
    )
    return PlacementProblem(
        op_names=names,
        device_names=tuple(device_names),
        host=host,
        resident_bytes=tuple(costs[name].persistent_bytes for name in names),
        temporary_bytes=tuple(costs[name].temporary_bytes for name in names),
        seconds=_seconds(names, costs, cluster),
        group=group,
        allowed=allowed,
        spillable=spillable,
        tensors=_tensors(graph, costs, number),
        control_edges=tuple(
            (number[before], number[op.name])
            for op in graph.ops.values()
            for before in op.control_inputs
        ),
        capacity_bytes=capacity,
        transient_bytes=(0,) * len(device_names),
        live_bytes=(*homeless, *_moments(graph, costs, cluster, widths, number)),
        bandwidth=tuple(
            tuple(cluster.link(a, b).bandwidth for b in device_names) for a in device_names
        ),
        latency=tuple(
            tuple(cluster.link(a, b).latency for b in device_names) for a in device_names
        ),
        objective=objective,
        spill=spill,
        parallel_ops=tuple(device.parallel_ops for device in cluster.devices),
        requests=confinement.requests,
        unconfined={
            op: devices
            for op, devices in enumerate(confinement.unconfined)
            if devices != allowed[op]
        },
        colocation=confinement.colocation,
        working_set_bytes=certain,
    )


class StepPeaks:
    """The peaks of placements along the orders that a step may run in."""

    def __init__(
        self, graph: OpGraph, costs: Mapping[str, OpCost], problem: PlacementProblem
    ) -> None:
        self.graph, self.costs, self.problem = graph, costs, problem
        self.number = {name: index for index, name in enumerate(problem.op_names)}
        self.host = problem.device_names[problem.host]
        accelerated = uses_accelerator(problem.device_names)
        self.steps = PossibleSteps(graph, costs, accelerated=accelerated)
        # A moment is one of the ops that are placed: of a loop as a whole.
        laid_out = bool(self.steps.owner)
        self.orders = (
            executor_orders(graph, accelerated=accelerated) if laid_out else self.steps.orders
        )
        self.moments_along: dict[int, Callable[[str], dict[str, int]]] = {}

    def __call__(self, device_of: Sequence[int]) -> tuple[DevicePeak, ...]:
        """The highest predicted peak of every device, given one device number per op, with the
        moment of the peak where that exceeds the device's cap."""
        names, placement = self.problem.device_names, self.problem.placement(device_of)
        step = self.steps.memory(placement, names, self.host)
        along = peaks_along(step, self.steps.orders)
        ranges = ranges_of_peaks(step, along)
        if self.steps.owner:
            step = StepMemory(self.graph, self.costs, placement, names, self.host)
            along = peaks_along(step, self.orders)
        return tuple(
            DevicePeak(
                peak_bytes=ranges[name].high_bytes,
                moment=self._moment(name, step, along) if ranges[name].high_bytes > cap else {},
            )
            for name, cap in zip(names, self.problem.capacity_bytes, strict=True)
        )

    def possible_lifetimes(self) -> PossibleLifetimes:
        """The buffers of the step along the same orders, for placements that are not known yet."""
        names = self.problem.device_names
        allowed = {
            name: [names[device] for device in devices]
            for name, devices in zip(self.problem.op_names, self.problem.allowed, strict=True)
        }
        return find_possible_lifetimes(self.steps, allowed, self.host)

    def _moment(
        self, name: str, step: StepMemory, along: Sequence[Mapping[str, int]]
    ) -> dict[int, int]:
        """What is needed when the device called ``name`` peaks, along the worst order for it."""
        worst = max(range(len(self.orders)), key=lambda index: along[index][name])
        if worst not in self.moments_along:
            self.moments_along[worst] = moment_finder(self.graph, self.costs, self.orders[worst])
        at_op = step.timelines(self.orders[worst])[name].peak_op
        return _numbered(self.moments_along[worst](at_op), self.number)


def _certain_width(op: Op, widths: Mapping[str, int]) -> int:
    """What the device of ``op`` holds whatever the order: 0 for functional loops and branches,
    whose bodies are laid out op by op, as v1 loops are."""
    return 0 if op.bodies else widths[op.name]


def _wide_enough(
    allowed: Sequence[tuple[int, ...]],
    group: Sequence[int],
    widths: Sequence[int],
    capacity: Sequence[int],
    spill_host: int | None,
    spillable: Sequence[bool],
) -> tuple[tuple[tuple[int, ...], ...], list[dict[int, int]]]:
    """The devices of each op that can hold what the widest op of its group needs at once, wherever
    its inputs come from; and, for each group that no device can run, that op as a moment which no
    device can hold, so that the problem is infeasible and its conflict names the group.

    A group that only the host can run goes there if it may spill.
    """
    widest: dict[int, int] = {}
    for op, number in enumerate(group):
        if widths[op] > widths[widest.setdefault(number, op)]:
            widest[number] = op
    found: list[tuple[int, ...]] = []
    homeless: dict[int, dict[int, int]] = {}
    for op, devices in enumerate(allowed):
        most = widest[group[op]]
        fitting = tuple(d for d in devices if capacity[d] >= widths[most])
        if not fitting and devices:
            if spill_host is not None and spillable[op] and capacity[spill_host] >= widths[most]:
                fitting = (spill_host,)
            else:
                fitting = devices
                homeless[most] = {most: widths[most]}
        found.append(fitting)
    return tuple(found), list(homeless.values())


def _moments(
    graph: OpGraph,
    costs: Mapping[str, OpCost],
    cluster: Cluster,
    widths: Mapping[str, int],
    number: Mapping[str, int],
) -> tuple[dict[int, int], ...]:
    """The moments that could exceed some cap: the fullest of every stretch of the step, and those
    of the ops that read and write the most at once.

    A moment at which everything together fits the smallest device restricts nothing.
    """
    host = cluster.host.name
    together = dict.fromkeys(graph.ops, host)
    names = [device.name for device in cluster.devices]
    order = executor_orders(graph, accelerated=uses_accelerator(names))[0]
    timeline = predict_memory(graph, costs, together, (host,), host, order)[host]
    smallest = min(device.usable_bytes for device in cluster.devices)
    in_use = dict(zip(timeline.order, timeline.bytes, strict=True))
    chosen = dict.fromkeys((*_fullest(timeline), *_widest_ops(widths, smallest)))
    find_moment = moment_finder(graph, costs, order)
    return tuple(
        _numbered(find_moment(op), number)
        for op in sorted(chosen, key=lambda op: -in_use[op])
        if in_use[op] > smallest
    )


def _fullest(timeline: MemoryTimeline) -> list[str]:
    """The op at which memory is fullest, for each stretch of the step."""
    count = len(timeline.order)
    size = max(1, -(-count // STRETCH_COUNT))
    stretches = [range(start, min(start + size, count)) for start in range(0, count, size)]
    return [timeline.order[max(s, key=timeline.bytes.__getitem__)] for s in stretches]


def _widest_ops(widths: Mapping[str, int], smallest: int) -> list[str]:
    """The ops whose inputs, outputs and workspace take a good part of the smallest device."""
    wide = [name for name, size in widths.items() if size > WIDE_SHARE * smallest]
    return sorted(wide, key=lambda name: -widths[name])[:WIDEST_COUNT]


def _numbered(moment: Mapping[str, int], number: Mapping[str, int]) -> dict[int, int]:
    return {number[name]: size for name, size in moment.items() if size}


def _group_arrays(
    constraints: Constraints, number: Mapping[str, int], device_names: Sequence[str]
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...], tuple[bool, ...]]:
    group = [0] * len(number)
    allowed: list[tuple[int, ...]] = [()] * len(number)
    spillable = [False] * len(number)
    device_number = {name: index for index, name in enumerate(device_names)}
    for index, members in enumerate(constraints.groups):
        devices = tuple(device_number[name] for name in constraints.group_devices[index])
        for name in members.ops:
            op = number[name]
            group[op], allowed[op] = index, devices
            spillable[op] = constraints.spillable[index]
    return tuple(group), tuple(allowed), tuple(spillable)


def _tensors(
    graph: OpGraph, costs: Mapping[str, OpCost], number: Mapping[str, int]
) -> tuple[ProblemTensor, ...]:
    """Tensors that some op reads; one without a size (strings, variants) weighs nothing."""
    return tuple(
        ProblemTensor(
            producer=number[tensor.producer],
            consumers=tuple(number[name] for name in tensor.consumers),
            bytes=costs[tensor.producer].output_bytes[tensor.index] or 0,
        )
        for tensor in graph.tensors.values()
        if tensor.consumers
    )


def _seconds(
    names: Sequence[str], costs: Mapping[str, OpCost], cluster: Cluster
) -> tuple[tuple[float, ...], ...]:
    return tuple(
        tuple(op_seconds(costs[name], device) for device in cluster.devices) for name in names
    )
