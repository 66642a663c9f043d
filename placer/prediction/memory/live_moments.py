"""What is needed in memory while one op runs, wherever that turns out to be.

Statements about placements that are not known yet: rows of a placement problem, bounds, widths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from cost_models.op_cost import OpCost
from placer.graph.op_graph import OpGraph
from placer.graph.op_types import MERGES, READ_VARIABLE
from placer.prediction.memory.buffers import Lifetime, peak_without_feeds
from placer.prediction.memory.lifetimes import find_lifetimes
from placer.prediction.memory.timelines import StepMemory, checked_order
from placer.prediction.step.buffer_sharing import Sharing, overwritten_inputs, sharing_of

_SINGLE_DEVICE = "CPU:0"


def moment_finder(
    graph: OpGraph, costs: Mapping[str, OpCost], order: Sequence[str] | None = None
) -> Callable[[str], dict[str, int]]:
    """For any op of the graph, the bytes that each op needs in its device's memory while that one
    runs, resident ones aside.

    A buffer counts at the running op if that writes or reads it (and could not write over it), else
    at the last op that reads what was written into it by then: wherever that op is placed, a copy
    is there, sent as soon as it is produced.  A buffer that is fetched, or that nobody reads,
    counts at the op that wrote it, the temporary bytes at the running op.  So, whatever the
    placement, the sum over the ops of a device is not above the prediction for that device at this
    moment, and with all ops on one device it is the prediction (slices that keep a larger buffer
    aside).
    """
    order = checked_order(graph, order)
    position = {name: index for index, name in enumerate(order)}
    lifetimes = _single_device_lifetimes(graph, costs, order, with_reads=True)

    def find_moment(at_op: str) -> dict[str, int]:
        info = graph.ops[at_op].info
        overwrites = any(overwritten_inputs(info, index) for index in range(len(info.outputs)))
        return _needed_bytes(lifetimes, order, position[at_op], prefer_reader=not overwrites)

    return find_moment


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


class WorkingSet(NamedTuple):
    """What a device holds at least while an op runs there, in bytes; ``lasting_bytes`` of it are
    there all the time."""

    bytes: int
    lasting_bytes: int


def working_set_bytes(graph: OpGraph, costs: Mapping[str, OpCost]) -> dict[str, int]:
    """The bytes of :func:`working_sets`."""
    return {name: found.bytes for name, found in working_sets(graph, costs).items()}


def working_sets(graph: OpGraph, costs: Mapping[str, OpCost]) -> dict[str, WorkingSet]:
    """Per op, the least bytes that the device it runs on must hold at once, wherever its inputs
    come from: inputs, outputs and workspace.

    What may be views of one buffer (all reads of one variable too) counts once, an output that may
    be a view of an input or written over it not at all.  Inputs that the GPU kernel keeps on the
    host are left out, so are the outputs of functional control flow (they may be its inputs).
    """
    sharing = graph.ask_once(sharing_of)
    roots = _buffer_roots(graph, sharing)
    sizes = {
        tensor: size or 0
        for name, tensors in graph.output_names.items()
        for tensor, size in zip(tensors, costs[name].output_bytes, strict=True)
    }
    kept = {name for name in graph.ops if costs[name].persistent_bytes}
    lasting_tensors = frozenset(chain.from_iterable(graph.output_names[name] for name in kept))
    needed = {}
    found_of = zip(graph.ops.values(), sharing, graph.gpu_kernels.values(), strict=True)
    for op, found, kernel in found_of:
        inputs: Sequence[str] = op.inputs
        if kernel is not None and kernel.host_inputs:
            inputs = [name for n, name in enumerate(inputs) if n not in kernel.host_inputs]
        read: dict[str, int] = {}
        for name in inputs:
            root, size = roots.get(name, name), sizes[name]
            if size > read.get(root, 0):
                read[root] = size
        lasting = sum([size for name, size in read.items() if name in lasting_tensors])
        if op.op_type in MERGES:  # one of its inputs is alive
            most = max(read.values(), default=0)
            needed[op.name] = WorkingSet(most, min(most, lasting))
            continue
        total = sum(read.values()) + costs[op.name].temporary_bytes
        if not op.bodies:
            for name, overwritten in zip(
                graph.output_names[op.name], found.overwritten, strict=True
            ):
                if not overwritten and roots.get(name, name) == name:
                    total += sizes[name]
        needed[op.name] = WorkingSet(total, total if op.name in kept else lasting)
    return needed


def _buffer_roots(graph: OpGraph, sharing: Iterable[Sharing]) -> dict[str, str]:
    """For every tensor that may be a view of another one's buffer, that one."""
    roots: dict[str, str] = {}
    for op, found in zip(graph.ops.values(), sharing, strict=True):
        shares = (0,) if op.op_type == READ_VARIABLE else found.shared
        for name, shared in zip(graph.output_names[op.name], shares, strict=True):
            if shared is not None and shared < len(op.inputs):
                source = op.inputs[shared]
                roots[name] = roots.get(source, source)
    return roots


def activation_peak(graph: OpGraph, costs: Mapping[str, OpCost]) -> int:
    """The most bytes that the ops of ``graph`` hold at once on one device, in graph order.

    Resident bytes and fed values are left out.
    """
    lifetimes = _single_device_lifetimes(graph, costs, tuple(graph.ops))
    return peak_without_feeds(lifetimes, len(graph.ops))


def _single_device_lifetimes(
    graph: OpGraph, costs: Mapping[str, OpCost], order: Sequence[str], *, with_reads: bool = False
) -> list[Lifetime]:
    together = dict.fromkeys(graph.ops, _SINGLE_DEVICE)
    step = StepMemory(graph, costs, together, (_SINGLE_DEVICE,), _SINGLE_DEVICE)
    return find_lifetimes(step.layout.least(), step.numbers(order), with_reads=with_reads)
