"""Control edges by which the pieces of a batch form a pipeline.

TensorFlow's executor runs what is ready first come, first served.  Of two pieces on one device it
takes an op of each in turn: both are done with their stage at the end only, and the device of the
next stage has waited all the while (0 and 1 are pieces).

    as they come   GPU:0  0 1 0 1 0 1 . . . . . . 2 3 2 3 2 3
                   GPU:1  . . . . . . 0 1 0 1 0 1 . . . . . .

    in a pipeline  GPU:0  0 0 0 1 1 1 2 2 2 3 3 3
                   GPU:1  . . . 0 0 0 1 1 1 2 2 2 3 3 3

So a device is to finish what it does of one piece before it begins another one.  What it does of a
piece between two transfers is a *segment*: the forward pass of a stage is one, its backward pass
another.  Whenever a device is free, it runs the segment of the oldest piece that is ready: of a
training step the backward pass of one piece comes before the forward pass of the next, which keeps
few activations (D. Narayanan et al., PipeDream, SOSP 2019, doi:10.1145/3341301.3359646: one
forward, one backward).  How many pieces are on their way at once, the graph says itself.

Edges join what is last in a segment to what is first in the next one of the same device: no signal
crosses.  All of them go forward in a schedule that keeps to what the graph has, so that there is
never a cycle.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from cost_models.devices import Cluster
from cost_models.op_cost import OpCost
from cost_models.roofline import op_seconds, transfer_seconds
from placer.graph.control_edges import ControlEdge, add_control_edges, joinable_ops
from placer.graph.name_scopes import piece_of
from placer.graph.op_graph import Op, OpGraph
from placer.graph.order import predecessors
from placer.prediction.prediction import predict_step_seconds

_Key = tuple[int, int, str]
"""A piece, how many transfers it has been through, a device: lower ones are run first."""

_ARRIVES, _ENDS = 0, 1

_CLEARLY = 0.99
"""Share of the step as it comes; a smaller gain is not worth holding ops back."""


@dataclass(slots=True, kw_only=True)
class _Segment:
    """The ops of a piece that one device runs between two transfers, in graph order; ``after`` has
    the segments that wait for it, each with the seconds until what they read has arrived."""

    ops: list[str] = field(default_factory=list)
    seconds: float = 0.0
    after: dict[_Key, float] = field(default_factory=dict)
    waiting: int = 0


def order_pieces(
    graph: OpGraph,
    costs: Mapping[str, OpCost],
    placement: Mapping[str, str],
    cluster: Cluster,
) -> tuple[ControlEdge, ...]:
    """The control edges by which the pieces of ``graph`` go through their devices one by one.

    None where the step is not predicted to be clearly shorter with them, as where the pieces take
    turns, and where there are no pieces.
    """
    segments = _find_segments(graph, costs, placement, cluster)
    if not segments:
        return ()
    joinable = joinable_ops(graph)
    edges = tuple(
        edge
        for keys in _schedule(segments, cluster.workers).values()
        for one, other in pairwise(keys)
        if one[0] != other[0]
        for edge in _join(segments[one], segments[other], graph, joinable)
    )
    if not edges:
        return ()
    ordered = add_control_edges(graph, edges)
    known = costs, placement, cluster
    gains = predict_step_seconds(ordered, *known) < _CLEARLY * predict_step_seconds(graph, *known)
    return edges if gains else ()


def _find_segments(
    graph: OpGraph, costs: Mapping[str, OpCost], placement: Mapping[str, str], cluster: Cluster
) -> dict[_Key, _Segment]:
    """The segments of all pieces; none if there are less than two pieces, or if one depends on a
    later one.

    What is in no piece is of the last piece that it depends on: a join, or the update of weights.
    """
    key_of: dict[str, _Key] = {}
    segments: dict[_Key, _Segment] = {}
    devices = {device.name: device for device in cluster.devices}
    for name, op in graph.ops.items():
        # which piece, and after how many transfers
        before = [key_of[other] for other in predecessors(op, graph.ops) if other in key_of]
        latest = max((key[0] for key in before), default=-1)
        piece = piece_of(name)
        if piece is None:
            piece = latest
        if piece < 0:
            continue
        if latest > piece:
            return {}
        device = placement[name]
        moves = (key[1] + (key[2] != device) for key in before if key[0] == piece)
        key = key_of[name] = piece, max(moves, default=0), device
        # what it adds to its segment
        segment = segments.setdefault(key, _Segment())
        segment.ops.append(name)
        segment.seconds += op_seconds(costs[name], devices[device])
        for other, seconds in _arrivals(op, key, key_of, costs, cluster):
            if other != key:
                after = segments[other].after
                segment.waiting += key not in after
                after[key] = max(seconds, after.get(key, 0.0))
    return segments if len({piece for piece, _, _ in segments}) > 1 else {}


def _arrivals(
    op: Op,
    key: _Key,
    key_of: Mapping[str, _Key],
    costs: Mapping[str, OpCost],
    cluster: Cluster,
) -> Iterator[tuple[_Key, float]]:
    """The segments that ``op`` reads or waits for, and how long that takes to arrive."""
    sizes = [
        (name, costs[name].output_bytes[int(index or 0)])
        for name, _, index in (tensor.partition(":") for tensor in op.inputs)
        if name in key_of
    ]
    for name, size in (*sizes, *((name, 0) for name in op.control_inputs if name in key_of)):
        source = key_of[name]
        local = source[2] == key[2]
        link = cluster.link(source[2], key[2])
        yield source, 0.0 if local else transfer_seconds(size, link)


def _schedule(segments: Mapping[_Key, _Segment], workers: Sequence[str]) -> dict[str, list[_Key]]:
    """The segments that each of the ``workers`` runs in turn; other devices take all that comes."""
    waiting = {key: segment.waiting for key, segment in segments.items()}
    arrival = dict.fromkeys(segments, 0.0)
    events = [(0.0, _ARRIVES, key) for key, count in waiting.items() if not count]
    heapq.heapify(events)
    ready: dict[str, list[_Key]] = {device: [] for _, _, device in segments}
    order: dict[str, list[_Key]] = {device: [] for device in workers}
    busy: set[str] = set()
    while events:
        # everything that happens now
        now = events[0][0]
        while events and events[0][0] == now:
            _, kind, key = heapq.heappop(events)
            if kind == _ARRIVES:
                heapq.heappush(ready[key[2]], key)
                continue
            busy.discard(key[2])
            for after, seconds in segments[key].after.items():
                arrival[after] = max(arrival[after], now + seconds)
                waiting[after] -= 1
                if not waiting[after]:
                    heapq.heappush(events, (arrival[after], _ARRIVES, after))
        if events and events[0][0] == now:
            continue
        # the oldest piece on every free device
        for device, keys in ready.items():
            while keys and device not in busy:
                key = heapq.heappop(keys)
                if device in order:
                    order[device].append(key)
                    busy.add(device)
                heapq.heappush(events, (now + segments[key].seconds, _ENDS, key))
    return order


def _join(
    one: _Segment, other: _Segment, graph: OpGraph, joinable: frozenset[str]
) -> Iterator[ControlEdge]:
    """The edges by which ``other`` waits for all of ``one``: the last op of that waits for the
    others that nothing in it waits for."""
    read = {name for op in one.ops for name in predecessors(graph.ops[op], graph.ops)}
    ends = [op for op in one.ops if op in joinable and op not in read]
    inside = set(other.ops)
    begins = [
        op
        for op in other.ops
        if op in joinable and inside.isdisjoint(predecessors(graph.ops[op], graph.ops))
    ]
    if ends and begins:
        *ends, last = ends
        yield from ((end, last) for end in ends)
        yield from ((last, begin) for begin in begins)
