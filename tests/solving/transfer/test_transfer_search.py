"""The search for the least transfer: it counts as the reduced problem does, keeps all rows, and
finds what enumeration finds."""

from __future__ import annotations

import random
import time

import numpy as np
from small_problems import best_by_enumeration, problem_of, random_problem

from placer.problem.placement_problem import PlacementProblem
from placer.solving.compiled.coarsening import coarser_levels
from placer.solving.compiled.gain_table import transfer_of
from placer.solving.reduction.contraction import contract
from placer.solving.reduction.unit_problem import reduce_to_units
from placer.solving.search.recursive_bisection import bisect_recursively, redraw
from placer.solving.search.unit_arrays import transfer_arrays
from placer.solving.transfer.transfer_search import TransferSearch


def test_a_coarser_problem_costs_the_same() -> None:
    """A placement of the coarse units costs what it costs when they are parted again."""
    for seed in range(60):
        problem = reduce_to_units(random_problem(seed, most_ops=14))
        arrays = transfer_arrays(problem)
        size = np.ones(problem.unit_count)
        apart = np.zeros(problem.unit_count, np.int64)
        rng = random.Random(seed)
        merged = np.arange(problem.unit_count)
        for coarser, new_of in coarser_levels(arrays, size, 1e9, 1, apart, lambda: 1):
            merged = new_of[merged]
            coarse = np.array([rng.randrange(problem.device_count) for _ in coarser.units.cost])
            value = transfer_of(coarser, coarse)
            assert value == problem.value(coarse[merged].tolist())


def test_the_search_finds_what_enumeration_finds() -> None:
    """From no start at all, on small problems that have a placement.  It is a heuristic: where caps
    are so tight that three units must change places at once it may miss, one in twenty at most."""
    found = missed = 0
    for seed in range(120):
        best = best_by_enumeration(random_problem(seed))
        problem = contract(reduce_to_units(random_problem(seed)))
        if best is None or not problem.unit_count:
            continue
        search = TransferSearch(problem, [], seed, lambda units: None)
        search.run(time.time() + 20.0, most_cycles=12)
        if search.population:
            found += 1
            units = search.population[0].device_of.tolist()
            assert problem.is_feasible(units), seed
            assert problem.value(units) == search.population[0].value
            assert problem.value(units) >= best, seed
            missed += problem.value(units) > best
    assert found > 45
    assert missed <= found / 20


def layered_problem(layers: int, width: int, devices: int) -> PlacementProblem:
    """Layers of ops that read the layer before, and some the one two before."""
    rng = random.Random(0)
    tensors = [
        (
            layer * width + i,
            [
                (layer + step) * width + rng.randrange(width)
                for step in (1, 1, 2)
                if layer + step < layers
            ],
            rng.randint(1, 100) * 1000,
        )
        for layer in range(layers - 1)
        for i in range(width)
    ]
    ops = layers * width
    resident = [rng.choice([0, 10, 1000]) for _ in range(ops)]
    capacity = [sum(resident) * 11 // (10 * devices)] * devices
    return problem_of(resident=resident, tensors=tensors, capacity=capacity)


def test_a_fresh_placement_of_seven_thousand_units() -> None:
    """7,000 units on four devices: two steps are feasible, and cost under 60% of segments in
    order."""
    problem = reduce_to_units(layered_problem(700, 10, 4))
    search = TransferSearch(problem, [], 0, lambda units: None)
    search.run(time.time() + 60.0, most_cycles=2)
    best = search.population[0].device_of.tolist()
    assert problem.is_feasible(best)
    assert problem.value(best) < 0.6 * problem.value([unit * 4 // 7000 for unit in range(7000)])


def test_a_redrawn_placement_keeps_what_is_elsewhere() -> None:
    """Units on devices that are not drawn anew stay, unless a move of single units pays."""
    problem = reduce_to_units(layered_problem(60, 10, 4))
    arrays = transfer_arrays(problem)
    random = np.random.default_rng(0)
    start = bisect_recursively(arrays, np.ones(600), random)
    for devices in ([0, 1], [1, 3], [0, 2, 3]):
        drawn = redraw(arrays, np.ones(600), start, np.array(devices), random)
        elsewhere = ~np.isin(start, devices)
        assert (drawn[elsewhere] == start[elsewhere]).mean() > 0.9


def test_a_placement_from_elsewhere_is_made_to_fit() -> None:
    """All units on one device, four times what it holds: what joins the population keeps all rows;
    a placement that fits comes out no worse."""
    problem = reduce_to_units(layered_problem(60, 10, 4))
    search = TransferSearch(problem, [], 0, lambda units: None)
    search.keep_mended([0] * problem.unit_count)
    assert search.best is not None
    mended = search.best.device_of.tolist()
    assert problem.is_feasible(mended)
    search.keep_mended(mended)
    assert search.best.value <= problem.value(mended)


def test_devices_may_stay_empty() -> None:
    """Ten equal layers on eight devices that hold two and a quarter: five devices have four cuts,
    but halving the devices and the layers alike ends with six of them or more."""
    layers, width = 10, 20
    count = layers * width
    tensors = [(op, [op + 1], 1 if (op + 1) % width == 0 else 100) for op in range(count - 1)]
    tensors += [
        (op, [other], 50)
        for op in range(count)
        if (other := op // width * width + (7919 * op + 13) % width) != op
    ]
    problem = reduce_to_units(
        problem_of(resident=[10] * count, tensors=tensors, capacity=[450] * 8)
    )
    for seed in range(4):
        search = TransferSearch(problem, [], seed, lambda units: None)
        search.run(time.time() + 60.0, most_cycles=10)
        assert search.best is not None
        assert search.best.value == 4
