"""The CP-SAT model against trying every placement."""

from __future__ import annotations

from dataclasses import replace

import pytest
from searches_in_children import search_each
from small_problems import best_by_enumeration, problem_of, random_problem

from placer.solving.process.child_search import search_in_child
from placer.solving.process.search_run import Answer
from placer.solving.reduction.contraction import contract
from placer.solving.reduction.unit_problem import UnitProblem, reduce_to_units
from placer.solving.solution import SolverParameters, Status

SEARCH = "placer.solving.transfer.transfer_process:search_transfer"
SEARCH_OF_FEW = "placer.solving.transfer.transfer_process:search_few_units"


@pytest.fixture(scope="module")
def random_batch() -> list[tuple[int, UnitProblem, Answer]]:
    seeds = range(300)
    reduced = [contract(reduce_to_units(random_problem(seed))) for seed in seeds]
    hints = [
        [[devices[seed % len(devices)] for devices in problem.allowed]]
        if seed % 2 and all(problem.allowed)
        else []
        for seed, problem in zip(seeds, reduced, strict=True)
    ]
    batch = list(zip(reduced, hints, strict=True))
    results = search_each(SEARCH, batch)
    return list(zip(seeds, reduced, results, strict=True))


def test_cp_sat_proves_what_enumeration_finds(
    random_batch: list[tuple[int, UnitProblem, Answer]],
) -> None:
    """On 300 problems, with good, bad and no hints: the same optimum, bound and infeasibility."""
    infeasible = 0
    for seed, reduced, result in random_batch:
        best = best_by_enumeration(random_problem(seed))
        if best is None:
            assert result.status is Status.INFEASIBLE, seed
            infeasible += 1
            continue
        device_of = result.device_of
        assert result.status is Status.OPTIMAL, seed
        assert device_of is not None
        assert reduced.is_feasible(device_of), seed
        assert reduced.value(device_of) == best == result.lower_bound, seed
    assert 10 < infeasible < 150


def test_where_nothing_fits_a_hint_does_not_end_cp_sat() -> None:
    """Eight ops weigh more than three devices hold, and the search begins at a placement that
    breaks caps: CP-SAT proves that nothing fits; it used to abort where its strategies take
    turns."""
    sizes = range(20, 28)
    problem = problem_of(
        resident=[*sizes],
        tensors=[(op, [op + 1], 5) for op in range(7)],
        capacity=[int(0.95 * sum(sizes) / 3)] * 3,
    )
    units = reduce_to_units(problem)
    parameters = SolverParameters(work_limit=5)
    found = search_in_child(SEARCH_OF_FEW, units, [(0,) * 8], parameters, 20.0)
    assert (found.status, found.warnings) == (Status.INFEASIBLE, ())


def test_huge_sizes_are_scaled_and_bounds_stay_true() -> None:
    """Beyond int64 the placement is still right and the bound is not above the optimum; where
    weights were rounded nothing is claimed as proven."""
    huge = 2**62
    problem = problem_of(
        resident=[3, 3, 3],
        tensors=[(0, [1], 3 * huge + 1), (1, [2], 2 * huge + 1)],
        capacity=[6, 6],
    )
    units = reduce_to_units(problem)
    heavy = replace(problem, resident_bytes=(huge, huge, huge), capacity_bytes=(2 * huge, 2 * huge))
    tight = replace(problem, resident_bytes=(huge + 1,) * 3, capacity_bytes=(2 * huge + 1,) * 2)
    costs, weights, none = search_each(
        SEARCH, [(reduce_to_units(p), []) for p in (problem, heavy, tight)]
    )
    assert units.value(costs.device_of) == 2 * huge + 1
    assert 1.99 * huge < costs.lower_bound <= 2 * huge + 1
    assert reduce_to_units(heavy).is_feasible(weights.device_of)
    assert weights.lower_bound is None
    assert weights.status is Status.UNKNOWN
    assert (none.status, none.device_of) == (Status.UNKNOWN, None)
