"""Memory of every device over one step.

A simulation of TensorFlow's buffers along one order of the ops.  With the order and the graph
that really ran it agrees with TensorFlow's own allocation records; for another order it is the
peak of that order.  Beyond its reach are what a kernel allocates past the allocator (packing
buffers of Eigen, workspaces of cuDNN), and fragmentation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate

from cost_models.op_cost import OpCost
from placer.errors import UsageError
from placer.graph.op_graph import Op, OpGraph
from placer.prediction.buffer_sharing import overwritten_inputs, shared_input
from placer.prediction.lifetimes import Lifetime, find_lifetimes
from placer.prediction.metrics import LiveBuffer, MemoryTimeline
from placer.prediction.routes import Place, Routes, find_routes, host_of

_SINGLE_DEVICE = "CPU:0"


def predict_memory(
    graph: OpGraph,
    costs: Mapping[str, OpCost],
    placement: Mapping[str, str],
    device_names: Sequence[str],
    host: str = "CPU:0",
    order: Sequence[str] | None = None,
) -> dict[str, MemoryTimeline]:
    """The memory of every device of ``device_names`` in bytes, op by op of ``order``.

    All devices run along the one ``order`` (every op of the graph once, producers first; the
    order of the graph by default).  A tensor arrives elsewhere when its producer runs.  Host
    memory of a GPU belongs to the CPU of its task.  Fed values live on the host for the whole
    step, fetched ones until its end.  Tensors without a size count zero bytes.

    Raises :class:`UsageError` if ``order`` or ``placement`` does not fit the graph.
    """
    order = _checked_order(graph, order)
    routes = find_routes(graph, placement, host)
    memory_of = _memories(routes, device_names, host)
    resident = _resident_bytes(graph, costs, routes, memory_of)
    lifetimes: dict[str, list[Lifetime]] = {}
    for lifetime in find_lifetimes(graph, costs, routes, memory_of, order, host):
        lifetimes.setdefault(lifetime.device, []).append(lifetime)
    return {
        name: _timeline(name, graph, order, lifetimes.get(name, ()), resident.get(name, {}))
        for name in dict.fromkeys((*device_names, *resident, *lifetimes))
    }


def moment_finder(
    graph: OpGraph, costs: Mapping[str, OpCost], order: Sequence[str] | None = None
) -> Callable[[str], dict[str, int]]:
    """:func:`live_moment` for any op of the graph, with the simulation done once."""
    order = _checked_order(graph, order)
    position = {name: index for index, name in enumerate(order)}
    lifetimes = _single_device_lifetimes(graph, costs, order)

    def find_moment(at_op: str) -> dict[str, int]:
        info = graph.ops[at_op].info
        overwrites = any(overwritten_inputs(info, index) for index in range(len(info.outputs)))
        return _needed_bytes(lifetimes, order, position[at_op], prefer_reader=not overwrites)

    return find_moment


def live_moment(
    graph: OpGraph, costs: Mapping[str, OpCost], at_op: str, order: Sequence[str] | None = None
) -> dict[str, int]:
    """Bytes that each op needs in its device's memory while ``at_op`` runs, resident ones aside.

    A buffer counts at ``at_op`` if that writes or reads it (and could not write over it), else at
    the last op that reads what was written into it by then: wherever that op is placed, a copy is
    there, sent as soon as it is produced.  A buffer that is fetched, or that nobody reads, counts
    at the op that wrote it, the temporary bytes at ``at_op``.  So, whatever the placement, the sum
    over the ops of a device is not above the prediction for that device at this moment, and with
    all ops on one device it is the prediction (slices that keep a larger
    buffer aside).
    """
    return moment_finder(graph, costs, order)(at_op)


def _needed_bytes(
    lifetimes: Iterable[Lifetime], order: Sequence[str], moment: int, *, prefer_reader: bool
) -> dict[str, int]:
    alive: dict[str, int] = {}
    for lifetime in lifetimes:
        if lifetime.first <= moment <= lifetime.last:
            reads = [read for read in lifetime.reads if read.first <= moment <= read.last]
            if lifetime.kind == "feed" and not prefer_reader:
                reads = [read for read in reads if read.last > moment]
            now = [read for read in reads if prefer_reader and read.holder == moment == read.last]
            written = lifetime.first == moment and lifetime.owner == order[moment]
            last = None if written else max(now or reads, key=lambda r: r.last, default=None)
            holder = lifetime.owner if last is None else order[last.holder]
            size = lifetime.bytes if last is None else min(last.bytes, lifetime.bytes)
            alive[holder] = alive.get(holder, 0) + size
    return alive


def working_set_bytes(graph: OpGraph, costs: Mapping[str, OpCost]) -> dict[str, int]:
    """Per op, the bytes of its inputs, outputs and workspace: what the device it runs on must hold
    at once.  An output that may be a view of an input, or written over it, counts once."""
    return {op.name: _working_set(op, graph, costs) for op in graph.ops.values()}


def _working_set(op: Op, graph: OpGraph, costs: Mapping[str, OpCost]) -> int:
    read = {
        name: costs[tensor.producer].output_bytes[tensor.index] or 0
        for name in op.inputs
        for tensor in (graph.tensors[name],)
    }
    written = [
        0
        if overwritten_inputs(op.info, index) or shared_input(op.info, index) is not None
        else size or 0
        for index, size in enumerate(costs[op.name].output_bytes)
    ]
    return sum(read.values()) + sum(written) + costs[op.name].temporary_bytes


def activation_peak(graph: OpGraph, costs: Mapping[str, OpCost]) -> int:
    """The most bytes that the ops of ``graph`` hold at once on one device, in graph order.

    Resident bytes and fed values are left out.
    """
    change = [0] * (len(graph.ops) + 1)
    for lifetime in _single_device_lifetimes(graph, costs, tuple(graph.ops)):
        if lifetime.kind != "feed":
            change[lifetime.first] += lifetime.bytes
            change[lifetime.last + 1] -= lifetime.bytes
    return max(accumulate(change))


def _single_device_lifetimes(
    graph: OpGraph, costs: Mapping[str, OpCost], order: Sequence[str]
) -> list[Lifetime]:
    routes = find_routes(graph, dict.fromkeys(graph.ops, _SINGLE_DEVICE), _SINGLE_DEVICE)
    memory_of = {(_SINGLE_DEVICE, "host"): _SINGLE_DEVICE}
    return find_lifetimes(graph, costs, routes, memory_of, order, _SINGLE_DEVICE)


def _checked_order(graph: OpGraph, order: Sequence[str] | None) -> tuple[str, ...]:
    if order is None:
        return tuple(graph.ops)
    if len(order) != len(graph.ops) or set(order) != set(graph.ops):
        raise UsageError(
            f"an order of {len(order):,} ops does not fit a graph of {len(graph.ops):,}: "
            "it must hold every op once"
        )
    return tuple(order)


def _memories(routes: Routes, names: Iterable[str], host: str) -> dict[Place, str]:
    """The device whose memory each place is in; ``host`` stands in for hosts without a name."""
    known = {*names, *routes.device_of.values()}
    return {
        (device, memory): place if place in known else host
        for device in {host, *routes.device_of.values()}
        for memory, place in (("device", device), ("host", host_of(device)))
    }


def _resident_bytes(
    graph: OpGraph,
    costs: Mapping[str, OpCost],
    routes: Routes,
    memory_of: Mapping[Place, str],
) -> dict[str, dict[str, int]]:
    """Resident bytes of each op by device; a constant lies where its output does."""
    resident: dict[str, dict[str, int]] = {}
    for op in graph.ops.values():
        size = costs[op.name].persistent_bytes
        if size:
            constant = op.op_type == "Const"
            place = (
                routes.home[f"{op.name}:0"] if constant else (routes.device_of[op.name], "device")
            )
            resident.setdefault(memory_of[place], {})[op.name] = size
    return resident


def _timeline(
    device: str,
    graph: OpGraph,
    order: tuple[str, ...],
    lifetimes: Iterable[Lifetime],
    resident: Mapping[str, int],
) -> MemoryTimeline:
    """The sum of all buffers of one device, moment by moment."""
    resident_bytes = sum(resident.values())
    change = [0] * (len(order) + 1)
    for lifetime in lifetimes:
        change[lifetime.first] += lifetime.bytes
        change[lifetime.last + 1] -= lifetime.bytes
    in_use = tuple(accumulate(change[:-1], initial=resident_bytes))[1:]
    peak_bytes = max(in_use, default=resident_bytes)
    moment = in_use.index(peak_bytes) if in_use else -1
    live = [
        *_resident_buffers(graph, resident),
        *(
            LiveBuffer(op=lifetime.owner, bytes=lifetime.bytes, kind=lifetime.kind)
            for lifetime in lifetimes
            if lifetime.first <= moment <= lifetime.last
        ),
    ]
    return MemoryTimeline(
        device=device,
        resident_bytes=resident_bytes,
        peak_bytes=peak_bytes,
        peak_op=order[moment] if in_use else "",
        live_at_peak=tuple(sorted(live, key=lambda buffer: (-buffer.bytes, buffer.op))),
        order=order,
        bytes=in_use,
    )


def _resident_buffers(graph: OpGraph, resident: Mapping[str, int]) -> list[LiveBuffer]:
    handles = {variable.handle for variable in graph.variables}
    return [
        LiveBuffer(op=name, bytes=size, kind="weights" if name in handles else "constant")
        for name, size in resident.items()
    ]
