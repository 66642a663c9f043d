"""Splits of an order into segments, against all there are."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from small_problems import random_problem

from placer.solving.reduction.unit_problem import UnitProblem, reduce_to_units
from placer.solving.search.linear_split import LinearSplit


def drawn(seed: int) -> tuple[UnitProblem, list[int], list[list[float]]]:
    """A problem, its units in some order, and room on three devices for some of them."""
    rng = random.Random(seed)
    units = reduce_to_units(random_problem(seed, most_ops=7))
    order = rng.sample(range(units.unit_count), units.unit_count)
    room = [[rng.uniform(0.2, 1.1) * sum(row.weights) for _ in range(3)] for row in units.rows]
    return units, order, room


def costs(units: UnitProblem, order: list[int], room: list[list[float]], count: int) -> list[int]:
    """What crosses the cuts of every split over the first devices that there is room for."""
    found = []
    for cuts in itertools.combinations_with_replacement(range(len(order) + 1), count - 1):
        ends = [0, *cuts, len(order)]
        segments = [order[a:b] for a, b in itertools.pairwise(ends)]
        if all(
            sum(row.weights[unit] for unit in segment) <= limits[device] + 1e-9
            for row, limits in zip(units.rows, room, strict=True)
            for device, segment in enumerate(segments)
        ):
            inner = [cut for a, cut in itertools.pairwise(ends[:-1]) if cut > a]
            found.append(sum(crossing(units, order, cut) for cut in inner))
    return found


def crossing(units: UnitProblem, order: list[int], cut: int) -> int:
    before = set(order[:cut])
    pins = [{net.producer, *net.consumers} for net in units.nets]
    sizes = [net.bytes for net in units.nets]
    return sum(s for s, ends in zip(sizes, pins, strict=True) if ends & before and ends - before)


@pytest.mark.parametrize("seed", range(150))
def test_splits_are_the_best_and_over_the_fewest(seed: int) -> None:
    """Of all that there is room for, over all three devices and over as few as hold all."""
    units, order, room = drawn(seed)
    split = LinearSplit(units, np.array(order, np.int64))
    found = split.over([0, 1, 2], room)
    every = costs(units, order, room, 3)
    assert (found is None) == (not every)
    fewest, count = split.over_fewest([0, 1, 2], room)
    assert (fewest is None) == (not every)
    if found is None or fewest is None:
        return
    for devices, all_costs in ((found, every), (fewest, costs(units, order, room, count))):
        assert devices == sorted(devices)
        changes = [i for i in range(1, len(order)) if devices[i] != devices[i - 1]]
        assert sum(crossing(units, order, cut) for cut in changes) == min(all_costs)
    assert count == 1 or not costs(units, order, room, count - 1)
