"""Least cuts of hypergraphs, by maximum flows.

A net costs its bytes if it has pins on both sides: a net of two pins is an arc each way, one of
three or more a pair of nodes of its own with an arc between them (E. L. Lawler, Cutsets and
Partitions of Hypergraphs, Networks 3 (1973), doi:10.1002/net.3230030306).
"""

from collections.abc import Iterable, Sequence

import numpy as np
from ortools.graph.python import max_flow

from placer.solving.compiled.arrays import Flags, Ints


class HypergraphCuts:
    """The cuts of ``nets``, each with its pins and what it costs, between ``count`` nodes."""

    def __init__(self, count: int, nets: Iterable[tuple[Sequence[int], int]]) -> None:
        self.count = count
        arcs: list[tuple[int, int, int]] = []
        last = count
        for pins, size in nets:
            if len(pins) == 2:
                arcs += [(pins[0], pins[1], size), (pins[1], pins[0], size)]
                continue
            arcs.append((last, last + 1, size))
            arcs += [(pin, last, size) for pin in pins]
            arcs += [(last + 1, pin, size) for pin in pins]
            last += 2
        self.terminal, self.source = last, last + 1
        arcs.append((last, last + 1, 1))  # so that both are nodes
        columns = np.array(arcs, np.int64).T
        self.tails, self.heads, self.sizes = map(np.ascontiguousarray, columns)

    def incident(self) -> Ints:
        """The cost of all nets of every node."""
        found = np.bincount(self.tails, self.sizes, minlength=self.count)
        return found[: self.count].astype(np.int64)

    def least(self, price: Ints, inside: Ints, outside: Ints) -> tuple[int, Flags]:
        """The least cut and price of a set with the nodes ``inside`` and without those ``outside``,
        and which nodes are in it; a price may be negative."""
        terminal, source = self.terminal, self.source
        node_of = np.arange(source + 1)
        node_of[inside], node_of[outside] = source, terminal
        priced = np.flatnonzero(price)
        is_paid = price[priced] > 0
        tail = node_of[np.concatenate([self.tails, np.where(is_paid, priced, source)])]
        head = node_of[np.concatenate([self.heads, np.where(is_paid, terminal, priced)])]
        size = np.concatenate([self.sizes, np.abs(price[priced])])
        useful = (tail != head) & (size > 0)
        flow = max_flow.SimpleMaxFlow()
        flow.add_arcs_with_capacity(tail[useful], head[useful], size[useful])
        status = flow.solve(source, terminal)
        if status != flow.OPTIMAL:
            raise RuntimeError(f"the maximum flow ended with {status}")
        is_in = np.zeros(source + 1, np.bool_)
        is_in[flow.get_source_side_min_cut()] = True
        is_in[inside] = True
        return int(flow.optimal_flow()) + int(price[price < 0].sum()), is_in[: self.count]
