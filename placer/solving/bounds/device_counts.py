"""A bound from how many devices the limits force, and what parts it takes to fill them.

Data: units u with weights w[r, u] per row, devices d with capacities q[r, d]; a placement gives
device d the set S(d).  Let price[u] >= 0 be any prices, and

    cut(S)    the bytes of the nets with pins on both sides of S
    value[u]  the least of cut(S) + price(S) over all sets S that contain u

(a minimum cut, see :mod:`placer.solving.bounds.cut_graph`; without the units that share no device
with u).  A net that touches k devices costs (k - 1) times its bytes, at least half of the k times
that it is cut, so for every placement

    2 transfer + price(all)  >=  sum over d of cut(S(d)) + price(S(d))
                             >=  sum over d of the largest value[u] on d
                             >=  integral over t > 0 of devices(t)

with devices(t) the fewest devices that hold all units whose value is at least t: each of those has
a set that is worth t.  That many follow from the sum of their weights in each row and the largest
capacities, or from the units of which no two fit on one device together.  What is not known to have
a value counts as without.

A host that is larger than the devices is none of them.  Where units may be there as well this bound
is not looked for: of the weight that the host may take it keeps hardly anything.

With prices of nothing the set of all units has no cut, and every value is zero.  The best prices
are looked for by subgradients: whatever is in the best sets of more units than a device could hold
(by weight) becomes dearer, all else cheaper (M. Held, P. Wolfe, H. P. Crowder, Validation of
Subgradient Optimization, Mathematical Programming 6 (1974), doi:10.1007/BF01580223).  On a chain of
layers that ends up at its two ends, so that a set with everything costs as much as a stretch from
its middle does.  Whatever prices are found, what they prove holds: all of it is counted in whole
bytes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from placer.solving.bounds.cut_graph import CutGraph
from placer.solving.compiled.arrays import Floats, Ints
from placer.solving.reduction.unit_problem import UnitProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceSchedule:
    """How prices are looked for."""

    first_shift: int = 8  # the first price of everything tried, halvings of the largest net
    factor: int = 2  # between prices of everything
    worse: float = 0.8  # of the best scale's estimate: less than that is worse
    most_worse: int = 2  # scales on end, after which larger ones are no use
    scale_steps: int = 2  # to judge a scale by
    sample: int = 10  # units per step, drawn by weight
    step: float = 0.5  # of the price of everything, how much prices change in the first step
    slower: float = 8.0  # steps after which they change less
    decay: float = 0.7
    ceiling: float = 1.25  # of the price of everything, what values count up to
    least_share: float = 5e-4  # of it, what a net must have
    covered: float = 0.98  # of all weight, what values are asked for
    most_units: int = 1500  # that values are asked for
    small_shares: tuple[float, ...] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)  # see :func:`fewest`
    checks: int = 2  # how often all values are found
    search_share: float = 0.7  # of the time; the rest is kept for the last check


SCHEDULE = PriceSchedule()

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


class DeviceCountBound:
    """The bound of one problem; ``known_bytes`` is the transfer of some placement, ``note_bound``
    is called with every better bound in bytes.

    Raises ``OverflowError`` if bytes cannot be added up in 64 bits.
    """

    def __init__(
        self,
        problem: UnitProblem,
        known_bytes: int,
        note_bound: Callable[[int], None],
        seed: int = 0,
    ) -> None:
        self.problem = problem
        self.known = known_bytes
        self.note_bound = note_bound
        self.random = np.random.default_rng(seed)
        self.bound = 0
        if 4 * known_bytes * (problem.unit_count + len(problem.nets)) > _MOST or any(
            max(sum(row.weights), sum(row.capacity)) > _MOST for row in problem.rows
        ):
            raise OverflowError("bytes in all that do not fit into 64 bits")
        # units: those of the devices that most weight may use
        count = problem.unit_count
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
        self.held = held_by_most(problem, self.devices)
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
        largest = np.maximum(1, self.held[:, 0])
        row = int(np.argmax(np.where(there, self.weights, 0).sum(axis=1) / largest))
        return np.where(there, self.weights[row] / largest[row], 0.0)

    def _asked(self) -> Ints:
        """The heaviest units, which have nearly all weight."""
        order = np.argsort(-self.share, kind="stable")[: SCHEDULE.most_units]
        so_far = np.cumsum(self.share[order]) - self.share[order]
        is_asked = (so_far < SCHEDULE.covered * self.share.sum()) & (self.share[order] > 0)
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

    def run(self, deadline: float, steps: int) -> None:
        """Look for prices until ``deadline`` (of ``time.time()``), ``steps`` steps at most."""
        if self.known <= 0 or len(self.devices) < 2 or self.share.sum() <= 1.0 or self.is_open:
            return  # nothing is sent, one device holds everything, or the host anything
        now = time.time()
        until = now + SCHEDULE.search_share * (deadline - now)
        search = self._best_scale(until)
        if search is None:
            return
        for step in range(1, steps + 1):
            if time.time() > until:
                break
            search.step(until)
            if step * SCHEDULE.checks % steps < SCHEDULE.checks and step < steps:
                self._check(search, until)
        self._check(search, deadline)

    def _check(self, search: _Prices, deadline: float) -> None:
        proven = search.proven(deadline)
        if proven > self.bound:
            self.bound = proven
            self.note_bound(proven)

    def _best_scale(self, deadline: float) -> _Prices | None:
        """The search from the price of everything that a few steps find the most with: small ones
        come first, as they are found out in no time."""
        largest = max((net.bytes for net in self.problem.nets), default=0)
        found: dict[int, tuple[float, _Prices]] = {}
        worse = 0
        scale = max(1, largest >> SCHEDULE.first_shift)
        while scale <= 2 * self.known and time.time() < deadline:
            found[scale] = self._tried(scale, deadline)
            most = SCHEDULE.worse * max(value for value, _ in found.values())
            worse = worse + 1 if found[scale][0] < most else 0
            if worse == SCHEDULE.most_worse:
                break
            scale *= SCHEDULE.factor**2
        best = max(found, key=lambda scale: found[scale][0], default=None)
        if best is None:
            return None
        for scale in (best // SCHEDULE.factor, best * SCHEDULE.factor):
            if scale > 0 and time.time() < deadline:
                found[scale] = self._tried(scale, deadline)
        return max(found.values(), key=lambda pair: pair[0])[1]

    def _tried(self, scale: int, deadline: float) -> tuple[float, _Prices]:
        search = _Prices(self, scale)
        return max(search.step(deadline) for _ in range(SCHEDULE.scale_steps)), search


class _Prices:
    """Prices that begin in proportion to weight, ``scale`` bytes for everything."""

    def __init__(self, bound: DeviceCountBound, scale: int) -> None:
        self.bound = bound
        self.scale = scale
        is_asked = np.zeros(bound.problem.unit_count, np.bool_)
        is_asked[bound.asked] = True
        self.graph = CutGraph(
            bound.problem,
            is_asked,
            bound.outside,
            ceiling=max(1, int(SCHEDULE.ceiling * scale)),
            least_bytes=int(SCHEDULE.least_share * scale),
        )
        here = bound.graph_units(self.graph)
        self.nodes = np.unique(self.graph.node_of[here])
        share = np.zeros(self.graph.count)
        np.add.at(share, self.graph.node_of[here], bound.share[here])
        self.share = share
        self.price = np.floor(scale * share / max(share.sum(), 1e-9)).astype(np.int64)
        self.steps = 0

    def step(self, deadline: float) -> float:
        """One step along what a sample says; gives the sample's estimate of the bound, doubled."""
        if not len(self.nodes) or self.share.sum() <= 0.0:
            return 0.0
        total = float(self.share.sum())
        chances = self.share[self.nodes] / total
        drawn = self.bound.random.choice(self.nodes, SCHEDULE.sample, p=chances)
        arcs = self.graph.priced(self.price)
        demand, value, asked = np.zeros(self.graph.count), 0.0, 0
        for node in drawn:
            if asked and time.time() > deadline:
                break
            asked += 1
            least, inside = self.graph.least(node, arcs)
            value += least
            if least < self.graph.ceiling:
                demand[inside] += total
        slope = (demand / asked - 1.0) * self.share
        slope[(self.price <= 0) & (slope < 0)] = 0.0
        estimate = value * total / asked - float(self.price.sum())
        change = SCHEDULE.step * self.scale / (1 + self.steps / SCHEDULE.slower) ** SCHEDULE.decay
        moved = self.price + change * slope / max(1e-9, float(np.abs(slope).sum()))
        self.price = np.floor(np.maximum(0.0, moved)).astype(np.int64)
        self.steps += 1
        return estimate

    def proven(self, deadline: float) -> int:
        """The bound in bytes that the prices prove, with the values found until ``deadline``."""
        arcs = self.graph.priced(self.price)
        values = np.zeros(self.graph.count, np.int64)
        for node in self.nodes[np.argsort(-self.share[self.nodes], kind="stable")]:
            if time.time() > deadline:
                break
            values[node] = self.graph.least(node, arcs)[0]
        units = self.bound.graph_units(self.graph)
        levels = values[self.graph.node_of[units]]
        least = worth_of_levels(levels, self.bound.weights[:, units], self.bound.held)
        return max(0, -((int(self.price.sum()) - least) // 2))


def held_by_most(problem: UnitProblem, devices: frozenset[int]) -> Ints:
    """Per row, what the largest of ``devices`` holds, the two largest, and so on."""
    capacity = [
        sorted((row.capacity[device] for device in devices), reverse=True) for row in problem.rows
    ]
    return np.cumsum(np.array(capacity, np.int64).reshape(len(capacity), -1), axis=1)


def worth_of_levels(values: Ints, weights: Ints, held: Ints) -> int:
    """The integral over t > 0 of the fewest devices that hold all units whose value is at least t.

    ``values`` per unit, ``weights`` row by unit, ``held`` as :func:`held_by_most` gives it.
    """
    order = np.argsort(-values, kind="stable")
    if not len(weights) or not len(order):
        return 0
    counts = np.max([fewest(row[order], held[n]) for n, row in enumerate(weights)], axis=0)
    sorted_values = [int(value) for value in values[order]]
    total = 0
    for place, count in enumerate(counts.tolist()):
        after = sorted_values[place + 1] if place + 1 < len(sorted_values) else 0
        total += count * (sorted_values[place] - after)
    return total


def fewest(weights: Ints, held: Ints) -> Ints:
    """For the first unit, the first two, and so on, how many devices hold them at least: by their
    sum, or by how many are heavier than half of the largest device, with what finds no room beside
    those (S. Martello, P. Toth, Lower Bounds and Reduction Procedures for the Bin Packing Problem,
    Discrete Applied Mathematics 28 (1990), doi:10.1016/0166-218X(90)90094-S)."""
    loads = np.cumsum(weights)
    counts = np.searchsorted(held, loads, side="left") + (loads > 0)
    largest = int(held[0])
    for share in SCHEDULE.small_shares:
        small = int(share * largest)  # what weighs less counts as nothing
        alone = weights > largest - small
        big = (2 * weights > largest) & ~alone
        middle = (weights >= small) & ~alone & ~big
        room = np.cumsum(np.where(big, largest - weights, 0))
        left = np.maximum(0, np.cumsum(np.where(middle, weights, 0)) - room)
        more = -(-left // max(1, largest))
        counts = np.maximum(counts, np.cumsum(alone | big) + more)
    return np.asarray(counts, np.int64)
