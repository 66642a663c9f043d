"""From a graph, its costs, a cluster and constraints to the bare placement problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cost_models.devices import Cluster
from cost_models.op_cost import OpCost
from cost_models.roofline import op_seconds
from placer.constraints import Constraints
from placer.graph.op_graph import OpGraph
from placer.prediction.memory import live_moment, predict_memory
from placer.problem import PlacementProblem, ProblemTensor
from placer.solving.tightening import DevicePeak


def formulate(
    graph: OpGraph,
    costs: Mapping[str, OpCost],
    cluster: Cluster,
    constraints: Constraints,
    *,
    objective: str = "transfer",
    spill: str = "auto",
) -> PlacementProblem:
    """The problem with one memory moment: the peak of the whole graph on a single device.

    Ops and devices are numbered in the order of ``graph.ops`` and ``cluster.devices``.
    """
    names = tuple(graph.ops)
    number = {name: index for index, name in enumerate(names)}
    device_names = [device.name for device in cluster.devices]
    host = device_names.index(cluster.host.name)
    group, allowed, spillable = _group_arrays(constraints, number, device_names)
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
        capacity_bytes=tuple(device.usable_bytes for device in cluster.devices),
        transient_bytes=(0,) * len(device_names),
        live_bytes=(_peak_moment(graph, costs, cluster.host.name, number),),
        bandwidth=tuple(
            tuple(cluster.link(a, b).bandwidth for b in device_names) for a in device_names
        ),
        latency=tuple(
            tuple(cluster.link(a, b).latency for b in device_names) for a in device_names
        ),
        objective=objective,
        spill=spill,
    )


def peak_finder(
    graph: OpGraph, costs: Mapping[str, OpCost], problem: PlacementProblem
) -> Callable[[Sequence[int]], tuple[DevicePeak, ...]]:
    """A function from device numbers per op to the predicted peak of every device."""
    number = {name: index for index, name in enumerate(problem.op_names)}
    host = problem.device_names[problem.host]

    def find_peaks(device_of: Sequence[int]) -> tuple[DevicePeak, ...]:
        placement = problem.placement(device_of)
        timelines = predict_memory(graph, costs, placement, problem.device_names, host=host)
        return tuple(
            DevicePeak(
                peak_bytes=timelines[name].peak_bytes,
                moment=_moment(graph, costs, timelines[name].peak_op, number),
            )
            for name in problem.device_names
        )

    return find_peaks


def _moment(
    graph: OpGraph, costs: Mapping[str, OpCost], op: str, number: Mapping[str, int]
) -> dict[int, int]:
    if not op:
        return {}
    return {number[name]: size for name, size in live_moment(graph, costs, op).items() if size}


def _peak_moment(
    graph: OpGraph, costs: Mapping[str, OpCost], device: str, number: Mapping[str, int]
) -> dict[int, int]:
    together = dict.fromkeys(graph.ops, device)
    timeline = predict_memory(graph, costs, together, (device,), host=device)[device]
    return _moment(graph, costs, timeline.peak_op, number)


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
