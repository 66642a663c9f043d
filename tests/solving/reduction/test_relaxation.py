"""Simpler problems, held against trying every placement: what they prove holds."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from small_problems import feasible_placements, problem_of, random_problem, with_costs

from placer.problem.placement_problem import PlacementProblem
from placer.solving.reduction import relaxation
from placer.solving.reduction.relaxation import largest_quantum, relax
from placer.solving.reduction.unit_problem import UnitProblem, reduce_to_units


def with_many_sizes(problem: PlacementProblem, seed: int) -> PlacementProblem:
    """The problem with tensors from a byte to a megabyte, so that rounding matters."""
    rng = random.Random(seed)
    return replace(
        problem,
        tensors=tuple(
            replace(tensor, bytes=tensor.bytes * rng.choice([0, 1, 7, 1000, 123_457]))
            for tensor in problem.tensors
        ),
    )


@pytest.mark.parametrize("first_seed", range(0, 2000, 500))
def test_the_least_cost_of_the_simpler_problem_is_a_lower_bound(
    first_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On 2,000 random problems (caps, pins, groups, moments, unequal devices, spilling), from any
    placement, at any loss and with as much sand as there may be: never above the least cost, never
    without a placement; and often below, or the test would show nothing."""
    monkeypatch.setattr(relaxation, "LIGHT_SHARE", 0.3)
    monkeypatch.setattr(relaxation, "_GRAIN_SHARE", 1.0)
    simpler = 0
    for seed in range(first_seed, first_seed + 500):
        problem = with_many_sizes(random_problem(seed, most_ops=6), seed)
        units = reduce_to_units(with_costs(problem, seed) if seed % 5 == 0 else problem)
        placements = feasible_placements(units)
        if not placements:
            continue
        least = min(map(units.value, placements))
        known = placements[seed % len(placements)]
        for loss in (0.0, 0.1, 1.0):
            relaxed = relax(units, known, loss)
            bound = min(map(relaxed.value, feasible_placements(relaxed)))
            assert bound <= least, (seed, loss)
            assert relaxed.is_feasible(relaxed.project(units.expand(known))), (seed, loss)
            simpler += bound < least
    assert simpler > 20


def test_the_known_placement_loses_no_more_than_its_share() -> None:
    """The quantum is as large as the share allows: a tenth of the cost may be lost by rounding,
    and the next larger size would lose more."""
    for seed in range(300):
        units = reduce_to_units(with_many_sizes(random_problem(seed), seed))
        for known in feasible_placements(units)[::7]:
            quantum = largest_quantum(units, known, 0.1)
            lost = [
                units.value(known) - rounded(units, size).value(known)
                for size in sorted({quantum, *(n.bytes for n in units.nets)})
                if size >= quantum
            ]
            assert lost[0] <= 0.1 * units.value(known), seed
            assert all(each > 0.1 * units.value(known) for each in lost[1:]), seed


def rounded(problem: UnitProblem, quantum: int) -> UnitProblem:
    return replace(
        problem,
        nets=tuple(replace(n, bytes=n.bytes // quantum * quantum) for n in problem.nets),
    )


def test_light_units_and_small_tensors_vanish() -> None:
    """A chain of heavy ops, each with a hundred light readers of a few bytes: what is left to
    decide is the chain."""
    heavy, light = 6, 100
    resident = [10**6] * heavy + [1] * heavy * light
    tensors = [(op, [op + 1], 10**6) for op in range(heavy - 1)]
    tensors += [(op, [heavy + op * light + n], 4) for op in range(heavy) for n in range(light)]
    units = reduce_to_units(
        problem_of(resident=resident, tensors=tensors, capacity=[3 * 10**6 + 400] * 2)
    )
    known = [int(op >= 3) for op in range(heavy)]
    known += [int(op >= 3) for op in range(heavy) for _ in range(light)]
    relaxed = relax(units, known, 0.01)
    assert relaxed.unit_count <= heavy + 1
    assert relaxed.value(relaxed.project(known)) == units.value(known) == 10**6
