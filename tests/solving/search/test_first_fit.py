"""First placements, without OR-Tools and without compiled code."""

from __future__ import annotations

import random

from small_problems import best_by_enumeration, problem_of, random_problem

from placer.solving.process import clock
from placer.solving.reduction.contraction import contract
from placer.solving.reduction.unit_problem import UnitProblem, reduce_to_units
from placer.solving.search.first_fit import adjacency_order, first_placement


def placed(problem: UnitProblem, *hints: list[int]) -> tuple[int, ...] | None:
    return first_placement(problem, hints, clock.monotonic() + 60.0)


def test_first_placements_keep_all_limits() -> None:
    """On 400 small problems no placement breaks a limit or beats the optimum, nine of ten that have
    one get one, and most get the best; where there is none, none is found."""
    found = best = possible = 0
    for seed in range(400):
        least = best_by_enumeration(random_problem(seed))
        problem = contract(reduce_to_units(random_problem(seed)))
        placement = placed(problem)
        if least is None:
            assert placement is None, seed
            continue
        possible += 1
        if placement is not None:
            assert problem.is_feasible(placement), seed
            assert problem.value(placement) >= least, seed
            found += 1
            best += problem.value(placement) == least
    assert found > 0.9 * possible
    assert best > 0.85 * possible


def test_hints_that_fit_are_kept_and_others_are_not() -> None:
    """The best of them is never lost; one that breaks a limit is never the answer."""
    for seed in range(100):
        problem = reduce_to_units(random_problem(seed))
        if not all(problem.allowed):
            continue
        rng = random.Random(seed)
        hints = [[rng.choice(devices) for devices in problem.allowed] for _ in range(9)]
        placement = placed(problem, *hints)
        values = [problem.value(hint) for hint in hints if problem.is_feasible(hint)]
        assert placement is None or problem.is_feasible(placement)
        if values:
            assert placement is not None
            assert problem.value(placement) <= min(values)


def test_a_chain_is_cut_at_its_narrow_place() -> None:
    """Where a device holds four of the six ops, not when it is full but where least crosses.

    a --5--> b --5--> c --1--> d --5--> e --5--> f
    """
    sizes = [5, 5, 1, 5, 5]
    chain = problem_of(
        resident=[1] * 6,
        tensors=[(op, [op + 1], size) for op, size in enumerate(sizes)],
        capacity=[4, 4],
    )
    assert placed(reduce_to_units(chain)) in ((0, 0, 0, 1, 1, 1), (1, 1, 1, 0, 0, 0))


def test_two_chains_that_take_turns_are_parted() -> None:
    """The order of the graph goes to and fro between them; the one by shared bytes does not.

    a --9--> c --9--> e
    b --9--> d --9--> f      a --1--> b
    """
    tensors = [(0, [2], 9), (2, [4], 9), (1, [3], 9), (3, [5], 9), (0, [1], 1)]
    problem = reduce_to_units(problem_of(resident=[1] * 6, tensors=tensors, capacity=[3, 3]))
    assert adjacency_order(problem) == [0, 2, 4, 1, 3, 5]
    placement = placed(problem)
    assert placement is not None
    assert problem.value(placement) == 1


def test_large_units_are_packed_first() -> None:
    """Filled in order, 2 2 3 3 on devices of five leave a three over; the heaviest first fit."""
    problem = reduce_to_units(
        problem_of(resident=[2, 2, 3, 3], tensors=[(0, [1], 1)], capacity=[5, 5])
    )
    placement = placed(problem)
    assert placement is not None
    assert placement[0] != placement[1]


def test_a_free_unit_follows_its_pinned_reader() -> None:
    """The weight of a layer that is pinned goes where its reader is, without any search.

    x --1--> a (GPU:0) --1--> b (GPU:1) <--8-- weight
    """
    problem = reduce_to_units(
        problem_of(
            resident=[1, 1, 1, 1],
            tensors=[(0, [1], 1), (1, [2], 1), (3, [2], 8)],
            capacity=[4, 4],
            allowed=[[0], [0], [1], [0, 1]],
        )
    )
    placement = placed(problem)
    assert placement is not None
    assert problem.value(placement) == 1
