"""Two devices: branch and bound with minimum cuts.

Without capacities, the least transfer between two devices is a minimum cut: a net costs its bytes
if it has pins on both sides, a unit that has one device only is a terminal
(:mod:`placer.solving.bounds.hypergraph_cuts`).  A capacity is dualised:

    cut(S) + l * (weight on the device - capacity),  l >= 0

costs no feasible placement more than its cut, and is again a minimum cut, with l * weight as the
cost of having a unit on that device; so its least value over all S is a lower bound for every l.
As a function of l it is concave and piecewise linear, and its maximum is where the lines of a
placement that is too heavy and of one that is not meet (J. E. Kelley, The Cutting-Plane Method for
Solving Convex Programs, 1960, doi:10.1137/0108053).  What those two placements place differently
is where the bound is weak: the heaviest such unit is put on either device, and both cases are
bounded in the same way.  A few heavy units usually decide.

This is the bound of linear relaxation after the same branching, but a flow takes milliseconds where
a linear program takes seconds.
"""

import heapq
import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from placer.solving.bounds.hypergraph_cuts import HypergraphCuts
from placer.solving.compiled.arrays import Ints, ragged
from placer.solving.reduction.equal_devices import interchangeable_devices
from placer.solving.reduction.unit_problem import UnitProblem
from placer.solving.transfer.cp_sat import SAFE_SUM
from placer.solving.transfer.schedule import SCHEDULE

Sides = npt.NDArray[np.int8]
"""The device of every unit: 0, 1, or :data:`FREE`."""

FREE = -1
_CLOSE = 1e-9
_ROUNDING = 1e-12
"""Relative; more than what a few products of floating-point numbers lose."""


class Prices(NamedTuple):
    """``of_unit`` is what each unit costs on each device (device by unit), ``offset`` what every
    placement costs besides."""

    of_unit: Ints
    offset: int = 0


class CutNetwork:
    """Placements on two devices as cuts: a placement is an array of 0 and 1 per unit, which has its
    ``prices`` in multiples of ``1 / scale`` bytes, as all costs here.

    Raises ``OverflowError`` if costs cannot be added up in 64 bits.
    """

    def __init__(self, problem: UnitProblem) -> None:
        if problem.device_count != 2:
            raise ValueError(f"two devices, not {problem.device_count}")
        count = problem.unit_count
        self.only = np.array([d[0] if len(d) == 1 else FREE for d in problem.allowed], np.int8)
        self.weights = np.array([row.weights for row in problem.rows], np.int64)
        self.weights = self.weights.reshape(len(problem.rows), count)
        self.capacity = np.array([row.capacity for row in problem.rows], np.int64).reshape(-1, 2)
        self.bytes = np.array([net.bytes for net in problem.nets], np.int64)
        pins = [(net.producer, *net.consumers) for net in problem.nets]
        self.start, self.pins = ragged(pins)
        total = sum(net.bytes for net in problem.nets) + sum(map(max, problem.cost))
        spare_bits = SAFE_SUM.bit_length() - 1 - total.bit_length() - count.bit_length()
        if spare_bits < 0:
            raise OverflowError(f"costs of {total} bytes in all, too many for {count} units")
        self.scale = 1 << min(16, spare_bits)
        self.most_price = self.scale * (total + 1)
        costs = np.array(problem.cost, np.int64).reshape(count, 2)
        self.prices = Prices(self.scale * np.ascontiguousarray(costs.T))
        sizes = (self.scale * self.bytes).tolist()
        self.cuts = HypergraphCuts(count, zip(pins, sizes, strict=True))

    def cost(self, side: Sides, prices: Prices) -> int:
        """Returns the cost of a placement, times ``scale``."""
        total = prices.offset + sum(int(prices.of_unit[d, side == d].sum()) for d in (0, 1))
        if not len(self.bytes):
            return total
        at = side[self.pins]
        least = np.minimum.reduceat(at, self.start[:-1])
        most = np.maximum.reduceat(at, self.start[:-1])
        return total + self.scale * int(self.bytes[least != most].sum())

    def loads(self, side: Sides) -> Ints:
        """The weight on each device (row by device); that of units which are ``FREE`` counts
        nowhere."""
        return np.stack([self.weights[:, side == device].sum(axis=1) for device in (0, 1)], axis=1)

    def minimum(self, fixed: Sides, prices: Prices) -> Sides:
        """A placement of least cost with the units that are not ``FREE`` as they are."""
        is_free = fixed == FREE
        dearer = np.where(is_free, prices.of_unit[0] - prices.of_unit[1], 0)  # on the first device
        ends = (np.flatnonzero(fixed == device) for device in (0, 1))
        _, is_first = self.cuts.least(dearer, *ends)
        return np.where(is_free, (~is_first).astype(np.int8), fixed)

    def dualised(self, given: Prices, limit: tuple[int, int], multiplier: float) -> Prices:
        """The prices with the weight on a device at ``multiplier``, rounded down, and what the
        capacity gives back, rounded up; ``limit`` is the row and the device."""
        (row, device), price = limit, given.of_unit.copy()
        added = multiplier * self.weights[row] * (1 - _ROUNDING)
        price[device] += np.minimum(added, self.most_price).astype(np.int64)
        given_back = multiplier * int(self.capacity[limit]) * (1 + _ROUNDING)
        return Prices(price, given.offset - math.ceil(given_back))

    def propagate(self, fixed: Sides) -> Sides | None:
        """Units that fit on one device only, beside those that are there, are there; ``None`` if
        one fits nowhere."""
        while True:
            left = self.capacity - self.loads(fixed)
            if (left < 0).any():
                return None
            fits = np.asarray((self.weights[:, :, None] <= left[:, None, :]).all(axis=0))
            stuck = (fixed == FREE) & ~fits.all(axis=1)
            if not stuck.any():
                return fixed
            if not fits[stuck].any(axis=1).all():
                return None
            fixed = np.where(stuck, np.argmax(fits, axis=1).astype(np.int8), fixed)


