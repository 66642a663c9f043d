"""The memory needed while one op runs, wherever that turns out to be.

Statements about placements that are not known yet: rows of a placement problem, bounds, widths.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, islice
from typing import NamedTuple

from cost_models.op_cost import OpCost
from cost_models.op_info import ask_once
from placer.graph.buffer_sharing import overwritten_inputs, sharing_of
from placer.graph.op_graph import OpGraph
from placer.graph.op_types import MERGES, READ_VARIABLE
from placer.prediction.memory.buffers import Lifetime, peak_without_feeds
from placer.prediction.memory.lifetimes import find_lifetimes
from placer.prediction.memory.timelines import StepMemory, checked_order

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
    """The least bytes that a device holds while an op runs there; ``lasting_bytes`` of it are there
    all the time."""

    bytes: int
    lasting_bytes: int


def working_sets(graph: OpGraph, costs: Mapping[str, OpCost]) -> dict[str, WorkingSet]:
    """Per op, the least bytes that the device it runs on must hold at once, wherever its inputs
    come from: inputs, outputs and workspace.

    What may be views of one buffer (all reads of one variable too) counts once, an output that may
    be a view of an input or written over it not at all.  Inputs that the GPU kernel keeps on the
    host are left out, so are the outputs of functional control flow (they may be its inputs).
    """
    sets = _WorkingSets(graph, costs)
    return {name: sets.of(number) for number, name in enumerate(graph.ops)}


def widest_op(graph: OpGraph, costs: Mapping[str, OpCost]) -> tuple[str, int]:
    """The first op of those with the largest of the :func:`working_sets`, and its bytes; ``""`` and
    0 without ops."""
    sets = _WorkingSets(graph, costs)
    most = sets.most_bytes()
    widest, first = 0, 0
    for number in sorted(range(len(most)), key=most.__getitem__, reverse=True):
        if most[number] < widest:
            break
        found = sets.of(number).bytes
        if found > widest or (found == widest and number < first):
            widest, first = found, number
    return next(islice(graph.ops, first, None), ""), widest


class _WorkingSets:
    """The working sets of the ops by number; lists are by op or, ``sizes`` and ``roots`` (where the
    buffer of a view begins), by tensor."""

    def __init__(self, graph: OpGraph, costs: Mapping[str, OpCost]) -> None:
        outputs = graph.output_names.values()
        self.ops = tuple(graph.ops.values())
        self.costs = [costs[name] for name in graph.ops]
        self.sharing = graph.ask_once(sharing_of)
        self.kernels = tuple(graph.gpu_kernels.values())
        self.inputs, self.producers = graph.input_numbers, graph.tensor_producers
        self.first_output = [*accumulate(map(len, outputs), initial=0)]
        self.sizes = [
            size or 0
            for cost, tensors in zip(self.costs, outputs, strict=True)
            for size, _ in zip(cost.output_bytes, tensors, strict=True)
        ]
        self.roots = self._buffer_roots()

    def _buffer_roots(self) -> list[int]:
        """For every tensor that may be a view of another one's buffer that one, else itself."""
        roots = [*range(len(self.sizes))]
        viewing = {id(found) for found in self.sharing if any(s is not None for s in found.shared)}
        for number, (op, found) in enumerate(zip(self.ops, self.sharing, strict=True)):
            is_read = op.info.op == READ_VARIABLE
            if not is_read and id(found) not in viewing:
                continue
            inputs = self.inputs[number]
            for output, shared in enumerate((0,) if is_read else found.shared):
                if shared is not None and shared < len(inputs):
                    roots[self.first_output[number] + output] = roots[inputs[shared]]
        return roots

    def most_bytes(self) -> list[int]:
        """Returns the most bytes that the working set of each op can have."""
        sizes = self.sizes
        own = ask_once(
            lambda c: c.temporary_bytes + sum([s or 0 for s in c.output_bytes]), self.costs
        )
        return [
            size + sum([sizes[tensor] for tensor in inputs])
            for size, inputs in zip(own, self.inputs, strict=True)
        ]

    def of(self, number: int) -> WorkingSet:
        """The working set of op ``number``."""
        op, cost, kernel = self.ops[number], self.costs[number], self.kernels[number]
        inputs = self.inputs[number]
        if kernel is not None and kernel.host_inputs:
            inputs = [tensor for n, tensor in enumerate(inputs) if n not in kernel.host_inputs]
        read: dict[int, int] = {}
        for tensor in inputs:
            root, size = self.roots[tensor], self.sizes[tensor]
            if size > read.get(root, 0):
                read[root] = size
        lasts = [root for root in read if self.costs[self.producers[root]].persistent_bytes]
        lasting = sum([read[root] for root in lasts])
        if op.op_type in MERGES:  # one of its inputs is alive
            most = max(read.values(), default=0)
            return WorkingSet(most, min(most, lasting))
        total = sum(read.values()) + cost.temporary_bytes
        if not op.bodies:
            for output, overwritten in enumerate(self.sharing[number].overwritten):
                tensor = self.first_output[number] + output
                if not overwritten and self.roots[tensor] == tensor:
                    total += self.sizes[tensor]
        return WorkingSet(total, total if cost.persistent_bytes else lasting)


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
