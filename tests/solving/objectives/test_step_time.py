"""The least step time against trying every placement, and the compiled simulation against the
scorer's."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest
from searches_in_children import search_each
from small_problems import problem_of, random_problem

from cost_models.clusters import parse_cluster
from placer.prediction.scoring import score
from placer.prediction.times.step_time import longest_step_seconds, step_orders, step_seconds
from placer.problem.placement_problem import PlacementProblem
from placer.solving.compiled import step_simulation
from placer.solving.objectives.step_time.problem import StepProblem
from placer.solving.objectives.step_time.search import StepSearch, to_program
from placer.solving.process.search_run import Answer
from placer.solving.solution import SolverParameters, Status
from placer.solving.solver import solve

SEARCH = "placer.solving.objectives.step_time.search:search_steps"


def timed_problem(seed: int, most_ops: int = 6) -> PlacementProblem:
    """A small random problem with times and links of which no two are equal."""
    rng = random.Random(seed)
    problem = random_problem(seed, most_ops=most_ops)
    devices = len(problem.device_names)

    def matrix(low: float, high: float) -> tuple[tuple[float, ...], ...]:
        return tuple(tuple(rng.uniform(low, high) for _ in range(devices)) for _ in range(devices))

    return replace(
        problem,
        objective="step-time",
        seconds=tuple(
            tuple(rng.uniform(0.5, 3.0) for _ in range(devices)) for _ in problem.op_names
        ),
        bandwidth=matrix(1.0, 8.0),
        latency=matrix(0.0, 0.5),
        parallel_ops=tuple(rng.choices([1, 2], k=devices)),
    )


def best_by_enumeration(problem: PlacementProblem) -> float | None:
    groups = list(dict.fromkeys(problem.group))
    found = []
    for devices in itertools.product(range(len(problem.device_names)), repeat=len(groups)):
        at = dict(zip(groups, devices, strict=True))
        device_of = [at[group] for group in problem.group]
        if not score(problem, device_of).violations:
            found.append(longest_step_seconds(problem, device_of))
    return min(found, default=None)


@pytest.fixture(scope="module")
def batch() -> list[tuple[int, StepProblem, Answer]]:
    problems = {}
    for seed in range(80):
        step = StepProblem(timed_problem(seed))
        choices = itertools.product(*step.units.allowed)
        start = next((units for units in choices if step.is_feasible(units)), None)
        if start is not None:
            problems[seed] = step, [start]
    answers = search_each(SEARCH, list(problems.values()))
    return [
        (seed, step, answer)
        for (seed, (step, _)), answer in zip(problems.items(), answers, strict=True)
    ]


@pytest.mark.slow
def test_the_search_finds_what_enumeration_finds(
    batch: list[tuple[int, StepProblem, Answer]],
) -> None:
    """From any start, the least step time of all placements; the bound is never above it."""
    assert len(batch) > 35
    for seed, step, result in batch:
        best = best_by_enumeration(step.problem)
        device_of, bound = result.device_of, result.lower_bound
        assert device_of is not None
        assert isinstance(bound, float)
        assert step.is_feasible(device_of), seed
        assert step.value(device_of) == pytest.approx(best), seed
        assert best is not None
        assert bound <= best * (1 + 1e-9), seed


def test_the_compiled_simulation_is_the_scorers() -> None:
    """Two implementations of one definition: any placement of any problem takes equally long, in
    any order."""
    for seed in range(150):
        problem = timed_problem(seed, most_ops=14)
        rng = random.Random(seed)
        ops = len(problem.op_names)
        device_of = np.array([rng.randrange(len(problem.device_names)) for _ in range(ops)])
        for order in step_orders(ops):
            program = to_program(problem, range(ops), order)
            timing = step_simulation.Timing(np.zeros(ops), np.full(ops, -1, np.int64))
            seconds = step_simulation.step_seconds(program, device_of, timing)
            assert seconds == pytest.approx(step_seconds(problem, device_of, order)), seed


def test_a_placement_is_judged_by_the_slowest_of_a_few_orders() -> None:
    """Of two ops that are ready at once, one sends what a long op on the other device waits for:
    3 seconds if it goes first, 4 if it goes second."""
    problem = replace(
        problem_of(resident=[1] * 3, tensors=[(0, [2], 1)], capacity=[10, 10]),
        seconds=((1.0, 9.0), (1.0, 9.0), (9.0, 2.0)),
        bandwidth=((1e9,) * 2,) * 2,
        latency=((0.0,) * 2,) * 2,
    )
    assert step_seconds(problem, [0, 0, 1]) == pytest.approx(3.0)
    assert step_seconds(problem, [0, 0, 1], [1, 0, 2]) == pytest.approx(4.0)
    assert longest_step_seconds(problem, [0, 0, 1]) == pytest.approx(4.0)
    assert len(step_orders(3)) > len(step_orders(30_000)) > 0


def test_branches_go_to_two_devices_and_ties_to_less_transfer() -> None:
    """Two long branches run side by side; the answer is proven, as no step is shorter than the
    critical path."""
    fork = problem_of(
        resident=[1] * 4,
        tensors=[(0, [1, 2], 1), (1, [3], 1), (2, [3], 1)],
        capacity=[10, 10],
    )
    fork = replace(
        fork,
        objective="step-time",
        seconds=((0.0, 0.0), (5.0, 5.0), (5.0, 5.0), (0.0, 0.0)),
        bandwidth=((1e9,) * 2,) * 2,
        latency=((0.0,) * 2,) * 2,
    )
    solution = solve(fork, SolverParameters(time_limit_seconds=15.0))
    assert solution.device_of is not None
    assert solution.device_of[1] != solution.device_of[2]
    assert solution.value == pytest.approx(5.0)
    assert solution.status is Status.OPTIMAL


def test_what_sends_much_is_on_a_pair_that_nvlink_joins() -> None:
    """On a DGX-1 two ops of which a card holds one: a tensor of 1 GB takes 20 ms over two NVLinks,
    40 ms over one, 83 ms over PCIe."""
    cluster = parse_cluster("DGX-1-V100-16GB")
    names = [device.name for device in cluster.devices]
    pair = problem_of(
        resident=[2, 2],
        tensors=[(0, [1], 10**9)],
        capacity=[3] * len(names),
        allowed=[list(range(8))] * 2,
    )
    pair = replace(
        pair,
        objective="step-time",
        bandwidth=tuple(tuple(cluster.link(a, b).bandwidth for b in names) for a in names),
        latency=tuple(tuple(cluster.link(a, b).latency for b in names) for a in names),
    )
    solution = solve(pair, SolverParameters(time_limit_seconds=15.0, work_limit=2))
    assert solution.device_of is not None
    source, target = (names[device] for device in solution.device_of)
    assert cluster.link(source, target).bandwidth == 50e9
    assert solution.value == pytest.approx(0.02, rel=1e-2)
    assert best_by_enumeration(pair) == pytest.approx(solution.value)


def test_fresh_placements_keep_the_units_of_a_scale_together() -> None:
    """HEFT at any scale: what is one unit there has one device, limits hold, and the value is that
    of the whole step."""
    found = 0
    for seed in range(60):
        step = StepProblem(timed_problem(seed, most_ops=40))
        search = StepSearch(step, [], seed, lambda _: None)
        search.coarsest_units = 4
        levels = search.levels(None, None)
        merged = np.arange(step.units.unit_count)
        for level in levels[1:]:
            merged = level.new_of[merged]
        for fresh in search.fresh(levels[-1]):
            units = fresh.device_of[merged]
            assert step.is_feasible(units.tolist()), seed
            assert fresh.value == pytest.approx(step.value(units.tolist())), seed
            found += len(levels) > 1
    assert found > 10
