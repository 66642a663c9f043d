"""The moments of a step that could exceed a cap."""

from collections.abc import Mapping, Sequence

from cost_models.devices import Cluster
from cost_models.gpu_convolutions import RED_ZONES_BYTES
from cost_models.op_cost import OpCost
from placer.graph.op_graph import OpGraph
from placer.prediction.memory.live_moments import moment_finder
from placer.prediction.memory.timelines import predict_memory
from placer.prediction.orders.execution_orders import (
    executor_orders,
    uses_accelerator,
)
from placer.prediction.step.routes import is_cpu


def find_moments(
    graph: OpGraph,
    costs: Mapping[str, OpCost],
    cluster: Cluster,
    widths: Mapping[str, int],
    number: Mapping[str, int],
) -> tuple[dict[int, int], ...]:
    """The moments that could exceed some cap: the fullest of every stretch of the step, and those
    of the ops that read and write the most at once.

    A moment at which everything together fits the smallest device restricts nothing.  Where no CPU
    is that small, a convolution takes the red zones as well with which a GPU tunes it.
    """
    host = cluster.host.name
    together = dict.fromkeys(graph.ops, host)
    names = [device.name for device in cluster.devices]
    order = executor_orders(graph, accelerated=uses_accelerator(names))[0]
    timeline = predict_memory(graph, costs, together, (host,), host, order)[host]
    smallest = min(device.usable_bytes for device in cluster.devices)
    cpus = [device.usable_bytes for device in cluster.devices if is_cpu(device.name)]
    tuned = _tuned_first(graph, costs, order)
    if min(cpus, default=0) < max(timeline.bytes, default=0) + RED_ZONES_BYTES:
        tuned = set()
    in_use = {
        op: size + RED_ZONES_BYTES * (op in tuned)
        for op, size in zip(timeline.order, timeline.bytes, strict=True)
    }
    chosen = dict.fromkeys((*_fullest(in_use), *_widest_ops(widths, smallest)))
    find_moment = moment_finder(graph, costs, order)
    rows = []
    for op in sorted(chosen, key=lambda op: -in_use[op]):
        if in_use[op] > smallest:
            row = {number[name]: size for name, size in find_moment(op).items() if size}
            if op in tuned:
                row[number[op]] = row.get(number[op], 0) + RED_ZONES_BYTES
            rows.append(row)
    return tuple(rows)


def _tuned_first(graph: OpGraph, costs: Mapping[str, OpCost], order: Sequence[str]) -> set[str]:
    """The convolutions that a GPU tunes wherever others are: the first of each shape."""
    tuned: dict[int, str] = {}
    for name in order:
        if costs[name].tuned_bytes:
            tuned.setdefault(id(graph.ops[name].info), name)
    return set(tuned.values())


def _fullest(in_use: Mapping[str, int]) -> list[str]:
    """The op at which memory is fullest, for each stretch of the step."""
    order = [*in_use]
    # the fullest moment of each stretch becomes a row of every device's cap
    size = max(1, -(-len(order) // 16))
    stretches = [order[start : start + size] for start in range(0, len(order), size)]
    return [max(stretch, key=in_use.__getitem__) for stretch in stretches]


def _widest_ops(widths: Mapping[str, int], smallest: int) -> list[str]:
    """The ops whose inputs, outputs and workspace take a good part of the smallest device."""
    wide = [name for name, size in widths.items() if size > 0.4 * smallest]
    return sorted(wide, key=lambda name: -widths[name])[:48]
