"""The command line starts light: a fresh interpreter loads none of the heavy packages."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("tensorflow", "ortools", "numpy", "networkx", "rich", "jsonschema", "keras", "dataclasses")


@pytest.mark.parametrize(
    ("argv", "expected"),
    [(["--help"], 0), (["place", "--help"], 0), (["--version"], 0), (["nonsense"], 2)],
)
def test_help_loads_nothing_heavy(argv, expected):
    """Help, version and wrong usage are told before anything heavy is imported."""
    code = (
        "import sys; from placer.__main__ import main; ended = main(sys.argv[1:]); "
        f"sys.exit(','.join(name for name in {HEAVY!r} if name in sys.modules) or ended)"
    )
    finished = subprocess.run(
        [sys.executable, "-c", code, *argv], capture_output=True, text=True, check=False
    )
    assert finished.returncode == expected, finished.stderr


def test_python_m_placer_is_the_same_command():
    """``python -m placer`` shows the commands and exits 0; without a command it exits 2."""
    command = [sys.executable, "-m", "placer"]
    helped = subprocess.run([*command, "--help"], capture_output=True, text=True, check=False)
    assert helped.returncode == 0
    assert all(
        f"  {name} " in helped.stdout for name in ("report", "place", "apply", "verify", "devices")
    )
    assert subprocess.run(command, capture_output=True, check=False).returncode == 2


def test_who_starts_the_reading_process_loads_no_graphs_first():
    """That process is what a report waits for; its caller loads the rest meanwhile."""
    code = (
        "import sys, placer.extraction.process.child_process as child; child.start_reader_ahead; "
        "sys.exit(','.join(sorted(n for n in sys.modules if n.startswith('placer.graph'))) or 0)"
    )
    finished = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
