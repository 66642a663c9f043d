"""Execution orders: every op after the ops it reads and waits for."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

from placer.errors import ModelError
from placer.graph.op_graph import Op

_BACK_EDGE_SOURCES = frozenset({"NextIteration", "RefNextIteration"})
_BACK_EDGE_TARGETS = frozenset({"Merge", "RefMerge"})


def is_back_edge(producer: Op, consumer: Op) -> bool:
    """Does this edge carry a value of the previous iteration of a v1 loop?"""
    return consumer.op_type in _BACK_EDGE_TARGETS and producer.op_type in _BACK_EDGE_SOURCES


def predecessors(op: Op, ops: Mapping[str, Op]) -> list[str]:
    """The ops that must run before ``op``, each once, the producers of its inputs first.

    The back edge of a v1 loop (``NextIteration`` to ``Merge``) carries the value of the previous
    iteration: it orders nothing and is left out.  Names that ``ops`` does not hold are left out.
    """
    names: Iterable[str] = dict.fromkeys(
        [name.rpartition(":")[0] for name in op.inputs] + list(op.control_inputs)
    )
    return [name for name in names if name in ops and not is_back_edge(ops[name], op)]


def topological_order(ops: Mapping[str, Op]) -> tuple[str, ...]:
    """The names of ``ops``, producers first; of several that are ready, the first in ``ops``.

    An order that is topological already comes back unchanged.  Raises
    :class:`~placer.errors.ModelError` with the names of a cycle, unless the cycle is a v1 loop.

    Kahn, "Topological sorting of large networks", doi:10.1145/368996.369025.
    """
    before = {name: predecessors(op, ops) for name, op in ops.items()}
    waiting = {name: len(names) for name, names in before.items()}
    after: dict[str, list[str]] = {name: [] for name in ops}
    for name, names in before.items():
        for producer in names:
            after[producer].append(name)
    order = _release(list(ops), waiting, after)
    if len(order) < len(ops):
        stuck = {name: names for name, names in before.items() if waiting[name]}
        cycle = " -> ".join(_find_cycle(stuck))
        raise ModelError(
            f"the graph has a cycle that is not a v1 loop: {cycle}; "
            "break it, or export the graph again"
        )
    return tuple(order)


def _release(
    names: list[str], waiting: dict[str, int], after: Mapping[str, list[str]]
) -> list[str]:
    """The ops that can run, in order; ``waiting`` is left above zero for those that cannot."""
    number = {name: index for index, name in enumerate(names)}
    ready = [number[name] for name in names if not waiting[name]]
    order = []
    while ready:
        name = names[heapq.heappop(ready)]
        order.append(name)
        for consumer in after[name]:
            waiting[consumer] -= 1
            if not waiting[consumer]:
                heapq.heappush(ready, number[consumer])
    return order


def _find_cycle(before: Mapping[str, list[str]]) -> list[str]:
    """One cycle among ops that wait for each other, in the direction of the data, closed."""
    name = next(iter(before))
    path: dict[str, None] = {}
    while name not in path:
        path[name] = None
        name = next(producer for producer in before[name] if producer in before)
    walk = list(path)
    cycle = [*walk[walk.index(name) :], name]
    return cycle[::-1]
