"""Topological orders: every op after the ops it reads and waits for."""

import heapq
from collections.abc import Iterable, Mapping, Sequence

from placer.errors import SHOWN, ModelError
from placer.graph.op_graph import Op
from placer.graph.op_types import MERGES, NEXT_ITERATIONS


def is_back_edge(producer_type: str, consumer_type: str) -> bool:
    """Does an edge between these op types carry a value of a v1 loop's previous iteration?

    >>> is_back_edge("NextIteration", "Merge"), is_back_edge("Enter", "Merge")
    (True, False)
    """
    return consumer_type in MERGES and producer_type in NEXT_ITERATIONS


def predecessors(op: Op, ops: Mapping[str, Op]) -> list[str]:
    """The ops that must run before ``op``, each once, the producers of its inputs first.

    The back edge of a v1 loop (``NextIteration`` to ``Merge``) carries the value of the previous
    iteration: it orders nothing and is left out.  Names that ``ops`` does not hold are left out.
    """
    names = [name for name in dict.fromkeys((*op.producers, *op.control_inputs)) if name in ops]
    if op.op_type not in MERGES:
        return names
    return [name for name in names if not is_back_edge(ops[name].op_type, op.op_type)]


def topological_order(ops: Mapping[str, Op]) -> tuple[str, ...]:
    """The names of ``ops``, producers first; see :func:`sort_topologically`."""
    return sort_topologically({name: predecessors(op, ops) for name, op in ops.items()})


def order_by_sources(
    op_types: Mapping[str, str], sources: Mapping[str, Iterable[str]]
) -> tuple[str, ...]:
    """As :func:`topological_order`, of ops given by their types and the ops that each reads.

    >>> order_by_sources({"y": "Relu", "x": "Const"}, {"y": ["x"], "x": []})
    ('x', 'y')
    """
    if _is_in_order(op_types, sources):
        return tuple(op_types)
    before = {}
    for name, kind in op_types.items():
        found = [source for source in dict.fromkeys(sources[name]) if source in op_types]
        if kind in MERGES:
            found = [source for source in found if not is_back_edge(op_types[source], kind)]
        before[name] = found
    return sort_topologically(before)


def _is_in_order(op_types: Iterable[str], sources: Mapping[str, Iterable[str]]) -> bool:
    """Whether every op comes after all that it reads, as in most files."""
    done: set[str] = set()
    for name in op_types:
        if not done.issuperset(sources[name]):
            return False
        done.add(name)
    return True


def sort_topologically(before: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The names in ``before``, each after the names it maps to; of several that are ready, the
    first in ``before``.

    An order that is topological already comes back unchanged.  Raises
    :class:`~placer.errors.ModelError` with the ops of a cycle: callers leave the back edges of v1
    loops out.

    Kahn, "Topological sorting of large networks", doi:10.1145/368996.369025.

    >>> sort_topologically({"c": ["b"], "b": ["a"], "a": []})
    ('a', 'b', 'c')
    """
    place = {name: index for index, name in enumerate(before)}
    if all(place[other] < place[name] for name, names in before.items() for other in names):
        return tuple(before)
    waiting = {name: len(names) for name, names in before.items()}
    after: dict[str, list[str]] = {name: [] for name in before}
    for name, names in before.items():
        for producer in names:
            after[producer].append(name)
    order: list[str] = []
    in_place = list(before)
    ready = [place[name] for name, count in waiting.items() if not count]
    while ready:
        name = in_place[heapq.heappop(ready)]
        order.append(name)
        for consumer in after[name]:
            waiting[consumer] -= 1
            if not waiting[consumer]:
                heapq.heappush(ready, place[consumer])
    if len(order) < len(before):
        cycle = _find_cycle({name: names for name, names in before.items() if waiting[name]})
        if len(cycle) > SHOWN + 1:
            cycle[SHOWN:-1] = [f"... ({len(cycle) - 1:,} ops)"]
        raise ModelError(
            f"the graph has a cycle that is not a v1 loop: {' -> '.join(cycle)}; "
            "break it, or export the graph again"
        )
    return tuple(order)


def _find_cycle(before: Mapping[str, Sequence[str]]) -> list[str]:
    """One cycle among ops that wait for each other, in the direction of the data, closed."""
    name = next(iter(before))
    path: dict[str, None] = {}
    while name not in path:
        path[name] = None
        name = next(producer for producer in before[name] if producer in before)
    walk = list(path)
    cycle = [*walk[walk.index(name) :], name]
    return cycle[::-1]
