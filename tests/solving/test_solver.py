"""Whole solves: statuses, values, spilling, children that fail."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from exhaustive_search import search_exhaustively
from small_problems import best_by_enumeration, problem_of, random_problem

from placer.errors import UsageError
from placer.prediction.scoring import score
from placer.problem.placement_problem import PlacementProblem, check, from_json, to_json
from placer.solving.process import child_search
from placer.solving.process.child_search import ChildResult
from placer.solving.reduction.unit_problem import UnitProblem
from placer.solving.solution import Solution, SolverParameters, Status
from placer.solving.solver import register_solver, solve, solver_names
from placer.solving.transfer import stage
from placer.solving.warm_up import sample_problem, warm_up

QUICK = SolverParameters(time_limit_seconds=10.0, workers=1)


TWO_PAIRS = problem_of(
    resident=[2, 2, 2, 2], tensors=[(0, [1], 5), (2, [3], 5), (1, [2], 1)], capacity=[4, 4]
)
"""Costs 1 at best, and sums alone do not tell."""


@pytest.fixture
def perfect_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "search_in_child", search_exhaustively)


@pytest.fixture
def temporary_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Where the solver keeps its files; it must be empty again at the end."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path
    assert list(tmp_path.iterdir()) == []


def assert_right(problem: PlacementProblem, solution: Solution, context: object = None) -> None:
    """The solution is what enumeration finds, and says so."""
    best = best_by_enumeration(problem)
    if best is None:
        assert solution.status is Status.INFEASIBLE, context
        assert solution.device_of is None
        return
    budget, transfer = best
    assert solution.status is Status.OPTIMAL, context
    assert solution.device_of is not None
    scored = score(problem, solution.device_of)
    assert not scored.violations, context
    assert solution.value == scored.transfer_bytes == transfer == solution.lower_bound, context
    assert solution.spilled_bytes == scored.spilled_bytes <= budget, context


@pytest.mark.usefixtures("perfect_child")
@pytest.mark.parametrize("spill", ["never", "auto"])
def test_solutions_are_those_of_enumeration(spill: str) -> None:
    """With a perfect search inside, 300 solves agree with trying every placement: the optimum,
    its bound, infeasibility, the least spilled bytes and the transfer within their slack."""
    spilled = 0
    for seed in range(300):
        problem = random_problem(seed, most_ops=6, spill=spill)
        solution = solve(problem, QUICK)
        assert_right(problem, solution, seed)
        spilled += solution.spilled_bytes > 0
    assert (spilled > 30) == (spill == "auto")


def test_what_is_spilled_without_proof_is_not_called_optimal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If the least that must be spilled is found but not proven, neither is anything else."""

    def unsure_child(search: str, problem: UnitProblem, *_: object) -> ChildResult:
        found = search_exhaustively(search, problem, None, None, 0.0)
        is_least_spill = any(problem.host_cost)
        return replace(found, status=Status.FEASIBLE, lower_bound=1) if is_least_spill else found

    monkeypatch.setattr(stage, "search_in_child", unsure_child)
    problem = problem_of(
        resident=[5, 3, 2, 2],
        tensors=[(0, [1], 2), (1, [2, 3], 4), (2, [3], 1)],
        capacity=[4, 4, 50],
        allowed=[[0, 1]] * 4,
        spillable=[True] * 4,
        spill="auto",
    )
    solution = solve(problem, QUICK)
    assert solution.status is Status.FEASIBLE
    assert "spill_not_least" in dict(solution.warnings)
    assert solution.lower_bound is None


def test_a_real_solve_proves_the_optimum(temporary_folder: Path) -> None:
    """CP-SAT in its child proves the optimum where the first placement leaves it open, with and
    without spilling."""
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
    assert solution.spilled_bytes == 7  # 5 resident bytes and an output of 2


def test_one_worker_and_one_seed_give_one_placement() -> None:
    """Two solves with the same seed and one worker agree op by op."""
    first, second = (solve(TWO_PAIRS, QUICK) for _ in range(2))
    assert first.device_of == second.device_of


def no_child(*_: object) -> ChildResult:
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
    monkeypatch.setattr(stage, "search_in_child", no_child)
    assert_right(problem, solve(problem, QUICK))


