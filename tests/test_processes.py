"""A child process may be late, fat or dead without harm, and imports nothing from where it runs."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from placer import processes
from placer.errors import PlacerError, ShapeError
from placer.processes import Child, Ending, collection_paused

TESTS = Path(__file__).parent
ROOT = TESTS.parent
ENVIRONMENT = {"PYTHONPATH": str(TESTS)}


def run(task: str, request: object = None, seconds: float = 60.0) -> processes.Outcome:
    return processes.run_task(f"tasks_in_children:{task}", request, seconds, ENVIRONMENT)


def gone(pid: int) -> bool:
    """Whether a process has ended, be it that nobody has waited for it yet."""
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_until(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture(autouse=True)
def nothing_left(tmp_path_factory, monkeypatch):
    """However a child ends, it leaves no file."""
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


def test_a_task_answers():
    """Requests and answers may be larger than any buffer."""
    numbers = list(range(300_000))
    outcome = run("double", numbers)
    assert outcome.ending is Ending.ANSWERED
    assert outcome.answer == [2 * number for number in numbers]


def test_errors_come_back_by_their_class():
    """A refusal keeps its class, a fault of ours its traceback."""
    with pytest.raises(ShapeError, match=r"^7 is no shape$"):
        run("refuse", 7)
    with pytest.raises(PlacerError, match=r"fail failed unexpectedly:(?s:.*)KeyError: 'absent'"):
        run("fail", {})
    with pytest.raises(PlacerError, match="No module named 'tasks_of_nobody'"):
        processes.run_task("tasks_of_nobody:one", None, 60.0)


def test_what_was_told_survives_a_death():
    """The last interim answer is kept, with how the process ended and its last words."""
    outcome = run("die")
    assert (outcome.ending, outcome.answer) == (Ending.DIED, "two")
    assert outcome.peak_bytes > 2**20
    assert outcome.reason == "its process was ended by signal 6; it last said: the last words"


def test_what_was_told_survives_the_time_limit():
    """A child that tells without end is stopped in time, with an answer that is whole."""
    started = time.monotonic()
    outcome = run("tell_for_ever", seconds=1.5)
    assert time.monotonic() - started < 20
    assert outcome.ending is Ending.LATE
    assert len(outcome.answer) == 100_000
    assert outcome.reason == "it took more than 1.5 seconds"


def test_half_an_answer_is_none():
    """A child that stops within its answer is late, and what it told before counts."""
    outcome = run("answer_slowly", seconds=2.0)
    assert (outcome.ending, outcome.answer) == (Ending.LATE, "first")


def test_threads_may_tell():
    """Interim answers from several threads do not mix."""
    assert run("tell_from_threads").answer == "all told"


def test_a_late_child_ends_with_all_that_it_started(tmp_path):
    """Even where it never comes back from a call into C."""
    outcome = run("hang_with_others", str(tmp_path / "pids"), seconds=2.0)
    assert outcome.ending is Ending.LATE
    for pid in outcome.answer:
        wait_until(partial(gone, pid))


def test_an_answer_ends_what_was_started():
    """A process that a task left behind goes with it."""
    wait_until(partial(gone, run("leave_another").answer))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux bounds memory so")
def test_memory_is_bounded_by_the_task():
    """What takes more than its task allows dies of it, and says so."""
    assert run("take", 2**20).answer == 2**20
    outcome = run("take", 2**30)
    assert outcome.ending is Ending.DIED
    assert outcome.last_words.endswith("MemoryError")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can end a process with its parent")
def test_a_child_ends_with_its_parent(tmp_path):
    """Even inside a call into C that never comes back, and with the child that it has."""
    pids = tmp_path / "pids"
    program = (
        "from placer.processes import run_task\n"
        f"run_task('tasks_in_children:hang_with_others', {str(pids)!r}, 100.0)\n"
    )
    path = os.pathsep.join(map(str, (ROOT, TESTS)))
    environment = {**os.environ, "PYTHONPATH": path, "TMPDIR": str(tmp_path)}
    parent = subprocess.Popen([sys.executable, "-c", program], env=environment)
    try:
        wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    finally:
        parent.kill()
        parent.wait()
    own, _ = map(int, pids.read_text().split())
    wait_until(partial(gone, own))


def test_a_child_that_is_never_asked_ends():
    """It was started ahead, and nobody needs it."""
    before = children()
    Child(ENVIRONMENT).close()
    assert children() <= before


def test_a_child_started_ahead_answers():
    """What it does first is done before it is asked."""
    child = Child(ENVIRONMENT, ["tasks_in_children:Slow"])
    outcome = child.ask("tasks_in_children:double", [3], 60.0)
    assert outcome.answer == [6]


def test_an_interrupt_ends_the_child():
    """The caller's Ctrl-C ends the child and is raised."""
    before = children()
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs of scripts ignore it
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    started = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            run("sleep", 100)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert time.monotonic() - started < 30
    assert children() <= before


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def test_nothing_comes_from_the_current_directory(tmp_path, monkeypatch):
    """Neither modules of the standard library nor of others, nor packages like ours, whatever
    PYTHONPATH says."""
    for name in ("types", "pickle", "socket", "colorsys", "numpy", "placer", "cost_models"):
        (tmp_path / f"{name}.py").write_text(f"raise ImportError('{name} of the caller')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f":.:{TESTS}:")
    outcome = processes.run_task("tasks_in_children:where", None, 60.0)
    path, files, environment = outcome.answer
    assert {"", ".", str(tmp_path)}.isdisjoint(path)
    assert [Path(file).parents[1] for file in files[:2]] == [ROOT, ROOT]
    assert environment["PYTHONSAFEPATH"] == "1"
    assert Path.cwd() == tmp_path


def test_a_child_reads_nothing_from_the_terminal():
    """Its standard input is empty."""
    assert run("read_input").answer == ""


def test_temporary_files_go_with_the_child(nothing_left):
    """What it leaves in its folder for temporary files is removed (see ``nothing_left``)."""
    assert Path(run("leave_files").answer).parent == nothing_left


def test_a_request_that_cannot_be_sent_is_refused_here():
    """A lambda is no data; the child that was to get it ends."""
    before = children()
    with pytest.raises((AttributeError, pickle.PicklingError), match="pickle"):
        run("double", lambda: None)
    assert children() <= before


@collection_paused()
def many_objects() -> list[list[int]]:
    assert not gc.isenabled()
    return [[number] for number in range(10_000)]


def test_no_collection_while_a_decorated_function_runs():
    """It waits, and is there again afterwards; what was made is not looked at as new."""
    gc.collect()
    before = gc.get_count()[0]
    kept = many_objects()
    assert gc.isenabled()
    assert gc.get_count()[0] <= before + 100
    assert len(kept) == 10_000


@collection_paused()
def fail():
    with collection_paused():
        pass
    assert not gc.isenabled()
    raise ValueError("no")


def test_the_collector_goes_on_after_an_error():
    """And one pause may stand within another."""
    with pytest.raises(ValueError, match="no"):
        fail()
    assert gc.isenabled()
