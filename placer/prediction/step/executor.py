"""TensorFlow's executor, op by op, as far as it decides the order of a step.

One thread runs one queue of ops at a time, first in, first out.  An op that becomes ready joins
that queue if its kernel is inexpensive, or if it is the last expensive one and the queue is empty;
otherwise it is put on the thread pool, whose only thread takes what came last.  A GPU kernel is
inexpensive to launch, so there everything is run first in, first out.

    source ---> c1, c2 (inexpensive)     queue  c1 c2
         '----> v1, v2 (expensive)       pool   v1 v2      then v2 and what follows, then v1

When a copy out of a swap is done is not known: its arrival is taken to run when nothing else can.

Who comes first among the consumers of one op is the order of its outgoing edges: as they were
added to the graph for up to 8 of them, else by where the edges lie in memory, which is what
differs between processes.

``ScheduleReady`` and ``Process`` of ``tensorflow/core/common_runtime/executor.cc``, ``EdgeSet``
of ``core/graph/edgeset.h``, ``FlatRep`` of ``tsl/lib/gtl/flatrep.h``, ``ThreadPoolTempl`` of
Eigen's ``NonBlockingThreadPool.h``.
"""

import random
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from placer.graph.op_graph import Op, OpGraph
from placer.graph.op_types import MERGES
from placer.graph.order import is_back_edge
from placer.graph.rewriting import find_arrivals

_INEXPENSIVE = (
    "Const HostConst ImmutableConst Placeholder PlaceholderWithDefault NoOp ControlTrigger "
    "Identity RefIdentity IdentityN StopGradient PreventGradient "
    "Reshape Squeeze ExpandDims Shape ShapeN Size Rank "
    "Switch RefSwitch Merge RefMerge Enter RefEnter Exit RefExit NextIteration RefNextIteration "
    "LoopCond"
)
INEXPENSIVE = frozenset(_INEXPENSIVE.split())
"""Op types whose CPU kernels say so themselves (``OpKernel::IsExpensive``)."""

INLINE_EDGES = 8
"""``EdgeSet::kInline``: so many edges of an op are kept in the order they were added."""

_EDGE_BYTES = 32
_EDGES_PER_BLOCK = 256
_BLOCK_BYTES = 8192 + 16
_HEAP_BYTES = 1 << 24
_JUMP_PROBABILITY = 0.25
"""Edges lie one after the other in blocks of 8 KiB (``core::Arena``), each with malloc's header;
most blocks follow the one before, some are somewhere else."""

_BUCKET = 8
_FULL = 0.8
"""A hash set starts with one bucket of slots, and doubles when it is so full."""


@dataclass(frozen=True, kw_only=True)
class ExecutorGraph:
    """A graph as the executor has it: ops by number, the source as the last one.

    ``successors`` has, per op, its outgoing edges in the order in which they were added, each as
    (number of the edge, consumer, is it a control edge).  ``arrivals`` are done when a copy is.
    """

    names: tuple[str, ...]
    successors: Sequence[Sequence[tuple[int, int, bool]]]
    waiting: Sequence[int]
    inexpensive: Sequence[bool]
    arrivals: frozenset[int] = frozenset()

    @cached_property
    def few_successors(self) -> Sequence[list[int]]:
        """The consumers of every op as the executor notifies them, none for those of many."""
        return [
            _data_first(edges) if len(edges) <= INLINE_EDGES else [] for edges in self.successors
        ]

    @cached_property
    def with_many_successors(self) -> Sequence[int]:
        """The ops whose consumers are notified in an order that differs between processes."""
        return [op for op, edges in enumerate(self.successors) if len(edges) > INLINE_EDGES]


def prepare(graph: OpGraph, accelerated: bool = False) -> ExecutorGraph:
    """The graph of one step, found once; ``accelerated`` if all kernels are cheap to launch."""
    prepared = graph.ask_once(_prepare)
    return replace(prepared, inexpensive=[True] * len(prepared.names)) if accelerated else prepared


