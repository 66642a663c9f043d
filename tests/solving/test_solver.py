"""Whole solves: statuses, values, children that fail."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from searches_in_children import ENVIRONMENT
from small_problems import (
    best_by_enumeration,
    problem_of,
    random_problem,
    search_exhaustively,
    tangle,
    with_costs,
)

import placer
from placer.errors import PlacerError, UsageError
from placer.prediction.scoring import score
from placer.problem.placement_problem import PlacementProblem, check, from_json, to_json
from placer.solving import solver as solver_module
from placer.solving.process import clock
from placer.solving.process.child_search import end_ahead
from placer.solving.solution import Solution, SolverParameters, Status
from placer.solving.solver import register_solver, solve, solver_names
from placer.solving.transfer import solving
from placer.solving.warm_up import sample_problem

QUICK = SolverParameters(time_limit_seconds=10.0, workers=1)


TWO_PAIRS = problem_of(
    resident=[2, 2, 2, 2], tensors=[(0, [1], 5), (2, [3], 5), (1, [2], 1)], capacity=[4, 4]
)
"""Costs 1 at best, and sums alone do not tell."""


@pytest.fixture
def perfect_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solving, "search_in_child", search_exhaustively)


@pytest.fixture
def temporary_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Where the solver keeps its files; it must be empty again at the end."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    end_ahead()  # it has the environment of another test
    yield tmp_path
    end_ahead()
    assert list(tmp_path.iterdir()) == []


def assert_right(problem: PlacementProblem, solution: Solution, context: object = None) -> None:
    """The solution is what enumeration finds, and says so."""
    best = best_by_enumeration(problem)
    if best is None:
        assert solution.status is Status.INFEASIBLE, context
        assert solution.device_of is None
        return
    assert solution.status is Status.OPTIMAL, context
    assert solution.device_of is not None
    scored = score(problem, solution.device_of)
    assert not scored.violations, context
    assert solution.value == scored.cost == best == solution.lower_bound, context


@pytest.mark.usefixtures("perfect_child")
@pytest.mark.parametrize("spill", ["never", "auto"])
def test_solutions_are_those_of_enumeration(spill: str) -> None:
    """With a perfect search inside, 300 solves agree with trying every placement: the least cost,
    its bound, and infeasibility; half of the problems have slower work and prices of messages."""
    on_host = 0
    for seed in range(300):
        problem = random_problem(seed, most_ops=6, spill=spill)
        if seed % 2:
            problem = with_costs(problem, seed)
        solution = solve(problem, QUICK)
        assert_right(problem, solution, seed)
        places = zip(problem.allowed, solution.device_of or (), strict=False)
        on_host += any(device not in allowed for allowed, device in places)
    assert (on_host > 30) == (spill == "auto")


def test_a_request_more_and_a_tighter_cap_never_lower_the_least_cost() -> None:
    """Pins, less memory and ``--offload never`` remove placements, and change the cost of none."""
    raised = 0
    for seed in range(300):
        problem = with_costs(random_problem(seed, most_ops=5, spill="auto"), seed)
        tighter = [
            replace(problem, spill="never"),
            replace(problem, capacity_bytes=tuple(cap * 3 // 4 for cap in problem.capacity_bytes)),
            replace(problem, group=tuple(min(1, group) for group in problem.group)),
        ]
        least = best_by_enumeration(problem)
        for other in tighter:
            cost = best_by_enumeration(other)
            if cost is not None:
                assert least is not None, seed
                assert cost >= least, seed
                raised += cost > least
    assert raised > 50


def test_a_real_solve_proves_the_optimum(temporary_folder: Path) -> None:
    """CP-SAT in its child proves the optimum where the first placement leaves it open, with and
    where something must go to the host."""
    assert_right(TWO_PAIRS, solve(TWO_PAIRS, QUICK))
    problem = problem_of(
        resident=[5, 3, 2, 2],
        tensors=[(0, [1], 2), (1, [2, 3], 4), (2, [3], 1)],
        capacity=[4, 4, 50],
        allowed=[[0, 1]] * 4,
        spillable=[True] * 4,
        spill="auto",
    )
    solution = solve(problem, QUICK)
    assert_right(problem, solution)
    assert solution.device_of is not None
    assert 2 in solution.device_of


def test_one_worker_and_one_seed_give_one_placement() -> None:
    """Two solves with the same seed and one worker agree op by op."""
    first, second = (solve(TWO_PAIRS, QUICK) for _ in range(2))
    assert first.device_of == second.device_of


def no_child(*_: object) -> Solution:
    raise AssertionError("no child should have been started")


@pytest.mark.parametrize(
    "problem",
    [
        problem_of(resident=[1, 2], tensors=[(0, [1], 5)], capacity=[9]),
        problem_of(resident=[1, 2], tensors=[(0, [1], 5)], capacity=[9, 9], allowed=[[0], [1]]),
        problem_of(resident=[1, 2], tensors=[], capacity=[2, 2]),
        problem_of(resident=[], tensors=[], capacity=[1]),
        problem_of(resident=[5], tensors=[], capacity=[4, 4]),
        problem_of(
            resident=[1, 1, 1],
            tensors=[(0, [1], 5), (1, [2], 3)],
            capacity=[9, 9, 9],
            allowed=[[2], [0, 1], [0, 1]],
        ),
    ],
    ids=["one device", "all pinned", "no tensors", "no ops", "too large", "fed"],
)
def test_trivial_problems_need_no_child(
    problem: PlacementProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What sums decide is decided at once, and counts as proven."""
    monkeypatch.setattr(solving, "search_in_child", no_child)
    assert_right(problem, solve(problem, QUICK))


