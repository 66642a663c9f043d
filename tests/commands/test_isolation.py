"""Nothing from the current directory is ever imported, by a command or by what it starts."""

from __future__ import annotations

import argparse
import itertools
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from small_problems import problem_of

from placer.commands.parser import build_parser
from placer.errors import UsageError
from placer.problem.placement_problem import to_json
from placer.simulation.building import find_compiler

TRAP = """\
with open({caught!r}, "a") as caught:
    caught.write(__file__ + "\\n")
raise ImportError("imported from the current directory: " + __file__)
"""
"""What every file in the current directory does when it is imported: an ``except ImportError``
somewhere would hide the error, the line in the file ``caught`` stays."""

OPTIONAL = {"pynvml", "sitecustomize", "usercustomize"}
"""Modules that are imported if they are there, and usually are not."""

CAPS = ("--batch-size", "8", "--devices", "2xGPU", "--max-memory", "GPU:*=300KiB")
LITTLE = (*CAPS, "--work-limit", "1")
NOTHING_FITS = (*CAPS[:-1], "GPU:*=100KiB", "--offload", "never", "--time-limit", "1")

COMMANDS = (
    ("report MODEL --format html -o report.html", *CAPS),
    ("profile MODEL --batch-size 8 --steps 2 -o costs.json",),
    ("calibrate costs.json -o device.toml",),
    ("place MODEL -o plan.json --costs costs.json", *CAPS),
    ("place MODEL -o infeasible.json", *NOTHING_FITS),
    ("apply MODEL plan.json -o placed",),
    ("verify placed plan.json",),
    ("compare MODEL", *LITTLE),
    ("auto MODEL", *LITTLE, "--batch-size", "2"),  # the fewest ways, some of which divide it
    ("explain plan.json",),
    ("explain infeasible.json", "--time-limit", "1"),
    ("export plan.json --to tensorboard -o logs",),
    ("diff plan.json infeasible.json",),
    ("solve problem.json",),
    ("solve problem.json --objective throughput",),
    ("solve problem.json --objective step-time",),
    ("devices",),
    ("doctor",),
    ("completion bash",),
    ("simulate --devices 1xT4 -- true",),
)
"""Every command, in an order in which each finds the files that it needs.  What a command starts
is covered with it: reading, solving, the search for conflicts, measuring, Grappler, verifying."""

END = ";"
IN_TURN = f"""
import sys
from placer.__main__ import main
words, codes = sys.argv[1:], []
while words:
    end = words.index({END!r})
    codes.append(main(words[:end]))
    del words[: end + 1]
print(codes)
"""
"""Runs command lines, each of which has an ``END``, and prints their exit codes."""

COMPILING = """
import os, sys
os.environ["NUMBA_CACHE_DIR"] = sys.argv[1]
from {module} import _COMPILE, compile_part
from placer.solving.compiled.priority_queues import new_queues
_COMPILE["moves"] = lambda: new_queues(2, 3)
compile_part((sys.argv[1], "moves"), print)
"""
"""Compiles ahead as a process for that does, but one small function for a whole part."""

WRITTEN = (".json", ".html", ".toml")
"""How the names of files end that the commands write and read."""


@pytest.fixture
def run(saved_model: Path, tmp_path: Path) -> Callable[[list[str]], subprocess.CompletedProcess]:
    """Runs a command line in a folder of modules that may not be imported.

    The files that it names are in another folder, the folder ``work``.
    """
    work, here, caught = (tmp_path / name for name in ("work", "here", "caught"))
    work.mkdir()
    here.mkdir()
    for name in sys.stdlib_module_names | packages_distributions().keys() | OPTIONAL:
        (here / f"{name}.py").write_text(TRAP.format(caught=str(caught)))
    problem = problem_of(resident=[1] * 4, tensors=[(0, [1], 8), (1, [2], 1)], capacity=[2, 2])
    problem = replace(problem, seconds=((1.0, 1.0),) * 4)
    (work / "problem.json").write_text(to_json(problem))
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"}

    def run(command: list[str]) -> subprocess.CompletedProcess:
        paths = {"MODEL": str(saved_model), "placed": str(work / "placed"), "logs": str(work / "l")}
        paths |= {word: str(work / word) for word in command if word.endswith(WRITTEN)}
        finished = subprocess.run(
            [paths.get(word, word) for word in command],
            cwd=here,
            env=environment,
            capture_output=True,
            text=True,
            timeout=500,
        )
        assert not caught.exists(), (command, caught.read_text(), finished.stderr)
        return finished

    return run


def test_the_modules_of_the_current_directory_would_be_found(run):
    """The folder is a trap: Python itself, started there, imports what lies there.

    From 3.13 on it begins with ``linecache``.
    """
    with pytest.raises(AssertionError, match=r"here/(random|linecache)\.py"):
        run([sys.executable, "-c", "import random"])


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_command_imports_from_the_current_directory(run, tmp_path):
    """In a folder full of files like ``numpy.py``, every command does what it does elsewhere: one
    as the program that users start, all in a process that imports once, with children of their
    own."""
    assert run([str(Path(sys.executable).with_name("placer")), "devices"]).returncode == 0
    script = tmp_path / "in_turn.py"
    script.write_text(IN_TURN)
    commands = [[*parts[0].split(), *parts[1:], END] for parts in COMMANDS]
    finished = run([sys.executable, str(script), *itertools.chain(*commands)])
    expected = [exit_code(parts[0]) for parts in COMMANDS]
    assert finished.stdout.splitlines()[-1:] == [str(expected)], finished.stderr


def exit_code(command: str) -> int:
    """That of a command; simulating ends with 2 where there is no compiler for simulated GPUs."""
    if command.startswith("simulate"):
        try:
            find_compiler()
        except UsageError:
            return 2
    return 5 if command.endswith("-o infeasible.json") else 0


@pytest.mark.slow
def test_compiling_ahead_imports_nothing_from_the_current_directory(run, tmp_path):
    """Neither does compiling the search ahead, here a part of it that is one small function."""
    page = Path(__file__).parents[2] / "docs" / "environment.md"
    (module,) = re.findall(r"python -P -m (\S*warm_up)", page.read_text())
    finished = run([sys.executable, "-P", "-c", COMPILING.format(module=module), str(tmp_path)])
    assert finished.returncode == 0, finished.stderr
    assert (tmp_path / "moves.done").exists()


def test_every_command_is_among_them():
    """A new command has to be added above."""
    subparsers = next(
        action
        for action in build_parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    assert {parts[0].split()[0] for parts in COMMANDS} == set(subparsers.choices)
