"""The exact reference of the benchmark: against enumeration."""

from __future__ import annotations

import pytest
from fitting.test_rematerialisation import (
    beside_problem,
    least_by_enumeration,
    random_problem,
)
from searches_in_children import search_each

from placer.solving.solution import Status

SEARCH = "benchmarks.rematerialisation.reference.annealing:search_sequences"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["kept", "any order", "beside"])
def test_the_fewest_seconds_are_those_of_enumeration(kind: str) -> None:
    """Kept in order, they are proven, and so is that nothing fits; in any order they are found."""
    problems = [
        beside_problem(seed)
        if kind == "beside"
        else random_problem(seed, keep_order=kind == "kept")
        for seed in range(25)
    ]
    answers = search_each(SEARCH, [(problem, []) for problem in problems], seconds=1.5)
    costs = 0
    for seed, (problem, answer) in enumerate(zip(problems, answers, strict=True)):
        best = least_by_enumeration(problem)
        if best is None:
            assert answer.device_of is None, seed
            assert answer.status in (Status.INFEASIBLE, Status.UNKNOWN), seed
            continue
        assert answer.device_of is not None, seed
        assert problem.is_feasible(answer.device_of), seed
        assert problem.value(answer.device_of) == best, seed
        assert answer.lower_bound <= best, seed
        costs += best > problem.least_seconds
        assert kind == "any order" or answer.status is Status.OPTIMAL, seed
    assert costs >= {"kept": 4, "any order": 1, "beside": 2}[kind]
