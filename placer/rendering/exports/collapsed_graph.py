"""A graph in which scopes stand for the ops in them, small enough to look at."""

import heapq
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from placer.prediction.predicted_step import PredictedStep


@dataclass(frozen=True, slots=True, kw_only=True)
class CollapsedNode:
    """A scope (or one op) with the sums over its ops; ``op_counts`` are by device."""

    name: str
    op_counts: Mapping[str, int]
    seconds: float
    flops: int
    resident_bytes: int
    output_bytes: int

    @property
    def op_count(self) -> int:
        """Ops in it."""
        return sum(self.op_counts.values())

    @property
    def device(self) -> str:
        """The device that has most of its ops."""
        return max(self.op_counts, key=lambda name: self.op_counts[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class CollapsedEdge:
    """The tensors that ops of node ``target`` read of ops of node ``source``: bytes of all tensors,
    each once, and what is transferred between devices for it."""

    source: int
    target: int
    bytes: int
    transfer_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CollapsedGraph:
    """Nodes by number, and the edges between different ones (control edges left out)."""

    nodes: tuple[CollapsedNode, ...]
    edges: tuple[CollapsedEdge, ...]


def collapse(step: PredictedStep, most_nodes: int) -> CollapsedGraph:
    """The graph of ``step`` with at most ``most_nodes`` nodes.

    Scopes are opened largest first (by ops) while there is room: all of them where there is room
    for every op.  Where the outermost level alone
    has more nodes than that, it is shown whole.
    """
    node_of, names = _node_of(step, most_nodes)
    members: list[list[int]] = [[] for _ in names]
    for op, node in enumerate(node_of):
        members[node].append(op)
    nodes = tuple(
        CollapsedNode(
            name=name,
            op_counts=dict(Counter(step.devices[step.device_of[op]] for op in ops)),
            seconds=sum(step.finish_seconds[op] - step.start_seconds[op] for op in ops),
            flops=sum(step.flops[op] for op in ops),
            resident_bytes=sum(step.persistent_bytes[op] for op in ops),
            output_bytes=sum(size or 0 for op in ops for size in step.output_bytes[op]),
        )
        for name, ops in zip(names, members, strict=True)
    )
    return CollapsedGraph(nodes=nodes, edges=tuple(_edges(step, node_of)))


def _node_of(step: PredictedStep, most_nodes: int) -> tuple[list[int], list[str]]:
    """The node of every op, and the names of the nodes."""
    tree = step.scopes
    inner: list[list[int]] = [[] for _ in tree.names]
    for scope in range(1, len(tree.names)):
        inner[tree.parents[scope]].append(scope)
    single = Counter(tree.scope_of)
    counts = tree.sums([1] * len(step.ops))
    opened = {0}
    shown = len(inner[0]) + single[0]
    waiting = [(-counts[scope], scope) for scope in inner[0]]
    heapq.heapify(waiting)
    while waiting:
        _, scope = heapq.heappop(waiting)
        more = len(inner[scope]) + single[scope] - 1
        if shown + more > most_nodes:
            continue
        shown += more
        opened.add(scope)
        for child in inner[scope]:
            heapq.heappush(waiting, (-counts[child], child))
    top = [0] * len(tree.names)
    for scope in range(1, len(tree.names)):
        closed_outside = top[tree.parents[scope]]
        top[scope] = closed_outside or (0 if scope in opened else scope)
    numbers: dict[str, int] = {}
    node_of = []
    for op, scope in enumerate(tree.scope_of):
        name = f"{tree.path(top[scope])}/" if top[scope] else step.ops[op]
        node_of.append(numbers.setdefault(name, len(numbers)))
    return node_of, list(numbers)


def _edges(step: PredictedStep, node_of: list[int]) -> list[CollapsedEdge]:
    read: dict[tuple[int, int], dict[tuple[int, int], None]] = {}
    for op, edges in enumerate(step.edges):
        for edge in edges:
            ends = (node_of[edge.producer], node_of[op])
            if edge.index >= 0 and ends[0] != ends[1]:
                read.setdefault(ends, {})[edge.producer, edge.index] = None
    sent: Counter[tuple[int, int]] = Counter()
    for row in step.sent:
        if row.transfer.kind != "control":
            for target in {node_of[reader] for reader in row.readers}:
                sent[node_of[row.op], target] += row.transfer.bytes or 0
    return [
        CollapsedEdge(
            source=source,
            target=target,
            bytes=sum(step.output_bytes[op][index] or 0 for op, index in tensors),
            transfer_bytes=sent[source, target],
        )
        for (source, target), tensors in read.items()
    ]