CRASHES = {
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "segmentation fault": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
    "exception": "raise SystemError('gone')",
    "nothing written": "",
    "malformed": "import sys; open(sys.argv[2], 'w').write('{\"status\": ')",
    "nonsense": (
        "import pickle, sys; from placer.solving.process.search_run import Answer; "
        "from placer.solving.solution import Status; "
        "pickle.dump(Answer(status=Status.OPTIMAL, device_of=(7, 7), lower_bound=0), "
        "open(sys.argv[2], 'wb'))"
    ),
    "asleep": "import time; time.sleep(60)",
}


@pytest.mark.parametrize("code", CRASHES.values(), ids=CRASHES.keys())
def test_a_failing_child_leaves_the_first_placement(
    code: str, monkeypatch: pytest.MonkeyPatch, temporary_folder: Path
) -> None:
    """However the child ends, the placement found before it is returned with a warning, in time."""
    monkeypatch.setattr(child_search, "child_command", lambda: [sys.executable, "-c", code])
    started = time.monotonic()
    late = "sleep" in code
    limit = 1.5 if late else 10.0
    solution = solve(TWO_PAIRS, replace(QUICK, time_limit_seconds=limit))
    assert time.monotonic() - started < limit + 3.0
    assert solution.status is Status.FEASIBLE
    assert solution.lower_bound is None
    assert next(code for code, _ in solution.warnings) == (
        "solver_stopped" if late else "solver_crashed"
    )
    assert solution.device_of is not None
    assert not score(TWO_PAIRS, solution.device_of).violations


def test_what_a_child_wrote_before_it_died_is_kept(
    monkeypatch: pytest.MonkeyPatch, temporary_folder: Path
) -> None:
    """A child that is killed after writing a better placement has not worked for nothing."""
    write = (
        "import os, pickle, signal, sys; from pathlib import Path; "
        "from placer.solving.process.search_run import Answer; "
        "from placer.solving.solution import Status; "
        "answer = Answer(status=Status.FEASIBLE, device_of=(0, 0, 1, 1), lower_bound=1); "
        "Path(sys.argv[2]).write_bytes(pickle.dumps(answer)); "
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    monkeypatch.setattr(child_search, "child_command", lambda: [sys.executable, "-c", write])
    monkeypatch.setattr(stage, "initial_placement", lambda *_: None)
    solution = solve(TWO_PAIRS, QUICK)
    assert (solution.value, solution.lower_bound) == (1, 1)
    assert solution.warnings[0][0] == "solver_crashed"


def test_an_interrupted_solve_leaves_no_child_behind(
    monkeypatch: pytest.MonkeyPatch, temporary_folder: Path
) -> None:
    """Control-C during a solve ends the child and removes its files."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by nohup, say
    marker = temporary_folder.parent / "pid"
    code = f"import os, time; open({str(marker)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    monkeypatch.setattr(child_search, "child_command", lambda: [sys.executable, "-c", code])

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


def test_the_child_ends_with_its_parent(tmp_path: Path) -> None:
    """A child whose parent is gone (its standard input closed) does not go on searching."""
    command = [*child_search.child_command(), "absent", "absent"]
    done = subprocess.run(command, input=b"", capture_output=True, timeout=20, cwd=tmp_path)
    assert done.returncode == 1


def test_tensorflow_imported_first_does_not_crash_a_solve(tmp_path: Path) -> None:
    """OR-Tools dies in a process that imported TensorFlow before; a solve there does not, even
    beside files that shadow what the solver imports."""
    (tmp_path / "numpy.py").write_text("raise ImportError('shadowed')")
    (tmp_path / "problem.json").write_text(to_json(TWO_PAIRS))
    root = Path(child_search.placer.__file__).parent.parent
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


def test_unknown_objectives_are_refused() -> None:
    with pytest.raises(UsageError, match=r"'speed'; it can be transfer, step-time, throughput"):
        solve(replace(random_problem(1), objective="speed"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"allowed": ((9,), (0,))}, "op0 is allowed on device 9 of 2"),
        ({"resident_bytes": (1,)}, "resident_bytes has 1 entries for 2 ops"),
        ({"resident_bytes": (1, -1)}, "a size is -1 bytes"),
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


def test_the_search_is_compiled_ahead_on_a_problem_of_its_own():
    """The sample is valid, large enough to be searched, and has a placement for every objective."""
    problem = sample_problem()
    check(problem)
    solution = solve(problem, SolverParameters(time_limit_seconds=2.0))
    assert solution.device_of is not None
    assert not score(problem, solution.device_of).violations
    warm_up(0.2)
