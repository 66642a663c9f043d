"""Conclusions from the bodies of loops: what passes through, how often they run.

In a body, ``feeds`` are its arguments and ``fetches`` its results, each once and in order.  The
loops of TensorFlow 1 are given the same form (:mod:`placer.prediction.step.frames`).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from placer.graph.op_graph import Op, OpGraph
from placer.graph.op_types import ENTERS, LOOPS, NEXT_ITERATIONS, SWITCHES
from placer.graph.tensor_names import op_of, split_tensor

_SAME_VALUE = (
    frozenset({"Identity", "StopGradient", "PreventGradient", "Cast", "EnsureShape"})
    | (ENTERS | SWITCHES | NEXT_ITERATIONS)  # of loops of TensorFlow 1
)
_MIRRORED = {
    "Less": "Greater",
    "LessEqual": "GreaterEqual",
    "Greater": "Less",
    "GreaterEqual": "LessEqual",
}

Number = int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class TripCount:
    """How often the body of a loop runs.  ``exact`` is ``False`` for an upper bound: the loop has
    further conditions that depend on data."""

    count: int
    exact: bool


def loop_invariants(body: OpGraph) -> frozenset[int]:
    """The numbers of the arguments that a loop's ``body`` returns unchanged."""
    return frozenset(
        index
        for index, (feed, fetch) in enumerate(zip(body.feeds, body.fetches, strict=False))
        if op_of(origin(fetch, body)) == feed
    )


def find_trip_count(op: Op, graph: OpGraph) -> TripCount | None:
    """How often the loop ``op`` runs where a counter decides it, else ``None``.

    Understood are conditions ``counter < limit`` (or ``<=``, ``>``, ``>=``), joined by ``and``,
    whose counter starts at a constant and grows by a constant, and whose limit is one, or what
    another such loop has counted (the loop of a gradient runs as often as the one it is of).
    """
    condition = _function(op, graph, "cond")
    body = _function(op, graph, "body")
    if condition is None or body is None or not condition.fetches:
        return None
    return count_trips(condition.fetches[0], condition, body, _arguments(op, graph))


def count_trips(
    tensor: str, condition: OpGraph, body: OpGraph, arguments: Sequence[Number | None]
) -> TripCount | None:
    """How often a loop runs that goes on while ``tensor`` of its ``condition`` holds, given the
    scalars that go into it."""
    counts = [
        _count(comparison, condition, body, arguments)
        for comparison in _conjuncts(tensor, condition)
    ]
    known = [count for count in counts if count is not None]
    if not known:
        return None
    return TripCount(count=min(known), exact=len(known) == len(counts))


def _arguments(op: Op, graph: OpGraph) -> tuple[Number | None, ...]:
    """The scalars that go into a loop, as far as they are known."""
    found = [_scalar(properties.value) for properties in op.info.inputs]
    for index, tensor in enumerate(op.inputs):
        name, output = split_tensor(origin(tensor, graph))
        if found[index] is None and graph.ops[name].op_type in LOOPS:
            found[index] = _counted(graph.ops[name], output, graph)
    return tuple(found)


def _counted(loop: Op, output: int, graph: OpGraph) -> Number | None:
    """Returns the last value of a loop's counter number ``output``, ``None`` if it is unknown."""
    body = _function(loop, graph, "body")
    arguments = tuple(_scalar(properties.value) for properties in loop.info.inputs)
    trips = find_trip_count(loop, graph)
    return None if body is None else last_value(output, body, arguments, trips)


def last_value(
    index: int, body: OpGraph, arguments: Sequence[Number | None], trips: TripCount | None
) -> Number | None:
    """The value of a loop's counter number ``index`` after all trips, ``None`` if it is unknown."""
    if trips is None or not trips.exact:
        return None
    start, step = arguments[index], _step(index, body, arguments)
    return None if start is None or step is None else start + trips.count * step


def _function(op: Op, graph: OpGraph, attribute: str) -> OpGraph | None:
    names = op.bodies.get(attribute, ())
    return graph.functions.get(names[0]) if names else None


def _conjuncts(tensor: str, graph: OpGraph) -> Iterator[Op]:
    """The ops whose results are joined by ``and``."""
    producer = graph.ops[op_of(origin(tensor, graph))]
    if producer.op_type == "LogicalAnd":
        for name in producer.inputs:
            yield from _conjuncts(name, graph)
    else:
        yield producer


def _count(
    comparison: Op, condition: OpGraph, body: OpGraph, arguments: Sequence[Number | None]
) -> int | None:
    """How often the comparison holds, ``None`` where that is not known."""
    if comparison.op_type not in _MIRRORED:
        return None
    left, right = comparison.inputs
    sides = ((comparison.op_type, left, right), (_MIRRORED[comparison.op_type], right, left))
    for relation, counter, limit in sides:
        index = argument_of(counter, condition)
        bound = constant_value(limit, condition, body, arguments)
        if index is None or bound is None:
            continue
        start, step = arguments[index], _step(index, body, arguments)
        if start is not None and step is not None:
            return _trips(relation, start, step, bound)
    return None


def _trips(relation: str, start: Number, step: Number, limit: Number) -> int | None:
    """The number of k >= 0 with ``start + k * step`` in ``relation`` to ``limit``, one after the
    other; ``None`` if there is no end to them."""
    if relation.startswith("Greater"):
        start, step, limit = -start, -step, -limit
    inclusive = relation.endswith("Equal")
    if start > limit or (start == limit and not inclusive):
        return 0
    if step <= 0:
        return None
    distance = (limit - start) / step
    return math.floor(distance) + 1 if inclusive else math.ceil(distance)


def _step(index: int, body: OpGraph, arguments: Sequence[Number | None]) -> Number | None:
    """Returns the number that the body adds to its argument number ``index``."""
    if index >= len(body.fetches):
        return None
    addition = body.ops[op_of(origin(body.fetches[index], body))]
    if addition.op_type not in ("Add", "AddV2", "Sub"):
        return None
    for counter, added in (addition.inputs, addition.inputs[::-1]):
        if argument_of(counter, body) == index:
            step = constant_value(added, body, body, arguments)
            if addition.op_type != "Sub" or step is None:
                return step
            return -step if counter == addition.inputs[0] else None
    return None


def constant_value(
    tensor: str, graph: OpGraph, body: OpGraph, arguments: Sequence[Number | None]
) -> Number | None:
    """The scalar that ``tensor`` is in every iteration, ``None`` if it may change."""
    index = argument_of(tensor, graph)
    if index is not None:
        return arguments[index] if index in body.ask_once(loop_invariants) else None
    name, output = split_tensor(origin(tensor, graph))
    return _scalar(graph.ops[name].info.outputs[output].value)


def argument_of(tensor: str, graph: OpGraph) -> int | None:
    """The number of the argument that ``tensor`` is, ``None`` if it is computed."""
    producer = op_of(origin(tensor, graph))
    return graph.feeds.index(producer) if producer in graph.feeds else None


def origin(tensor: str, graph: OpGraph) -> str:
    """The tensor whose value ``tensor`` has."""
    producer = graph.ops[op_of(tensor)]
    while producer.op_type in _SAME_VALUE and producer.name not in graph.feeds:
        tensor = producer.inputs[0]
        producer = graph.ops[op_of(tensor)]
    return tensor


def _scalar(values: Sequence[Number] | None) -> Number | None:
    return values[0] if values is not None and len(values) == 1 else None
