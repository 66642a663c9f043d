"""Placements found without OR-Tools."""

from __future__ import annotations

import random
import time

from small_problems import best_by_enumeration, problem_of, random_problem

from placer.solving.reduction.contraction import contract
from placer.solving.reduction.unit_problem import reduce_to_units
from placer.solving.search.initial import initial_placement
from placer.solving.search.local_search import improve
from placer.solving.search.occupancy import Incidence, Occupancy
from placer.solving.search.repair import repair


def far_away() -> float:
    return time.monotonic() + 60.0


def test_initial_placements_are_feasible_and_mostly_optimal() -> None:
    """On 400 small problems no placement breaks a limit or beats the optimum; most reach it."""
    reached = possible = 0
    for seed in range(400):
        problem = random_problem(seed)
        reduced = contract(reduce_to_units(problem))
        found = initial_placement(reduced, far_away())
        best = best_by_enumeration(problem)
        if best is None:
            assert found is None, seed
            continue
        possible += 1
        if found is not None:
            assert reduced.is_feasible(found), seed
            assert reduced.value(found) >= best[1], seed
            reached += reduced.value(found) == best[1]
    assert reached > 0.85 * possible


def test_occupancy_agrees_with_the_definition_after_random_moves() -> None:
    """Value, loads and predicted costs of moves are those computed from scratch."""
    rng = random.Random(1)
    for seed in range(60):
        reduced = reduce_to_units(random_problem(seed))
        if not all(reduced.allowed):
            continue
        state = Occupancy(Incidence(reduced), [rng.choice(a) for a in reduced.allowed])
        for _ in range(20):
            unit = rng.randrange(reduced.unit_count)
            target = rng.choice(reduced.allowed[unit])
            if target != state.device_of[unit]:
                state.move(unit, target)
            assert state.value == reduced.value(state.device_of)
            assert (state.excess() == 0) == reduced.is_feasible(state.device_of)


def test_local_search_finds_the_narrow_place() -> None:
    """Two rings of ten ops joined by one small tensor, begun badly, end up one per device."""
    ring = [(op, [(op + 1) % 10], 5) for op in range(10)]
    other = [(10 + op, [10 + (op + 1) % 10], 5) for op in range(10)]
    problem = problem_of(
        resident=[1] * 20, tensors=[*ring, *other, (0, [10], 1)], capacity=[11, 11]
    )
    reduced = reduce_to_units(problem)
    start = [op // 10 for op in range(20)]
    start[4], start[14] = 1, 0
    state = Occupancy(Incidence(reduced), start)
    improve(state, far_away())
    assert state.value == 1


def test_repair_moves_the_cheapest_unit() -> None:
    """An overfull device gives up the unit whose move costs least."""
    problem = problem_of(
        resident=[2, 2, 2], tensors=[(0, [1], 9), (1, [2], 1)], capacity=[4, 4], allowed=None
    )
    state = Occupancy(Incidence(reduce_to_units(problem)), [0, 0, 0])
    assert repair(state)
    assert state.device_of == [0, 0, 1]