def _prepare(graph: OpGraph) -> ExecutorGraph:
    names = tuple(graph.ops)
    number = {name: index for index, name in enumerate(names)}
    feeds = frozenset(graph.feeds)
    edges = [
        [] if op.name in feeds else _incoming(op, producers, graph, number)
        for op, producers in zip(graph.ops.values(), graph.producer_numbers, strict=True)
    ]
    successors: list[list[tuple[int, int, bool]]] = [[] for _ in range(len(names) + 1)]
    count = 0
    created = _order_of_creation(edges, [number[name] for name in graph.feeds])
    for op in created:
        for producer, is_control in edges[op]:
            successors[producer].append((count, op, is_control))
            count += 1
    roots = [op for op in created if not edges[op]]
    successors[-1] = [(count + index, op, True) for index, op in enumerate(roots)]
    arrivals = frozenset([number[name] for name in graph.ask_once(find_arrivals)])
    inexpensive = [info.op in INEXPENSIVE for info in graph.infos]
    for op in arrivals:
        inexpensive[op] = False
    return ExecutorGraph(
        names=names,
        successors=successors,
        waiting=[len(incoming) or 1 for incoming in edges],
        inexpensive=inexpensive,
        arrivals=arrivals,
    )


def _incoming(
    op: Op, producers: Sequence[int], graph: OpGraph, number: Mapping[str, int]
) -> list[tuple[int, bool]]:
    """The ``producers`` that an op waits for, one per input slot, then those of control edges."""
    if op.op_type in MERGES:
        infos = graph.infos
        producers = [p for p in producers if not is_back_edge(infos[p].op, op.op_type)]
    edges = [(producer, False) for producer in producers]
    if op.control_inputs:
        edges += [(number[producer], True) for producer in op.control_inputs]
    return edges


def _order_of_creation(
    edges: Sequence[Sequence[tuple[int, bool]]], feeds: Iterable[int]
) -> list[int]:
    """The ops as the session adds them: of those whose producers are there the first one of the
    graph, fed ones last.

    So each comes after the last fed one that it depends on, and as in the graph otherwise.
    """
    last_feed = [0] * len(edges)
    for number, op in enumerate(feeds, start=1):
        last_feed[op] = number
    for op, incoming in enumerate(edges):
        for producer, _ in incoming:
            if last_feed[producer] > last_feed[op]:
                last_feed[op] = last_feed[producer]
    return sorted(range(len(edges)), key=last_feed.__getitem__)


def run_once(graph: ExecutorGraph, seed: int) -> tuple[str, ...]:
    """The order in which one process, of those that may be, runs the ops."""
    return tuple([graph.names[op] for op in run(graph, successors_in(graph, seed))])


def successors_in(graph: ExecutorGraph, seed: int) -> list[list[int]]:
    """The consumers of every op in the order in which one process, of those that may be, notifies
    them."""
    blocks = _block_addresses(graph, random.Random(seed))
    source = len(graph.names)
    successors = list(graph.few_successors)
    for op in graph.with_many_successors:
        edges = graph.successors[op]
        successors[op] = _data_first(_hash_order(edges, blocks, grows=op == source))
    return successors


def run_reversed(graph: ExecutorGraph) -> tuple[str, ...]:
    """The order if every op notifies its consumers the other way round, as after the rewriting of
    the graph optimizers on GPUs: what usually comes early, such as the zeros that gradients are
    added to, comes late."""
    successors = [[consumer for _, consumer, _ in reversed(e)] for e in graph.successors]
    return tuple(graph.names[op] for op in run(graph, successors))


