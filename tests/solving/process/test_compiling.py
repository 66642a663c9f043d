"""Machine code is made before the clock of a search runs, once, wherever there is room for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from long_tests import long_test
from small_problems import tangle

from placer.files import temporary_cache
from placer.machine_code.folder import code_folder
from placer.problem.placement_problem import PlacementProblem
from placer.processes import run_task
from placer.solving.process import clock, compiling
from placer.solving.process.child_search import search_in_child
from placer.solving.process.compiling import (
    PEAKS,
    STEP_TIME,
    THROUGHPUT,
    TRANSFER,
    await_compiled,
    code_environment,
    load_needs_ahead,
    warm_up,
)
from placer.solving.reduction.unit_problem import reduce_to_units
from placer.solving.search.peak_problem import to_peak_problem
from placer.solving.solution import Solution, SolverParameters
from placer.solving.solver import solve
from placer.solving.warm_up import sample_lifetimes


@pytest.fixture
def anew() -> Iterator[None]:
    """Folders are looked for as in a new process."""
    caches = (compiling._begin, code_folder, temporary_cache)
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, anew: None) -> Path:
    """An empty cache."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    return Path(code_environment()["NUMBA_CACHE_DIR"])


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache without a part that is compiled: with long tests empty, else it lacks one module of
    what this user has; tests find what those before them have compiled."""
    cache, users = tmp_path_factory.mktemp("code"), code_folder()
    if not os.environ.get("PLACER_LONG_TESTS"):
        left_out = shutil.ignore_patterns("*.done", "*.lock", "unit_moves.*")
        shutil.copytree(users, cache / users.name, ignore=left_out)
    return cache


@pytest.fixture
def shared_folder(code: Path, monkeypatch: pytest.MonkeyPatch, anew: None) -> Path:
    """The folder in that cache."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(code))
    return Path(code_environment()["NUMBA_CACHE_DIR"])


def test_the_clock_stands_still_while_a_block_runs() -> None:
    """Time before and after counts, time within does not, however often the block is nested."""
    began, real = clock.monotonic(), time.monotonic()
    with clock.standing_still():
        with clock.standing_still():
            time.sleep(0.05)
        assert clock.monotonic() == clock.monotonic()
        time.sleep(0.05)
    time.sleep(0.02)
    assert 0.02 <= clock.monotonic() - began <= time.monotonic() - real - 0.1


def test_waiting_for_machine_code_is_no_search(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part is asked for once, by whoever comes first, and nobody's time runs meanwhile."""
    asked: list[str] = []

    def compile_slowly(_task: str, request: tuple[str, str], *_arguments: object) -> object:
        asked.append(request[1])
        time.sleep(0.2)
        return run_task("builtins:getattr", "x", 10.0)  # fails: the search may compile by itself

    monkeypatch.setattr(compiling, "run_task", compile_slowly)
    began, real = clock.monotonic(), time.monotonic()
    warm_up(TRANSFER)
    await_compiled(TRANSFER)
    await_compiled(TRANSFER)
    assert sorted(asked) == ["moves", "peaks", "transfer"]
    assert time.monotonic() - real >= 0.2
    assert clock.monotonic() - began < 0.15


def test_a_search_of_somebody_else_needs_nothing(folder: Path) -> None:
    """Searches that are registered from outside have no parts here."""
    await_compiled("somewhere.outside:search")
    assert not any(folder.iterdir())


def test_a_small_problem_waits_for_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CP-SAT alone solves it."""
    asked: list[str] = []
    monkeypatch.setattr(compiling, "run_task", lambda task, *_: asked.append(task))
    solution = solve(tangle(1, units=40), SolverParameters(time_limit_seconds=2.0, workers=1))
    assert solution.device_of is not None
    assert not asked


def test_the_cache_is_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, anew: None
) -> None:
    """Without a folder named by the environment, that for caches: by its variable, or at home."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert code_folder.__wrapped__().parent == tmp_path / ".cache" / "placer"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    assert code_folder.__wrapped__().parent == tmp_path / "elsewhere" / "placer"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert code_folder.__wrapped__().parent == tmp_path / ".cache" / "placer"


def test_where_others_can_write_no_code_is_run(folder: Path) -> None:
    """A folder that somebody else may have filled is left alone, and so is a link to one."""
    assert code_folder.__wrapped__() == folder
    folder.chmod(0o777)
    assert code_folder.__wrapped__() != folder
    folder.chmod(0o700)
    folder.rename(folder.parent / "another")
    folder.symlink_to(folder.parent / "another")
    assert code_folder.__wrapped__() != folder


def test_without_a_place_for_caches_code_is_kept_for_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, anew: None
) -> None:
    """Where no folder can be made, it is a temporary one."""
    file = tmp_path / "file"
    file.touch()
    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(file))
    folder = code_folder.__wrapped__()
    assert folder.is_dir()
    assert folder.name.startswith("placer-code-")


