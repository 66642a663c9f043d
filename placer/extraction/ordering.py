"""A topological order of NodeDefs that tolerates loops."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Any

BACK_EDGE_TYPES = frozenset({"NextIteration", "RefNextIteration"})


def sort_topologically(nodes: Mapping[str, Any]) -> list[str]:
    """The names of ``nodes``, producers first, otherwise in the given order.

    Edges out of ``NextIteration`` are left out of the order.  A cycle without one (a malformed
    graph) is broken at its first op.
    """
    numbers = {name: index for index, name in enumerate(nodes)}
    names = list(nodes)
    waiting = [0] * len(names)
    readers: list[list[int]] = [[] for _ in names]
    for number, node in enumerate(nodes.values()):
        for source in {reference.lstrip("^").split(":")[0] for reference in node.input}:
            producer = numbers.get(source)
            if producer is None or nodes[source].op in BACK_EDGE_TYPES:
                continue
            waiting[number] += 1
            readers[producer].append(number)
    return [names[number] for number in _kahn(waiting, readers)]


def _kahn(waiting: list[int], readers: list[list[int]]) -> list[int]:
    ready = [number for number, count in enumerate(waiting) if not count]
    done = [False] * len(waiting)
    order: list[int] = []
    first_left = 0
    while len(order) < len(waiting):
        if not ready:
            while done[first_left]:
                first_left += 1
            ready.append(first_left)
        number = heapq.heappop(ready)
        if done[number]:
            continue
        done[number] = True
        order.append(number)
        for reader in readers[number]:
            waiting[reader] -= 1
            if waiting[reader] == 0 and not done[reader]:
                heapq.heappush(ready, reader)
    return order
