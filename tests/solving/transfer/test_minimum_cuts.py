"""Minimum cuts against trying every placement, in an interpreter without TensorFlow."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from searches_in_children import in_a_child
from small_problems import feasible_placements, problem_of, random_problem, with_costs

from placer.solving.reduction.unit_problem import UnitProblem, reduce_to_units


def branch(
    problems: list[tuple[UnitProblem, tuple[int, ...]]], most_cases: int | None
) -> list[dict[str, Any]]:
    """For each problem and first placement: the placements kept, the bounds, whether the last is
    proven."""
    answers: list[dict[str, Any]] = in_a_child("branch_all", (problems, most_cases))
    return answers


def two_device_problems(count: int) -> list[tuple[UnitProblem, list[tuple[int, ...]]]]:
    """Random problems of two devices (caps, pins, groups, moments, spilling; sizes from a byte to a
    terabyte) with their feasible placements, of which there are some."""
    found = []
    for seed in range(count):
        problem = random_problem(seed, most_ops=8, spill="auto" if seed % 7 == 0 else "never")
        rng = random.Random(seed)
        sizes = [1, 7, 123_457] if seed % 3 else [10**6, 10**9 + 1, 10**12]
        tensors = (replace(t, bytes=t.bytes * rng.choice(sizes)) for t in problem.tensors)
        problem = replace(problem, tensors=tuple(tensors))
        units = reduce_to_units(with_costs(problem, seed) if seed % 5 == 0 else problem)
        placements = feasible_placements(units) if units.device_count == 2 else []
        if placements:
            found.append((units, placements))
    return found


def test_branching_proves_what_enumeration_finds() -> None:
    """To the end from any placement the least cost, proven; before the end a bound not above it."""
    problems = two_device_problems(1500)
    assert len(problems) > 400
    starts = [(units, places[seed % len(places)]) for seed, (units, places) in enumerate(problems)]
    early = branch(starts, 1)
    for (units, placements), first, last in zip(problems, early, branch(starts, None), strict=True):
        least = min(map(units.value, placements))
        assert last["proven"]
        assert last["bounds"][-1] == least == units.value(last["kept"][-1])
        for answer in (first, last):
            assert all(units.is_feasible(kept) for kept in answer["kept"])
            assert answer["bounds"] == sorted(answer["bounds"])
            assert answer["bounds"][-1] <= least
            assert answer["proven"] == (answer["bounds"][-1] == units.value(answer["kept"][-1]))
    assert sum(not answer["proven"] for answer in early) > 10


def test_heavy_units_decide() -> None:
    """Sixty small units around six heavy ones, of which each device holds three: a linear
    relaxation halves everything and proves nothing; a few cases do."""
    heavy, small = 6, 60
    rng = random.Random(1)
    tensors = [(unit, [heavy + 10 * unit], 50 + unit) for unit in range(heavy)]
    tensors += [(heavy + n, [heavy + (n + 1) % small], rng.randint(20, 90)) for n in range(small)]
    problem = reduce_to_units(
        problem_of(
            resident=[100] * heavy + [1] * small, tensors=tensors, capacity=[345, 345], host=1
        )
    )
    known = tuple(unit % 2 for unit in range(heavy)) + tuple(n % 2 for n in range(small))
    assert problem.is_feasible(known)
    (answer,) = branch([(problem, known)], 200)
    assert answer["proven"]
    assert problem.value(answer["kept"][-1]) < problem.value(known) / 4
