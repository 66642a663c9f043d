"""However a command ends, it leaves nothing behind and loses nothing that was done."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from layered_graphs import layered_graph

from placer.__main__ import TERMINATED, Terminated, main, terminable

PLACER = [sys.executable, "-m", "placer"]


def processes_with(variable: str) -> list[str]:
    """The process ids that have so in their environment."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdecimal() and variable.encode() in (folder / "environ").read_bytes():
                found.append(folder.name)
        except OSError:  # it has ended, or is another user's
            continue
    return found


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes in /proc")
@pytest.mark.parametrize("seconds", [1.0, 5.0], ids=["reading", "searching"])
def test_a_terminated_command_leaves_nothing_behind(tmp_path, seconds):
    """No file for what was not finished, no temporary folder, no process; exit code 143."""
    model, temporary = tmp_path / "layers.pb", tmp_path / "temporary"
    model.write_bytes(layered_graph(8_000).SerializeToString())
    temporary.mkdir()
    caps = ["--devices", "4xGPU", "--max-memory", "GPU:*=2MiB", "--outputs", "y"]
    command = [*PLACER, "place", str(model), "--batch-size", "8", *caps, "-o", "plan.json"]
    process = subprocess.Popen(
        [*command, "--time-limit", "300"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(temporary), "PLACER_TEST": str(temporary)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60.0
    while not list(temporary.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(seconds)
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=30)
    assert process.returncode == TERMINATED == 143
    assert told.endswith("placer: terminated\n")
    assert list(temporary.iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["layers.pb", "temporary"]
    deadline = time.monotonic() + 5.0
    while processes_with(str(temporary)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_with(str(temporary)) == []


@pytest.mark.parametrize(
    ("number", "raised"), [(signal.SIGTERM, Terminated), (signal.SIGINT, KeyboardInterrupt)]
)
def test_a_signal_that_comes_where_exceptions_are_ignored_is_not_lost(number, raised, capsys):
    """In a finalizer, or before a fork: it comes again, and nothing is printed."""

    class Deaf:
        def __del__(self) -> None:
            os.kill(os.getpid(), number)
            time.sleep(0.1)

    def work() -> None:
        with terminable():
            Deaf()
            time.sleep(60.0)

    began = time.monotonic()
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs of scripts ignore it
    try:
        with pytest.raises(raised):
            work()
    finally:
        signal.signal(signal.SIGINT, handler)
    assert time.monotonic() - began < 50.0
    assert capsys.readouterr().err == ""
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.slow
@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONIOENCODING": ""},
    ],
    ids=["PYTHONIOENCODING", "LC_ALL"],
)
def test_a_stdout_without_the_characters_is_written_all_the_same(
    saved_model, tmp_path, environment
):
    """The tables in ASCII, a name with a character that it lacks by its number; the plan is there
    and the exit code 0."""
    folder = tmp_path / "m\N{LATIN SMALL LETTER U WITH DIAERESIS}ll"
    folder.symlink_to(saved_model)
    command = [*PLACER, "place", str(folder), "--batch-size", "8", "--devices", "1xT4"]
    done = subprocess.run(
        [*command, "-o", str(tmp_path / "plan.json")],
        env={**os.environ, **environment},
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "plan.json").is_file()
    shown = done.stdout.decode("ascii")
    assert "SavedModel - signature serving_default - batch 8 - " in shown
    assert "m\\xfcll" in shown or "\\udc" in shown


def test_every_exit_code_is_in_the_table(capsys):
    """Those of signals too."""
    assert main(["--help"]) == 0
    told = capsys.readouterr().out
    assert "130  interrupted (Ctrl-C)" in told
    assert "143  terminated (SIGTERM)" in told