FAILURES = ("killed", "broken", "mute", "nonsense", "malformed", "asleep", "hung")


@pytest.fixture
def failing_search(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Path]:
    """Makes a function of ``searches_in_children`` the search; where one writes its process."""
    marker = tmp_path.with_suffix(".pid")
    monkeypatch.setenv("PYTHONPATH", ENVIRONMENT["PYTHONPATH"])
    monkeypatch.setenv("PLACER_TEST_MARKER", str(marker))

    def choose(name: str) -> Path:
        for search in ("_SEARCH", "_SEARCH_OF_FEW"):
            monkeypatch.setattr(solving, search, f"searches_in_children:{name}")
        return marker

    return choose


@pytest.mark.parametrize("name", FAILURES)
def test_a_failing_search_leaves_the_first_placement(
    name: str, failing_search: Callable[[str], Path], temporary_folder: Path
) -> None:
    """However the search ends, the placement found before it is returned, with a warning if its
    process failed, in time."""
    failing_search(name)
    started = clock.monotonic()
    limit = 3.0 if name in ("asleep", "hung") else 20.0
    solution = solve(TWO_PAIRS, replace(QUICK, time_limit_seconds=limit))
    assert clock.monotonic() - started < limit + 10.0
    assert solution.status is Status.FEASIBLE
    assert solution.lower_bound is None
    codes = {"hung": ["solver_stopped"], "asleep": []}
    assert [code for code, _ in solution.warnings] == codes.get(name, ["solver_crashed"])
    assert solution.device_of is not None
    assert not score(TWO_PAIRS, solution.device_of).violations


def test_what_a_search_told_before_it_died_is_kept(
    failing_search: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    temporary_folder: Path,
) -> None:
    """A search that is killed after a better placement has not worked for nothing."""
    failing_search("killed_after_an_answer")
    monkeypatch.setattr(solving, "first_placement", lambda *_: None)
    solution = solve(TWO_PAIRS, QUICK)
    assert (solution.value, solution.lower_bound) == (1, 1)
    assert solution.warnings[0][0] == "solver_crashed"


def test_where_cp_sat_crashes_the_search_goes_on_without_it(
    failing_search: Callable[[str], Path], temporary_folder: Path
) -> None:
    """CP-SAT aborts, and the search has not worked for nothing: what it finds without CP-SAT is the
    answer, with a warning, and later searches of the same problem leave CP-SAT out."""
    failing_search("with_cp_sat_that_aborts")
    problem = tangle(1, units=200)
    parameters = SolverParameters(time_limit_seconds=100.0, workers=1, work_limit=1)
    first = solve(problem, replace(parameters, time_limit_seconds=0.0))
    solution = solve(problem, parameters)
    without = solve(problem, replace(parameters, without_cp_sat=True))
    assert (solution.device_of, without.warnings) == (without.device_of, ())
    assert first.value is not None
    assert solution.value is not None
    assert solution.value <= first.value  # which is a first plan already
    ((code, message),) = solution.warnings
    assert code == "solver_crashed"
    assert "CP-SAT crashed, and the search went on without it" in message
    assert parameters.after(solution).without_cp_sat
    assert not parameters.after(without).without_cp_sat


