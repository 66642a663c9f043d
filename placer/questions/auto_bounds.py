"""The work of the devices of a way, from which the bounds of its step follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cost_models.devices import Cluster, DeviceProperties
from cost_models.op_info import Shape
from cost_models.roofline import op_seconds
from placer.graph.op_graph import Op, OpGraph
from placer.graph.passes.differentiation import is_gradient_name
from placer.graph.passes.roles import ops_before, ops_behind
from placer.pipeline.workload import Workload
from placer.questions.auto_programs import Built


def kind_of(cluster: Cluster, name: str) -> str:
    """Returns the properties of a device as text, without its name."""
    return repr(replace(cluster.device(name), name=""))


def work_of_part(
    built: Built, piece: Workload, worker: str
) -> tuple[dict[str, float], dict[str, float]]:
    """The busy seconds of a worker by op: for one part of a batch, and for what the whole batch
    needs once; ``piece`` is the program with the examples of a part."""
    device = built.workload.cluster.device(worker)
    whole = built.workload.graph.ops
    of_parts = _of_each_part(piece.graph, whole)
    part, rest = dict[str, float](), dict[str, float]()
    for name in piece.graph.ops:
        if name in whole and built.plan.placement[name] == worker:
            loads = part if name in of_parts else rest
            loads[name] = op_seconds(piece.costs[name], device) / device.parallel_ops
    return part, rest


def _of_each_part(graph: OpGraph, whole: Mapping[str, Op]) -> set[str]:
    """The ops that every part of a batch has: those whose sizes follow its examples, and those
    between them and the last gradient.  What updates variables may wait for the sum of parts."""
    sized = {
        name
        for name, op in graph.ops.items()
        if name in whole and _shapes(op) != _shapes(whole[name])
    }
    gradients = [name for name in graph.ops if is_gradient_name(name)]
    return sized | ops_before(gradients, graph).intersection(ops_behind(sized, graph))


def shares_of(built: Built, worker: str, device: DeviceProperties) -> dict[str, float]:
    """The share (0 to 1) that each op of ``worker`` has in its busy seconds, as on ``device``."""
    costs = built.workload.costs
    ops = [op for op, name in built.plan.placement.items() if name == worker]
    seconds = {op: op_seconds(costs[op], device) for op in ops}
    total = sum(seconds.values())
    return {op: each / total for op, each in seconds.items()} if total else {"": 1.0}


def least_sum(loads: Sequence[Mapping[str, float]]) -> float:
    """The sum over the ops, each where it takes the least."""
    return sum(min(load.get(op, 0.0) for load in loads) for op in loads[0])


def work_elsewhere(built: Built, worker: str, device: DeviceProperties) -> float:
    """The busy seconds in which ``device`` would do what a worker does, never quite zero."""
    costs, placement = built.workload.costs, built.plan.placement
    busy = sum(op_seconds(costs[op], device) for op, name in placement.items() if name == worker)
    return max(busy / device.parallel_ops, 1e-12)


def _shapes(op: Op) -> list[Shape]:
    return [tensor.shape for tensor in (*op.info.inputs, *op.info.outputs)]


def work_of(built: Built, worker: str) -> float:
    """The busy seconds of a step on a worker that has all of it, never quite zero."""
    busy = next(row.busy_seconds for row in built.plan.devices if row.name == worker)
    return max((busy or 0.0) / built.workload.cluster.device(worker).parallel_ops, 1e-12)