FAIL = """
import sys, time
from placer.solving.process.compiling import load_needs_ahead
import placer.prediction.memory.need as need
need.load_loops = lambda: sys.stdout.write("loaded ")
load_needs_ahead()
time.sleep(float(sys.argv[1]))
sys.stdout.write("ended ")
"""


def test_a_command_that_fails_at_once_loads_nothing(folder: Path) -> None:
    """Nor does it begin to compile; one that fails within that leaves it to itself."""
    compiling.done_mark(folder, "needs").touch()
    for seconds, told in ("0", "ended "), ("1", "loaded ended "):
        ran = subprocess.run([sys.executable, "-c", FAIL, seconds], capture_output=True, text=True)
        assert (ran.stdout, ran.stderr, ran.returncode) == (told, "", 0)
    compiling.done_mark(folder, "needs").unlink()
    for seconds in ("0", "0.5"):  # at once, and while it is compiled
        subprocess.run([sys.executable, "-c", FAIL, seconds], check=True)
        assert not compiling.done_mark(folder, "needs").exists()
        assert not list(folder.rglob("*.nbc"))


@pytest.mark.slow
def test_what_predicts_needs_is_compiled_by_another_process(folder: Path) -> None:
    """And loaded here once that is done."""
    load_needs_ahead().join()
    assert compiling.done_mark(folder, "needs").exists()
    assert list(folder.rglob("chunks.hand_out*.nbc"))


SOLVE = """
import json, sys, time
sys.path.append(sys.argv[1])
from long_tests import long_test
from small_problems import tangle
from placer.solving.solution import SolverParameters
from placer.solving.solver import solve
began = time.monotonic()
solution = solve(tangle(1), SolverParameters(time_limit_seconds=60.0, workers=1, work_limit=1))
found = [solution.value, solution.status.value, solution.seconds]
print(json.dumps([*found, time.monotonic() - began]))
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_first_search_finds_what_the_third_does(shared_folder: Path) -> None:
    """Two first searches at once share the work and find the same; another finds it again and
    compiles nothing.  When code of a module has been destroyed one search compiles it in its own
    time, and the next one waits for all code as the first ones did."""
    tests = str(Path(__file__).parents[2])

    def begin() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", SOLVE, tests], stdout=subprocess.PIPE)

    def kept() -> dict[str, int]:
        return {str(path): path.stat().st_mtime_ns for path in shared_folder.rglob("*.nb?")}

    both = [json.loads(each.communicate()[0]) for each in (begin(), begin())]
    for first in both:
        assert first[2] < first[3] - 1.0  # what was waited for does not count
    compiled = kept()
    assert compiled
    third = json.loads(begin().communicate()[0])
    assert third[:2] == both[0][:2] == both[1][:2]
    assert third[2] > third[3] - 1.0
    assert kept() == compiled
    for path in shared_folder.rglob("unit_moves.*.nb?"):
        path.write_bytes(b"no code")
    assert kept() != compiled
    assert json.loads(begin().communicate()[0])[1] == "FEASIBLE"
    assert not list(shared_folder.glob("*.done"))
    assert json.loads(begin().communicate()[0])[:2] == third[:2]
    assert len(list(shared_folder.glob("*.done"))) == 3


def search_peaks(problem: PlacementProblem, parameters: SolverParameters) -> Solution:
    """A search under caps on peaks."""
    units, lifetimes = reduce_to_units(problem), sample_lifetimes(problem)
    peaks = to_peak_problem(problem, units, lifetimes, problem.capacity_bytes)
    return search_in_child(PEAKS, peaks, [], parameters, parameters.time_limit_seconds)


@long_test
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_search_compiles_anything_itself(shared_folder: Path) -> None:
    """After its parts are compiled, a search of another problem finds all code that it runs."""
    parameters = SolverParameters(time_limit_seconds=120.0, workers=1, work_limit=2)
    for search in (PEAKS, THROUGHPUT, STEP_TIME):
        await_compiled(search)
        compiled = sorted(path.name for path in shared_folder.rglob("*.nbc"))
        objective = {THROUGHPUT: "throughput", STEP_TIME: "step-time"}.get(search, "transfer")
        problem = replace(tangle(2, units=300), objective=objective)
        solver = search_peaks if search == PEAKS else solve
        assert solver(problem, parameters).device_of is not None
        assert sorted(path.name for path in shared_folder.rglob("*.nbc")) == compiled
