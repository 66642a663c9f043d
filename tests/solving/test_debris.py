"""The check for debris that fails ``benchmarks/large``, which asks nothing of the search, on small
problems: it finds some in placements drawn at random, and none in tidied ones."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from types import ModuleType

import pytest
from small_problems import problem_of, random_problem

from placer.prediction.scoring import score
from placer.problem.placement_problem import PlacementProblem
from placer.solving.tidying import tidy

RUN = Path(__file__).parents[2] / "benchmarks" / "large" / "run.py"


@pytest.fixture(scope="module")
def run() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmarks_large_run", RUN)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def debris(run: ModuleType, problem: PlacementProblem, device_of: tuple[int, ...]) -> int:
    found: int = run.debris(problem, list(device_of), list(score(problem, device_of).peak_bytes))
    return found


def test_what_is_tidied_has_none(run: ModuleType) -> None:
    untidy = 0
    for seed in range(300):
        problem, rng = random_problem(seed, most_ops=10), random.Random(seed)
        for _ in range(20):
            device_of = tuple(rng.choice(allowed) for allowed in problem.allowed)
            if not score(problem, device_of).violations:
                untidy += debris(run, problem, device_of) > 0
                assert debris(run, problem, tidy(problem, device_of)) == 0
    assert untidy > 50


def test_a_handful_of_weightless_ops_is_debris(run: ModuleType) -> None:
    """One op without bytes on a third device, which the second device waits for, and one alone."""
    problem = problem_of(
        resident=[9, 9, 0, 0],
        tensors=[(0, [1], 5)],
        capacity=[9, 9, 9, 0],
        allowed=[[0, 1, 2]] * 4,
        control_edges=[(2, 1)],
    )
    assert debris(run, problem, (0, 1, 2, 2)) == 2
    assert debris(run, problem, (0, 1, 1, 0)) == 0


def test_what_may_not_move_or_has_no_room_is_none(run: ModuleType) -> None:
    pinned = problem_of(
        resident=[2, 3], tensors=[(0, [1], 1)], capacity=[9, 9, 9], allowed=[[0], [1]]
    )
    assert debris(run, pinned, (0, 1)) == 0
    full = problem_of(
        resident=[5, 5], tensors=[(0, [1], 1)], capacity=[9, 9, 9], allowed=[[0, 1]] * 2
    )
    assert debris(run, full, (0, 1)) == 0