@dataclass(frozen=True, slots=True, eq=False)
class _Case:
    """Placements with some units ``fixed``: none costs less than ``bound`` bytes.  ``branching`` is
    the unit that the bound is weak at, ``None`` if the bound is the cost of one of them."""

    fixed: Sides
    bound: int
    branching: int | None


@dataclass(frozen=True, slots=True, eq=False)
class _Line:
    """A placement with what it costs at the multipliers so far, and its weight over a capacity."""

    side: Sides
    cost: int
    excess: int


class BranchAndBound:
    """The search over one problem of two devices, from a placement that keeps all rows.

    ``keep(device_of)`` is called with every better placement, ``note_bound(bytes)`` with every
    better bound.  Raises ``ValueError`` for another number of devices.
    """

    def __init__(
        self,
        problem: UnitProblem,
        known: Sequence[int],
        keep: Callable[[Sequence[int]], None],
        note_bound: Callable[[int], None],
    ) -> None:
        self.network = CutNetwork(problem)
        self.best = int(problem.value(known))
        self.keep = keep
        self.note_bound = note_bound
        self.bound = 0
        self.root = self._without_symmetry(known, bool(interchangeable_devices(problem)))

    def _without_symmetry(self, known: Sequence[int], is_symmetric: bool) -> Sides:
        """Returns the sides fixed in all cases: of two devices that can swap names, one has the
        heaviest unit."""
        fixed = self.network.only.copy()
        free = np.flatnonzero(fixed == FREE)
        if is_symmetric and len(free):
            leader = free[np.argmax(self.network.weights[:, free].sum(axis=0))]
            fixed[leader] = known[leader]
        return fixed

    def run(self, deadline: float, most_cases: int | None = None) -> bool:
        """Branch until ``deadline`` (of ``time.time()``) or ``most_cases`` times, the case with the
        least bound first; whether the best placement is proven to be."""
        order = itertools.count()
        root = self.bounded(self.root, 0, deadline)
        waiting = [] if root is None else [(root.bound, next(order), root)]
        for _ in itertools.count() if most_cases is None else range(most_cases):
            if not waiting or time.time() > deadline:
                break
            case = waiting[0][2]
            self._raise_bound(min(case.bound, self.best))
            if case.bound >= self.best or case.branching is None:
                break
            children = []
            for device in (0, 1):
                fixed = case.fixed.copy()
                fixed[case.branching] = device
                children.append(self.bounded(fixed, case.bound, deadline))
            if time.time() > deadline:
                break  # a child may have been left half bounded
            heapq.heappop(waiting)
            for child in children:
                if child is not None and child.bound < self.best:
                    heapq.heappush(waiting, (child.bound, next(order), child))
        self._raise_bound(min([self.best, *(bound for bound, _, _ in waiting)]))
        return self.bound >= self.best

    def _raise_bound(self, bound: int) -> None:
        if bound > self.bound:
            self.bound = bound
            self.note_bound(bound)

    def bounded(self, fixed: Sides, least: int, deadline: float) -> _Case | None:
        """The case with its bound, at least ``least``; ``None`` if no placement is one of it."""
        network = self.network
        propagated = network.propagate(fixed)
        if propagated is None:
            return None
        fixed, prices = propagated, network.prices
        side = network.minimum(fixed, prices)
        self.offer(side)
        bound, branching = max(least, -(-network.cost(side, prices) // network.scale)), None
        for _ in range(SCHEDULE.most_multipliers):
            over = network.loads(side) - network.capacity
            if (over <= 0).all() or bound >= self.best or time.time() > deadline:
                break
            share = over / np.maximum(1, network.capacity)
            row, device = divmod(int(np.argmax(share)), 2)
            heavy, light, prices, proven = self._ascend(
                fixed, prices, side, (row, device), deadline
            )
            side, bound = light.side, max(bound, proven)
            if branching is None:
                weak = (heavy.side != light.side) & (fixed == FREE)
                branching = int(np.argmax(np.where(weak, network.weights[row], -1)))
        return _Case(fixed, bound, branching)

    def _ascend(
        self, fixed: Sides, given: Prices, side: Sides, limit: tuple[int, int], deadline: float
    ) -> tuple[_Line, _Line, Prices, int]:
        """Looks for the multiplier of one capacity (``limit``: its row and device) that raises the
        bound most, from the cheapest placement, ``side``.

        Returns the last placement that is too heavy and the last that is not, the prices of the
        best multiplier found, and the bytes that they prove.
        """
        network, (row, device) = self.network, limit

        def line(side: Sides) -> _Line:
            excess = network.weights[row, side == device].sum() - network.capacity[limit]
            return _Line(side, network.cost(side, given), int(excess))

        best, bound, heavy = given, 0, line(side)
        light = line(np.where(fixed == FREE, np.int8(1 - device), fixed))
        for _ in range(SCHEDULE.most_flows):
            multiplier = (light.cost - heavy.cost) / (heavy.excess - light.excess)
            if multiplier <= 0 or bound >= self.best or time.time() > deadline:
                break
            prices = network.dualised(given, limit, multiplier)
            found = network.minimum(fixed, prices)
            value = network.cost(found, prices)
            proven = -(-value // network.scale)
            if proven > bound:
                bound, best = proven, prices
            self.offer(found)
            meeting = heavy.cost + multiplier * heavy.excess
            if value >= meeting - _CLOSE * abs(meeting):
                break
            last = line(found)
            heavy, light = (last, light) if last.excess > 0 else (heavy, last)
        return heavy, light, best, bound

    def offer(self, side: Sides) -> None:
        """A placement that may be better than the best, and need not keep all rows."""
        if (self.network.loads(side) > self.network.capacity).any():
            return
        value = self.network.cost(side, self.network.prices) // self.network.scale
        if value < self.best:
            self.best = value
            self.keep(side.tolist())
