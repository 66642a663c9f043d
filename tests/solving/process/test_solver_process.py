"""The solver process under stress: killed at any moment, held to its limits, repeated."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from small_problems import tangle

from placer.prediction.scoring import score
from placer.solving.process import clock
from placer.solving.process.child_search import one_search_process
from placer.solving.solution import SolverParameters, Status
from placer.solving.solver import solve

LIMITED = SolverParameters(time_limit_seconds=60.0, workers=1, work_limit=1)


def children() -> list[int]:
    """The process ids of this process's children that run a search."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            parent = int(folder.joinpath("stat").read_text().rpartition(")")[2].split()[1])
            is_ours = b"placer.processes" in folder.joinpath("cmdline").read_bytes()
        except OSError:  # it has ended meanwhile
            continue
        if parent == os.getpid() and is_ours:
            found.append(int(folder.name))
    return found


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the child in /proc")
def test_a_child_killed_at_any_moment_loses_nothing() -> None:
    """Killed before it has read the problem, while it compiles, searches or proves: the best
    placement so far is the answer, never worse than the hint, and no process is left."""
    problem = tangle(1)
    at_once = solve(problem, SolverParameters(time_limit_seconds=0.5))
    assert at_once.value is not None
    assert_no_process_is_left()  # else it is that one which is killed
    for seconds in (0.0, random.Random(2).uniform(0.1, 4.0)):
        killer = threading.Thread(target=kill_a_child_after, args=(seconds,), daemon=True)
        killer.start()
        solution = solve(problem, SolverParameters(time_limit_seconds=30.0), hint=at_once.device_of)
        killer.join()
        assert solution.status is Status.FEASIBLE
        assert [code for code, _ in solution.warnings] == ["solver_crashed"]
        assert solution.device_of is not None
        assert solution.value is not None
        assert not score(problem, solution.device_of).violations
        assert solution.value <= at_once.value
        assert_no_process_is_left()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the child in /proc")
def test_a_process_that_waits_for_searches_ends_with_the_last() -> None:
    """One process serves all searches of a block, and no later one finds it."""
    problem = tangle(5, units=60)
    with one_search_process():
        solve(problem, LIMITED)
        first = children()
        solve(problem, LIMITED)
        assert children() == first
    assert_no_process_is_left()
    solve(problem, LIMITED)
    assert_no_process_is_left()


def assert_no_process_is_left() -> None:
    """A process that was killed may take a moment to end."""
    give_up = clock.monotonic() + 5.0
    while children() and clock.monotonic() < give_up:
        time.sleep(0.01)
    assert children() == []


def kill_a_child_after(seconds: float) -> None:
    """Wait for a child, and so long, then kill it."""
    give_up = clock.monotonic() + 20.0
    while not children() and clock.monotonic() < give_up:
        time.sleep(0.01)
    time.sleep(seconds)
    for process in children():
        os.kill(process, signal.SIGKILL)


@pytest.mark.slow
def test_a_work_limit_gives_the_same_answer_every_time() -> None:
    """One worker, one seed and a limit in work instead of seconds: placement, value, bound and
    status are the same, whatever the machine does meanwhile; for step time too."""
    for objective in ("transfer", "step-time"):
        problem = replace(tangle(3, units=80), objective=objective)
        first, second = (replace(solve(problem, LIMITED), seconds=0.0) for _ in range(2))
        assert first.seconds < LIMITED.time_limit_seconds
        assert first == second
        assert first.warnings == ()


def test_seeds_of_any_size_are_taken() -> None:
    """CP-SAT takes those of 31 bits; others are as good as their last 31."""
    problem = tangle(2, units=30)
    solutions = [
        solve(problem, replace(LIMITED, seed=seed)) for seed in (5, 5 + (1 << 40), (1 << 63) - 1)
    ]
    assert [solution.warnings for solution in solutions] == [(), (), ()]
    assert solutions[0].device_of == solutions[1].device_of


def test_time_limits_are_kept() -> None:
    """Half a second and three, with a search that would take minutes; what is allowed beyond them
    is for a machine with other work."""
    problem = tangle(4, units=1500)
    for seconds in (0.5, 3.0):
        began = clock.monotonic()
        solution = solve(problem, SolverParameters(time_limit_seconds=seconds))
        assert clock.monotonic() - began < seconds + 10.0
        assert solution.device_of is not None