def test_an_interrupted_solve_leaves_no_child_behind(
    failing_search: Callable[[str], Path], temporary_folder: Path
) -> None:
    """Control-C during a solve ends the search and removes its files."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by nohup, say
    marker = failing_search("hung")

    def interrupt() -> None:
        while not (marker.exists() and marker.read_text()):
            time.sleep(0.05)
        import _thread

        _thread.interrupt_main()

    threading.Thread(target=interrupt, daemon=True).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            solve(TWO_PAIRS, replace(QUICK, time_limit_seconds=30.0))
    finally:
        signal.signal(signal.SIGINT, handler)
    with pytest.raises(ProcessLookupError):
        os.kill(int(marker.read_text()), 0)


@pytest.mark.slow
def test_tensorflow_imported_first_does_not_crash_a_solve(tmp_path: Path) -> None:
    """OR-Tools dies in a process that imported TensorFlow before; a solve there does not, even
    beside files that shadow what the solver imports."""
    (tmp_path / "numpy.py").write_text("raise ImportError('shadowed')")
    (tmp_path / "problem.json").write_text(to_json(TWO_PAIRS))
    root = Path(placer.__file__).parent.parent
    script = tmp_path / "elsewhere" / "user_script.py"
    script.parent.mkdir()
    script.write_text(
        f"import sys; sys.path.append({str(root)!r})\n"
        "import tensorflow\n"
        "from placer.problem.placement_problem import from_json\n"
        "from placer.solving.solver import solve\n"
        "solution = solve(from_json(open('problem.json').read()))\n"
        "assert 'ortools' not in sys.modules\n"
        "print(solution.status.value, solution.value, solution.warnings)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "OPTIMAL 1 ()", done.stderr


def test_solvers_can_be_registered() -> None:
    """A researcher's function answers under its own name."""
    answer = Solution(status=Status.UNKNOWN, device_of=None, value=None, lower_bound=None)
    register_solver("give-up", lambda problem, parameters, hint: answer)
    assert "give-up" in solver_names()
    assert solve(random_problem(1), solver="give-up").status is Status.UNKNOWN
    with pytest.raises(
        UsageError, match="no solver 'absent'; there are balanced, contiguous, cp-sat"
    ):
        solve(random_problem(1), solver="absent")


def test_a_name_is_registered_once() -> None:
    """Neither the solver of the house nor another one's is replaced in silence."""
    for name in ("cp-sat", "heft"):
        with pytest.raises(UsageError, match=f"there is a solver '{name}' already"):
            register_solver(name, lambda problem, parameters, hint: Solution(status=Status.UNKNOWN))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, None),
        ({"status": Status.OPTIMAL, "lower_bound": 1}, None),
        ({"value": 0}, "is worth 1, not value=0"),
        ({"device_of": None}, "gives no placement"),
        ({"device_of": (0, 0, 1)}, "not a list of 4 device numbers below 2"),
        ({"device_of": (0, 0, 0, 0), "value": 0}, "breaks a limit: "),
        ({"lower_bound": 2}, "lower_bound=2 is above what its placement is worth, 1"),
        ({"status": Status.OPTIMAL}, "nothing proves it: lower_bound=None"),
    ],
)
def test_what_a_registered_solver_claims_is_computed_again(
    change: dict[str, object], message: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that holds passes; one that does not is an error that names it."""
    best = solve(TWO_PAIRS)
    claimed = replace(replace(best, status=Status.FEASIBLE, lower_bound=None), **change)
    monkeypatch.setitem(solver_module._solvers, "mine", lambda *_: claimed)
    if message is None:
        assert solve(TWO_PAIRS, solver="mine").value == best.value
        return
    with pytest.raises(PlacerError, match=f"the solver 'mine' claims .*{re.escape(message)}"):
        solve(TWO_PAIRS, solver="mine")


def test_unknown_objectives_are_refused() -> None:
    with pytest.raises(UsageError, match=r"'speed'; it can be transfer, step-time, throughput"):
        solve(replace(random_problem(1), objective="speed"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"allowed": ((9,), (0,))}, "op 'op0' is allowed on device 9 of 2"),
        ({"resident_bytes": (1,)}, "resident_bytes has 1 entries for 2 ops"),
        ({"resident_bytes": (1, -1)}, "a size is -1 bytes"),
        ({"parallel_ops": (1, 0)}, "parallel_ops has 0"),
        ({"bandwidth": ((1.0, 0.0), (1.0, 1.0))}, "bandwidth of .* to .* is 0.0"),
        ({"capacity_bytes": (1,)}, "capacity_bytes has 1 entries for 2 devices"),
        ({"live_bytes": ({5: 1},)}, "a moment names op 5 of 2"),
        ({"spill": "maybe"}, "spill is 'maybe'"),
        ({"host": 2}, "the host is device 2 of 2"),
    ],
)
def test_contradictory_problems_are_usage_errors(change: dict[str, object], message: str) -> None:
    """A number that refers to nothing is named before anything is solved."""
    problem = problem_of(resident=[1, 2], tensors=[(0, [1], 5)], capacity=[3, 3])
    with pytest.raises(UsageError, match=message):
        solve(replace(problem, **change))


def test_problems_survive_json() -> None:
    """A problem written and read again is the same problem."""
    for seed in range(20):
        problem = random_problem(seed, spill="auto")
        assert from_json(to_json(problem)) == problem


@pytest.mark.slow
def test_the_sample_that_is_compiled_with_is_a_problem():
    """It is valid, large enough to be searched, and has a placement."""
    problem = sample_problem()
    check(problem)
    solution = solve(problem, SolverParameters(time_limit_seconds=2.0))
    assert solution.device_of is not None
    assert not score(problem, solution.device_of).violations
