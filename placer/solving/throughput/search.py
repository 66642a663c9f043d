"""A population of placements, improved by annealing at several scales.

Fresh placements come from contiguous segments of topological orders at the coarsest level; then
one of two cycles runs until the deadline: from a fresh placement, or from one of the best with only
units of one device joined.  Each cycle anneals at every level from the coarsest on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from placer.solving.compiled.annealing import anneal
from placer.solving.compiled.arrays import (
    Arrays,
    Devices,
    Floats,
    Ints,
    Nets,
    Units,
    incidence,
    ragged,
)
from placer.solving.compiled.coarsening import coarsen
from placer.solving.compiled.loads import keeps_rows, new_state
from placer.solving.compiled.segments import split_by_load
from placer.solving.throughput.problem import LoadProblem

_POPULATION = 6
_FRESH_SHARE = 0.4
_COARSEST_UNITS = 16
_LEAST_SHRINK = 0.9
_CLUSTER_SHARE = 0.5
"""Of an equal share of the work: no cluster is larger."""

_MOST_SPLIT_UNITS = 700
"""Segments of an order take seconds and memory that grow with the square of its length."""

_FIRST_ORDERS = 40
_CYCLE_ORDERS = 5
_FIRST_STEPS_PER_UNIT = 2_000
_MOST_FIRST_STEPS = 200_000
_STEPS_PER_UNIT = 20
_MOST_IDLE_CYCLES = 100
"""Without any improvement, the rest of the time is better spent on a proof."""

_FRESH_TEMPERATURE = 0.2
_TEMPERATURES = (0.02, 0.1)
_POWERS = (8.0, 16.0, 32.0)
_TEMPERATURE_FALL = 0.6

OnBetter = Callable[[Sequence[int]], None]


@dataclass(frozen=True, slots=True)
class _Found:
    value: float
    device_of: Ints


def to_arrays(problem: LoadProblem) -> Arrays:
    """The problem for compiled code.  Sizes become floats: exact up to 2**53 bytes."""
    allowed = np.zeros((problem.unit_count, problem.device_count), np.bool_)
    for unit, devices in enumerate(problem.allowed):
        allowed[unit, list(devices)] = True
    start, pins = ragged([stream.consumers for stream in problem.streams])
    nets = Nets(
        np.array([stream.producer for stream in problem.streams], np.int64),
        start,
        pins,
        np.array([stream.bytes for stream in problem.streams], np.float64),
        np.array([stream.messages for stream in problem.streams], np.float64),
    )
    units = Units(
        np.array(problem.seconds, np.float64),
        np.array([row.weights for row in problem.rows], np.float64),
        allowed,
        *incidence(problem.unit_count, nets),
    )
    machine = Devices(
        np.array([row.capacity for row in problem.rows], np.float64),
        np.array(problem.latency, np.float64),
        np.array(problem.seconds_per_byte, np.float64),
        np.array(problem.occupied, np.bool_),
        problem.multicast,
    )
    for device in range(problem.device_count):
        machine.latency[device, device] = machine.seconds_per_byte[device, device] = 0.0
    return Arrays(units, nets, machine)


class LoadSearch:
    """The search over one problem; ``on_better`` is told of every better placement."""

    def __init__(
        self, problem: LoadProblem, hint: Sequence[int] | None, seed: int, on_better: OnBetter
    ) -> None:
        self.arrays = to_arrays(problem)
        self.random = np.random.default_rng(seed)
        self.on_better = on_better
        self.population: list[_Found] = []
        if hint is not None:
            self.keep(_judge(self.arrays, np.array(hint, np.int64)))
        for found in self.fresh(self.arrays, _FIRST_ORDERS):
            self.keep(found)

    def run(self, deadline: float, most_cycles: int | None = None) -> None:
        """Cycles until ``deadline`` (of ``time.time()``), ``most_cycles``, or no hope."""
        cycles = idle = 0
        while self.population and time.time() < deadline and cycles != most_cycles:
            least = self.population[0].value
            if self.random.random() < _FRESH_SHARE:
                self.cycle(None, _FRESH_TEMPERATURE)
            else:
                parent = self.population[self.random.integers(len(self.population))]
                self.cycle(parent, float(self.random.choice(_TEMPERATURES)))
            cycles += 1
            idle = 0 if self.population[0].value < least else idle + 1
            if idle == _MOST_IDLE_CYCLES:
                return

    def cycle(self, parent: _Found | None, temperature: float) -> None:
        """One pass through all levels; what comes out joins the population if it is good."""
        levels, maps = self.levels(parent)
        if parent is None:
            starts = self.fresh(levels[-1], _CYCLE_ORDERS)
            if not starts:
                return
            device_of = min(starts, key=lambda found: found.value).device_of
        else:
            device_of = parent.device_of
            for new_of in maps:
                device_of = _carry(device_of, new_of)
        power = float(self.random.choice(_POWERS))
        for depth in range(len(levels) - 1, -1, -1):
            device_of = self._anneal(levels[depth], device_of, temperature, power)
            temperature *= _TEMPERATURE_FALL
            if depth:
                device_of = device_of[maps[depth - 1]]
        self.keep(_judge(self.arrays, device_of))

    def _anneal(self, arrays: Arrays, device_of: Ints, temperature: float, power: float) -> Ints:
        free = np.flatnonzero(arrays.units.allowed.sum(axis=1) > 1)
        if not len(free):
            return device_of
        steps = min(_MOST_FIRST_STEPS, _FIRST_STEPS_PER_UNIT * len(free))
        steps += _STEPS_PER_UNIT * len(free)
        seed = int(self.random.integers(1 << 31))
        _, best = anneal(arrays, device_of, free, seed, steps, temperature, power)
        return best

    def levels(self, parent: _Found | None) -> tuple[list[Arrays], list[Ints]]:
        """The problem at every scale; with ``parent``, units on different devices stay apart."""
        levels, maps = [self.arrays], list[Ints]()
        apart = np.zeros(len(self.arrays.units.seconds), np.int64)
        if parent is not None:
            apart = parent.device_of
        total = self.arrays.units.seconds.min(axis=1).sum()
        most = _CLUSTER_SHARE * total / self.arrays.units.seconds.shape[1]
        while len(apart) > _COARSEST_UNITS:
            size = levels[-1].units.seconds.min(axis=1)
            seed = int(self.random.integers(1 << 31))
            coarser, new_of = coarsen(levels[-1], size, most, _COARSEST_UNITS, seed, apart)
            if len(coarser.units.seconds) > _LEAST_SHRINK * len(apart):
                break
            apart = _carry(apart, new_of)
            levels.append(coarser)
            maps.append(new_of)
        return levels, maps

    def fresh(self, arrays: Arrays, orders: int) -> list[_Found]:
        """Feasible placements with one segment per device along some topological orders."""
        pinned = arrays.units.allowed.sum(axis=1) == 1
        free = np.flatnonzero(~pinned)
        if not 0 < len(free) <= _MOST_SPLIT_UNITS:
            return []
        widest = arrays.units.allowed[free].all(axis=0)
        found = []
        for number in range(orders):
            order = self.order(arrays, shuffled=number > 0)
            order = order[~pinned[order]]
            sequence = self.random.permutation(np.flatnonzero(widest)).astype(np.int64)
            value, device_at = split_by_load(arrays, order, sequence)
            if np.isfinite(value):
                device_of = arrays.units.allowed.argmax(axis=1).astype(np.int64)
                device_of[order] = device_at
                found.append(_judge(arrays, device_of))
        return [each for each in found if np.isfinite(each.value)]

    def order(self, arrays: Arrays, *, shuffled: bool) -> Ints:
        """The units in the given order, or by depth-first search from where nothing comes in."""
        count = len(arrays.units.seconds)
        if not shuffled:
            return np.arange(count)
        priority = self.random.random(count)
        sources = np.diff(arrays.units.in_start)
        roots = np.lexsort((priority, sources))
        return _depth_first(arrays, roots, priority)

    def keep(self, found: _Found) -> None:
        """Among the best few different ones, if it is."""
        if not np.isfinite(found.value):
            return
        if not self.population or found.value < self.population[0].value:
            self.on_better(found.device_of.tolist())
        known = any(abs(found.value - other.value) < 1e-12 for other in self.population)
        if not known:
            self.population.append(found)
            self.population.sort(key=lambda each: each.value)
            del self.population[_POPULATION:]


def _judge(arrays: Arrays, device_of: Ints) -> _Found:
    """The placement with its largest load; infinite if it breaks a row."""
    state = new_state(arrays, device_of)
    fits = all(keeps_rows(arrays, state, device) for device in range(len(state.load)))
    return _Found(float(state.load.max()) if fits else np.inf, device_of)


def _carry(values: Ints, new_of: Ints) -> Ints:
    carried: Ints = np.zeros(int(new_of.max()) + 1, np.int64)
    carried[new_of] = values
    return carried


def _depth_first(arrays: Arrays, roots: Ints, priority: Floats) -> Ints:
    """Reverse postorder: topological where the units have no cycle."""
    nets = arrays.nets
    outs, start = arrays.units.outs, arrays.units.out_start
    seen = np.zeros(len(roots), np.bool_)
    order: list[int] = []

    def successors(unit: int) -> list[int]:
        pins = {
            int(pin)
            for net in outs[start[unit] : start[unit + 1]]
            for pin in nets.pins[nets.pin_start[net] : nets.pin_start[net + 1]]
        }
        return sorted(pins, key=lambda pin: float(priority[pin]))

    for root in roots.tolist():
        if seen[root]:
            continue
        seen[root] = True
        stack = [(root, iter(successors(root)))]
        while stack:
            unit, waiting = stack[-1]
            following = next((pin for pin in waiting if not seen[pin]), None)
            if following is None:
                order.append(unit)
                stack.pop()
            else:
                seen[following] = True
                stack.append((following, iter(successors(following))))
    return np.array(order[::-1], np.int64)
