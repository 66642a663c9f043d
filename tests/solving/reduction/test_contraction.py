"""Exact reductions, held against trying every placement."""

from __future__ import annotations

import itertools
import random

import pytest
from small_problems import problem_of, random_problem

from placer.solving.reduction.contraction import contract
from placer.solving.reduction.unit_problem import UnitProblem, reduce_to_units


def feasible_placements(problem: UnitProblem) -> list[tuple[int, ...]]:
    return [p for p in itertools.product(*problem.allowed) if problem.is_feasible(p)]


def least_value(problem: UnitProblem) -> int | None:
    return min(map(problem.value, feasible_placements(problem)), default=None)


@pytest.mark.parametrize("first_seed", range(0, 1000, 250))
def test_contraction_keeps_the_optimum(first_seed: int) -> None:
    """On 1,000 random problems the contracted problem has the least value of the whole one."""
    smaller = 0
    for seed in range(first_seed, first_seed + 250):
        units = reduce_to_units(random_problem(seed))
        contracted = contract(units)
        assert least_value(contracted) == least_value(units), seed
        smaller += contracted.unit_count < units.unit_count
    assert smaller > 50


def test_contraction_of_weightless_tangles_keeps_the_optimum() -> None:
    """Where nearly all ops weigh nothing and read each other in circles, joining many of them in
    one sweep is still right."""
    rng = random.Random(7)
    for trial in range(1500):
        ops = rng.randint(3, 7)
        problem = problem_of(
            resident=[0] * ops,
            tensors=[
                (rng.randrange(ops), rng.sample(range(ops), rng.randint(1, 2)), rng.randint(1, 5))
                for _ in range(rng.randint(ops - 1, ops + 3))
            ],
            capacity=[1, 1],
            allowed=[rng.choice([[0], [1], [0, 1], [0, 1], [0, 1]]) for _ in range(ops)],
        )
        units = reduce_to_units(problem)
        assert least_value(contract(units)) == least_value(units), (trial, problem)


@pytest.mark.parametrize("first_seed", range(0, 300, 150))
def test_an_incumbent_only_removes_worse_placements(first_seed: int) -> None:
    """With any known placement as incumbent the optimum survives, and the known one projects to
    a placement that costs no more."""
    for seed in range(first_seed, first_seed + 150):
        units = reduce_to_units(random_problem(seed, most_ops=6))
        for known in feasible_placements(units)[::5]:
            contracted = contract(units, units.value(known))
            assert least_value(contracted) == least_value(units), seed
            per_op = units.expand(known)
            projected = contracted.project(per_op)
            assert contracted.is_feasible(projected), seed
            assert contracted.value(projected) <= units.value(known), seed


def test_expansion_keeps_feasibility_and_value() -> None:
    """Whatever is feasible after contraction is feasible before, at the same value."""
    for seed in range(150):
        units = reduce_to_units(random_problem(seed))
        contracted = contract(units)
        for placement in feasible_placements(contracted)[:20]:
            before = units.project(contracted.expand(placement))
            assert units.is_feasible(before), seed
            assert units.value(before) == contracted.value(placement), seed


def test_a_chain_without_weights_becomes_one_unit() -> None:
    """Ops that weigh nothing and only pass a tensor on join the op that makes it.

    0 --8--> 1 --8--> 2 --4--> 3     0 and 3 weigh 5 bytes each
    """
    problem = problem_of(
        resident=[5, 0, 0, 5],
        tensors=[(0, [1], 8), (1, [2], 8), (2, [3], 4)],
        capacity=[5, 5],
    )
    contracted = contract(reduce_to_units(problem))
    assert contracted.unit_of == (0, 0, 0, 1)
    assert [net.bytes for net in contracted.nets] == [4]


def test_a_live_op_is_not_weightless() -> None:
    """An op whose output is alive at some moment keeps its own unit."""
    problem = problem_of(
        resident=[5, 0, 5],
        tensors=[(0, [1], 8), (1, [2], 4)],
        capacity=[6, 6],
        moments=[{1: 1}],
    )
    assert contract(reduce_to_units(problem)).unit_count == 3


def test_a_tensor_dearer_than_the_incumbent_is_never_cut() -> None:
    """Two heavy units joined by more bytes than a known placement costs become one."""
    problem = problem_of(
        resident=[3, 3, 3, 3], tensors=[(0, [1], 9), (2, [3], 9), (1, [2], 2)], capacity=[6, 6]
    )
    units = reduce_to_units(problem)
    assert contract(units).unit_count == 4
    assert contract(units, incumbent_value=2).unit_of == (0, 0, 1, 1)
