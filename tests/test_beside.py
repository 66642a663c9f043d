"""Work in a copy of the process: its answer, its errors, its end."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from placer import beside as module
from placer.beside import IMPORTING, beside, copies_allowed

copies = pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2,
    reason="a process is copied on Linux with two cores only",
)


@pytest.fixture(autouse=True)
def _allowed():
    with copies_allowed():
        yield
    assert not module._Permission.given


@copies
def test_the_work_is_done_by_another_process():
    with beside(os.getpid) as answer:
        assert answer() != os.getpid()


def test_a_process_that_is_not_ours_is_not_copied(monkeypatch):
    monkeypatch.setattr(module._Permission, "given", False)
    with beside(os.getpid) as answer:
        assert answer() == os.getpid()


def test_more_than_a_pipe_holds():
    with beside(lambda: list(range(300_000))) as answer:
        assert answer() == list(range(300_000))


def test_an_error_is_raised_here():
    def fail():
        raise ValueError("no")

    with beside(fail) as answer, pytest.raises(ValueError, match="no"):
        answer()


@copies
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_copy_that_is_killed_is_no_loss(number):
    here = os.getpid()

    def work():
        if os.getpid() != here:
            os.kill(os.getpid(), number)
        return "done"

    with beside(work) as answer:
        assert answer() == "done"


@copies
def test_a_system_without_room_for_a_copy(monkeypatch):
    def refuse():
        raise BlockingIOError

    monkeypatch.setattr(os, "fork", refuse)
    with beside(os.getpid) as answer:
        assert answer() == os.getpid()


@copies
def test_nobody_waits_for_a_copy_whose_answer_is_not_wanted():
    began = time.monotonic()
    with pytest.raises(KeyError), beside(lambda: time.sleep(60)):
        raise KeyError
    assert time.monotonic() - began < 30


@copies
def test_a_copy_ends_with_the_process_that_made_it(tmp_path):
    """It answers more than a pipe holds, and nobody is left to read it."""
    program = f"""
import os, signal
from pathlib import Path
from placer.beside import beside, copies_allowed

def work():
    Path({str(tmp_path / "pid")!r}).write_text(str(os.getpid()))
    return bytes(10_000_000)

with copies_allowed(), beside(work):
    while not Path({str(tmp_path / "pid")!r}).exists():
        pass
    os.kill(os.getpid(), signal.SIGKILL)
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(module.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", program], check=False, env=environment)
    status = Path("/proc") / (tmp_path / "pid").read_text() / "stat"
    end = time.monotonic() + 30
    while status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < end
        time.sleep(0.02)


@copies
def test_a_copy_is_made_when_nothing_is_being_imported():
    """It would wait for ever for a module that a thread, which it has not, began to import."""
    imported = []

    def load():
        time.sleep(0.2)
        imported.append("module")

    threading.Thread(target=load, name=IMPORTING).start()
    with beside(lambda: list(imported)) as answer:
        assert answer() == ["module"]
