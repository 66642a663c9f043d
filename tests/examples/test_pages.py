"""The worked examples of the documentation run, and give what the pages show.

A block of Python that begins with ``# name.py`` is that file; a console block is run line by line
in a folder of its own.  ``...`` stands for whatever is left out, and a page may build on the files
of another: ``<!-- files of recommenders.md -->``.
"""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

import pytest
from fuzzing.warm_children import run_python

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ["../README.md", *(page.name for page in sorted(DOCS.glob("*.md")))]
PAGES = [name for name in PAGES if "```console" in (DOCS / name).read_text()]

_FILE = re.compile(r"```python\n# (\w+\.py)\n(.*?)```", re.DOTALL)
_CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
_COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
_BASE = re.compile(r"<!-- files of (\S+) -->")

PROGRAMS = {"placer": ("-m", "placer"), "python": ()}
SETTINGS = {"COLUMNS": "80", "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def run(command: str, folder: Path, status: int) -> tuple[str, int]:
    """What a command prints (of stderr what ``placer`` says), and its exit code."""
    if command == "echo $?":
        return f"{status}\n", 0
    program, *arguments = shlex.split(command)
    done = run_python([*PROGRAMS[program], *arguments], folder, SETTINGS)
    told = [line for line in done.stderr.splitlines(keepends=True) if line.startswith("placer: ")]
    return done.stdout + "".join(told), done.returncode


def write_files(page: str, folder: Path) -> None:
    """The files of a page, and what those of the page that it builds on make."""
    text = (DOCS / page).read_text()
    for base in _BASE.findall(text):
        write_files(base, folder)
        for name, _ in _FILE.findall((DOCS / base).read_text()):
            run(f"python {name}", folder, 0)
    for name, content in _FILE.findall(text):
        (folder / name).write_text(content)


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_give_what_it_shows(page, tmp_path):
    """Every command, in order; a command that shows nothing may print what it likes."""
    write_files(page, tmp_path)
    status, checker = 0, doctest.OutputChecker()
    for block in _CONSOLE.findall((DOCS / page).read_text()):
        for command, shown in _COMMAND.findall(block):
            found, status = run(command, tmp_path, status)
            assert status == 0 or "placer: " in shown, f"{command}: {found}"
            fits = not shown.strip() or checker.check_output(shown, found, FLAGS)
            assert fits, f"$ {command}\n{found}\n--- the page shows\n{shown}"
            if command == "echo $?":
                status = 0


def test_the_job_for_ci_runs_what_its_page_shows():
    """Every command of the workflow is one of those that the page runs."""
    text = (DOCS / "ci.md").read_text()
    (job,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    asked = re.findall(
        r"^(?: *run:)? *((?:placer|python) .*)$", re.sub(r" \\\n *", " ", job), re.MULTILINE
    )
    ran = [command for block in _CONSOLE.findall(text) for command, _ in _COMMAND.findall(block)]
    assert len(asked) == 3
    assert [line for line in asked if re.sub(r" >>? .*", "", line) not in ran] == []
