"""Harmed files end with a message and a documented exit code; ``make fuzz`` tries thousands."""

import os
import subprocess
import sys

import pytest
from fuzzing import kills, two_writers
from fuzzing.__main__ import run
from fuzzing.cases import ROOT, Outcome, WarmProcess, run_cold
from fuzzing.formats import FORMATS

pytest.importorskip("tensorflow")

CASES_PER_FORMAT = 3
KERAS_CASES = 1
"""Loading and exporting a Keras file takes ten times as long as reading a graph."""


@pytest.mark.parametrize("name", FORMATS)
def test_harmed_files_are_reported_or_refused(warm_process, monkeypatch, name):
    """Nothing crashes, hangs, swells, or leaves anything behind."""
    monkeypatch.delenv("PLACER_TEST_DATA", raising=False)
    for index in range(KERAS_CASES if name in ("keras", "h5") else CASES_PER_FORMAT):
        outcome, defects = run(warm_process, name, 0, index)
        assert not defects, f"{name} 0 {index}: {defects}: {outcome.stderr}"


def test_a_fork_and_the_real_command_agree(warm_process, tmp_path):
    """The quick way of running a case is the real one: same exit code, same message."""
    outcomes = []
    for runner in (warm_process.run, run_cold):
        folder = tmp_path / runner.__name__
        folder.mkdir()
        case = FORMATS["graph"].case(0, 3, folder)
        outcomes.append(runner(case.commands[0], folder))
        assert not outcomes[-1].defects(case.allowed)
    assert outcomes[0].status == outcomes[1].status
    assert outcomes[0].stderr == outcomes[1].stderr


def test_every_kind_of_defect_is_seen():
    """What the fuzzing looks for is found in an outcome that has it all."""
    bad = Outcome(
        status=1,
        seconds=1.0,
        peak_bytes=3 * 2**30,
        stderr="Traceback (most recent call last): ...",
        left=("the process 1",),
    )
    found = "; ".join(bad.defects(frozenset({0, 3})))
    for words in ("exit status 1", "3,072 MiB", "Traceback", "leaves the process 1"):
        assert words in found
    silent = Outcome(status=3, seconds=1.0, peak_bytes=0, stderr="")
    assert silent.defects(frozenset({3})) == ["fails without a word"]
    hanging = Outcome(status=None, seconds=31.0, peak_bytes=0, stderr="")
    assert hanging.defects(frozenset({3})) == ["takes more than 30 s"]


def test_a_case_is_the_same_every_time(tmp_path):
    """Format, seed and index name one file."""
    contents = []
    for attempt in "ab":
        folder = tmp_path / attempt
        folder.mkdir()
        FORMATS["graph_text"].case(7, 5, folder)
        contents.append((folder / "graph.pbtxt").read_bytes())
    assert contents[0] == contents[1]


def test_processes_killed_lose_and_leave_nothing(monkeypatch):
    """A few of the five hundred of ``make harm``."""
    monkeypatch.setattr(
        sys, "argv", ["kills", "--count", "2", "--seed", "3", "--commands", "place,apply"]
    )
    assert kills.main() == 0


@pytest.mark.parametrize("name", ["apply", "report"])
def test_two_commands_write_one_output_one_after_the_other(warm_process, name):
    """Of two that begin at once; a folder and a file."""
    other = WarmProcess()
    try:
        for force in (False, True):
            assert two_writers.run((warm_process, other), name, force) == []
    finally:
        other.close()


def test_a_full_disk_is_named_and_nothing_lost_or_left():
    """A few of the sizes of ``make harm``, for a file and a folder."""
    path = os.pathsep.join((str(ROOT), str(ROOT / "tests")))
    options = ["--most", "3", "--commands", "report,apply"]
    done = subprocess.run(
        [sys.executable, "-m", "fuzzing.full_disk", *options],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    if "not tried" in done.stdout:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout
    assert "0 failures" in done.stdout
