"""The least bottleneck against trying every placement."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
from searches_in_children import search_each
from small_problems import random_problem

from placer.prediction.scoring import busy_seconds, score
from placer.problem.placement_problem import PlacementProblem
from placer.solving.objectives.throughput.problem import LoadProblem, to_loads
from placer.solving.process.search_run import Answer
from placer.solving.solution import SolverParameters, Status
from placer.solving.solver import solve

SEARCH = "placer.solving.objectives.throughput.search:search_loads"


def timed_problem(seed: int) -> PlacementProblem:
    """A small random problem with seconds, unequal links and, now and then, multicast."""
    rng = random.Random(seed)
    problem = random_problem(seed)
    devices = len(problem.device_names)
    same = rng.random() < 0.5
    times = [[rng.choice([0.0, 1.0, 2.0, 5.0]) for _ in range(devices)] for _ in problem.op_names]
    speeds = [[rng.choice([1.0, 2.0, 4.0]) for _ in range(devices)] for _ in range(devices)]
    delays = [[rng.choice([0.0, 0.5]) for _ in range(devices)] for _ in range(devices)]
    return replace(
        problem,
        objective="throughput",
        seconds=tuple((row[0],) * devices if same else tuple(row) for row in times),
        bandwidth=tuple((2.0,) * devices if same else tuple(row) for row in speeds),
        latency=tuple((0.5,) * devices if same else tuple(row) for row in delays),
        parallel_ops=(1,) * devices if same else tuple(rng.choices([1, 2], k=devices)),
        occupied=(True,) * devices if same else tuple(rng.choices([True, False], k=devices)),
        multicast=rng.random() < 0.5,
    )


def best_by_enumeration(problem: PlacementProblem) -> float | None:
    groups = list(dict.fromkeys(problem.group))
    found = []
    for devices in itertools.product(range(len(problem.device_names)), repeat=len(groups)):
        at = dict(zip(groups, devices, strict=True))
        device_of = [at[group] for group in problem.group]
        scored = score(problem, device_of)
        if not scored.violations:
            found.append(scored.bottleneck_seconds)
    return min(found, default=None)


def first_fit(loads: LoadProblem) -> tuple[int, ...] | None:
    """Any placement that keeps the limits."""
    for devices in itertools.product(*loads.units.allowed):
        if loads.is_feasible(devices):
            return devices
    return None


@pytest.fixture(scope="module")
def batch() -> list[tuple[int, Answer]]:
    problems = {}
    for seed in range(70):
        loads = to_loads(timed_problem(seed))
        start = first_fit(loads)
        if start is not None:
            problems[seed] = loads, [start]
    answers = search_each(SEARCH, list(problems.values()))
    return list(zip(problems, answers, strict=True))


@pytest.mark.slow
def test_search_and_bound_meet_at_what_enumeration_finds(
    batch: list[tuple[int, Answer]],
) -> None:
    """From any start: the optimum, proven; and the bound that needs no search is never above."""
    assert len(batch) > 30
    for seed, result in batch:
        problem = timed_problem(seed)
        loads = to_loads(problem)
        best = best_by_enumeration(problem)
        device_of, bound = result.device_of, result.lower_bound
        assert device_of is not None
        assert isinstance(bound, float)
        assert loads.is_feasible(device_of), seed
        assert loads.value(device_of) == pytest.approx(best), seed
        assert result.status is Status.OPTIMAL, seed
        assert best is not None
        assert best * (1 - 1e-5) - 1e-12 <= bound <= best * (1 + 1e-9) + 1e-12, seed
        assert loads.least() <= best * (1 + 1e-9), seed


def test_units_cost_what_the_scorer_says() -> None:
    """The reduced problem and the scorer, which knows no reduction, agree on every device."""
    for seed in range(100):
        problem = timed_problem(seed)
        loads = to_loads(problem)
        rng = random.Random(seed)
        units = [rng.randrange(loads.units.device_count) for _ in loads.units.allowed]
        assert loads.loads(units) == pytest.approx(busy_seconds(problem, loads.units.expand(units)))


def test_throughput_uses_both_devices_where_transfer_would_use_one() -> None:
    """Four equal ops in a row: the least transfer keeps them together, the least bottleneck does
    not; the answer is proven and the scorer's."""
    from small_problems import problem_of

    chain = problem_of(
        resident=[1] * 4,
        tensors=[(0, [1], 4), (1, [2], 1), (2, [3], 4)],
        capacity=[10, 10],
    )
    chain = replace(
        chain, objective="throughput", seconds=((1.0, 1.0),) * 4, bandwidth=((10.0,) * 2,) * 2
    )
    solution = solve(chain, SolverParameters(time_limit_seconds=20.0))
    assert solution.status is Status.OPTIMAL
    assert solution.value == pytest.approx(2.1)
    assert solution.lower_bound == pytest.approx(2.1)
    assert solution.device_of is not None
    assert sorted(solution.device_of) == [0, 0, 1, 1]