def _block_addresses(graph: ExecutorGraph, rng: random.Random) -> list[int]:
    """Where in memory each block of edges may lie."""
    last = max((edges[-1][0] for edges in graph.successors if edges), default=0)
    address = rng.randrange(0, _HEAP_BYTES, 16)
    addresses = []
    for _ in range(last // _EDGES_PER_BLOCK + 1):
        addresses.append(address)
        jumps = rng.random() < _JUMP_PROBABILITY
        address = rng.randrange(0, _HEAP_BYTES, 16) if jumps else address + _BLOCK_BYTES
    return addresses


def run(graph: ExecutorGraph, successors: Sequence[Sequence[int]]) -> list[int]:
    """The ops in order, if each notifies its consumers in the order of ``successors``.

    ``stack`` has the queues of tasks that run within each other, the innermost last.
    """
    if all(graph.inexpensive):
        return _run_first_in_first_out(graph, successors)
    waiting, inexpensive = list(graph.waiting), graph.inexpensive
    order: list[int] = []
    pool: list[int] = []
    arriving: deque[int] = deque()
    stack: list[tuple[deque[int], deque[int]]] = [(deque([len(graph.names)]), deque())]
    while stack or pool or arriving:
        if not stack:
            stack.append((deque([pool.pop() if pool else arriving.popleft()]), deque()))
        queue, to_pool = stack[-1]
        while to_pool and len(pool) < 1024:  # beyond it ops run at once
            pool.append(to_pool.popleft())
        if to_pool:
            stack.append((deque([to_pool.popleft()]), deque()))
            continue
        if not queue:
            stack.pop()
            continue
        op = queue.popleft()
        order.append(op)
        for consumer in successors[op]:
            waiting[consumer] -= 1
            if not waiting[consumer]:
                later = arriving if consumer in graph.arrivals else to_pool
                (queue if inexpensive[consumer] else later).append(consumer)
        if to_pool and not queue:
            queue.append(to_pool.pop())
    return order[1:]


def _run_first_in_first_out(graph: ExecutorGraph, successors: Sequence[Sequence[int]]) -> list[int]:
    """The same where nothing goes to the pool, which is one queue."""
    waiting, queue = list(graph.waiting), [len(graph.names)]
    arriving: deque[int] = deque()
    for op in queue:
        for consumer in successors[op]:
            waiting[consumer] -= 1
            if not waiting[consumer]:
                (arriving if consumer in graph.arrivals else queue).append(consumer)
        if arriving and op == queue[-1]:
            queue.append(arriving.popleft())
    return queue[1:]


def _data_first(edges: Sequence[tuple[int, int, bool]]) -> list[int]:
    """The consumers in the order in which the executor notifies them: data edges before control."""
    if len(edges) == 1:
        return [edges[0][1]]
    data = [consumer for _, consumer, is_control in edges if not is_control]
    if len(data) == len(edges):
        return data
    return data + [consumer for _, consumer, is_control in edges if is_control]


def _hash_order(
    edges: Sequence[tuple[int, int, bool]], blocks: Sequence[int], *, grows: bool
) -> list[tuple[int, int, bool]]:
    """The order in which a hash set of the edges' addresses lists them.

    The set is made for as many edges as there are, but that of the source ``grows``.
    """
    slots = _BUCKET
    while not grows and len(edges) >= _FULL * slots:
        slots *= 2
    hashes = []
    for number, _, _ in edges:
        block, offset = divmod(number, _EDGES_PER_BLOCK)
        address = blocks[block] + offset * _EDGE_BYTES
        hashes.append((address + (address >> 6)) >> 8)
    held: list[int] = []
    while True:
        there = len(held)
        some = range(there, min(int(_FULL * slots), len(edges)))
        held = _hash_table([*held, *some], hashes, slots)
        if len(held) == len(edges):
            return [edges[index] for index in held]
        slots *= 2


def _hash_table(inserted: Sequence[int], hashes: Sequence[int], slots: int) -> list[int]:
    """Returns the items ``inserted``, in the order of the slots: each in the first free one of its
    hash, probing quadratically.  Nothing is taken out, so probing goes on where it last ended."""
    table = [-1] * slots
    mask = slots - 1
    ended: dict[int, tuple[int, int]] = {}
    for item in inserted:
        first = hashes[item] & mask
        index, probes = ended.get(first, (first, 1))
        while table[index] >= 0:
            index = index + probes & mask
            probes += 1
        table[index] = item
        ended[first] = index, probes
    return [item for item in table if item >= 0]
