"""The units that a bound from sets speaks of: those of the devices that most weight may use."""

from collections import Counter
from typing import NamedTuple

import numpy as np

from placer.solving.bounds.cut_graph import CutGraph
from placer.solving.compiled.arrays import Floats, Ints
from placer.solving.reduction.unit_problem import UnitProblem

_MOST = 2**61
"""Sums of bytes are kept below that."""


class OnHost(NamedTuple):
    """Per node of a graph twice what it costs on the host; the nodes that are there in every
    placement, and those that never are.  Nodes without a value cost nothing."""

    twice: Ints
    always: Ints
    never: Ints


def _hosts_apart(problem: UnitProblem) -> frozenset[int]:
    """The host, if it holds more than any other device."""
    host = problem.host
    larger = any(
        row.capacity[host] > max((*row.capacity[:host], *row.capacity[host + 1 :]), default=0)
        for row in problem.rows
    )
    return frozenset([host] if larger else [])


class BoundedUnits:
    """The units of one problem, of which a placement is known that sends ``known`` bytes.

    ``devices`` are those that most weight may use, ``there`` the units that are on one of them in
    every placement, ``outside`` those that never are; ``share`` is what each takes of the largest
    of these devices, ``asked`` the heaviest.  A host that is larger is none of them (``apart``);
    ``is_open`` says that units may be there as well.

    Raises ``OverflowError`` if bytes cannot be added up in 64 bits.
    """

    def __init__(self, problem: UnitProblem, known: int) -> None:
        self.problem, self.known = problem, known
        count = problem.unit_count
        if 4 * known * (count + len(problem.nets)) > _MOST or any(
            max(sum(row.weights), sum(row.capacity)) > _MOST for row in problem.rows
        ):
            raise OverflowError("bytes in all that do not fit into 64 bits")
        self.weights = np.array([row.weights for row in problem.rows], np.int64)
        self.weights = self.weights.reshape(len(problem.rows), count)
        self.apart = _hosts_apart(problem)
        self.is_open = any(
            len(allowed) > 1 and not self.apart.isdisjoint(allowed) for allowed in problem.allowed
        )
        self.devices = self._devices()
        shared = [not self.devices.isdisjoint(allowed) for allowed in problem.allowed]
        self.outside = ~np.array(shared, np.bool_)
        there = [frozenset(allowed) - self.apart == self.devices for allowed in problem.allowed]
        self.there = np.array(there, np.bool_)
        self.share = self._shares()
        self.asked = self._asked()

    def _devices(self) -> frozenset[int]:
        """The devices that most weight may use, a host apart from them aside."""
        weight: Counter[frozenset[int]] = Counter()
        for allowed, size in zip(self.problem.allowed, self.weights.sum(axis=0), strict=True):
            if not self.apart.issuperset(allowed):
                weight[frozenset(allowed) - self.apart] += int(size)
        return max(weight, key=lambda devices: weight[devices], default=frozenset())

    def _shares(self) -> Floats:
        """Per unit, the share of the largest device that it takes in the fullest row."""
        there = self.there
        if not len(self.weights) or not self.devices:
            return np.zeros(len(there))
        rows = self.problem.rows
        largest = np.array([max(1, *(row.capacity[d] for d in self.devices)) for row in rows])
        row = int(np.argmax(np.where(there, self.weights, 0).sum(axis=1) / largest))
        return np.where(there, self.weights[row] / largest[row], 0.0)

    def _asked(self) -> Ints:
        """The heaviest units, which have nearly all weight."""
        # values are asked for of the heaviest units, up to so much of all weight
        order = np.argsort(-self.share, kind="stable")[:1500]
        so_far = np.cumsum(self.share[order]) - self.share[order]
        is_asked = (so_far < 0.98 * self.share.sum()) & (self.share[order] > 0)
        return np.asarray(order[is_asked], np.int64)

    def on_host(self, graph: CutGraph) -> OnHost | None:
        """Returns what the nodes of ``graph`` cost on the host, if that is open to any of them."""
        problem = self.problem
        if not self.is_open:
            return None
        may, must = np.ones(graph.count, np.bool_), np.zeros(graph.count, np.bool_)
        twice = np.zeros(graph.count, np.int64)
        units = self.graph_units(graph)
        slower = np.array([problem.cost[unit][problem.host] for unit in units], np.int64)
        np.add.at(twice, graph.node_of[units], 2 * slower)
        for node, allowed in zip(graph.node_of, problem.allowed, strict=True):
            if node >= 0:
                may[node] &= problem.host in allowed
                must[node] |= set(allowed) == {problem.host}
        return OnHost(twice, np.flatnonzero(must), np.flatnonzero(~may))

    def graph_units(self, graph: CutGraph) -> Ints:
        """The units asked for that are in nets of ``graph``."""
        return self.asked[graph.node_of[self.asked] >= 0]
