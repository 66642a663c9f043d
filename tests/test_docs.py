"""What the documentation names is there: files, folders, modules, commands, options."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from placer.commands.parser import build_parser

ROOT = Path(__file__).parent.parent
FIGURES = ROOT / "docs" / "trust.md"
PAGES = ("README.md", "CONTRIBUTING.md", "Makefile", "docs/**/*.md", "benchmarks/*/README.md")
NAMES = sorted(str(page.relative_to(ROOT)) for name in PAGES for page in ROOT.glob(name))

_PATH = re.compile(r"(?<![\w/.-])(?:placer|cost_models|docs|tests|benchmarks)/[\w./*-]*[\w*]")
"""A path from the top of the repository."""

_MODULE = re.compile(r"\b(?:placer|cost_models)(?:\.[A-Za-z_]\w*)+(?![\w/])")
"""A dotted name, as in ``placer.plan.plan.Plan`` or ``placer.place``; ``placer.plan/1`` is none."""

_SHORT_PATH = re.compile(r"`([a-z_/]+(?:\.py|/))`")
"""The end of a path, as in ``shapes/binding.py`` or ``reading/``."""

_FILE_ENDINGS = {"json", "toml", "md"}
"""Of names that only look like a module: ``placer.problem.json``."""

_LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)")
"""What a link of a page leads to, from the page's folder, and the section in it."""

_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)

_COMMAND = re.compile(r"^ *(?:\$ )?(placer [a-z].*?)(?:  +#.*| # .*| >>? .*)?$", re.MULTILINE)
"""A command line that begins a line, without the comment or the file behind it."""


TREES = ("placer", "cost_models", "tests", "benchmarks", "examples", "docs")
PATHS = {f"/{path.relative_to(ROOT)}" for tree in TREES for path in (ROOT / tree).rglob("*")}


def exists(path: str) -> bool:
    """Whether there is such a file, folder, or module without its ``.py``."""
    return any(ROOT.glob(path)) or (ROOT / f"{path}.py").is_file()


def ends_a_path(end: str) -> bool:
    """Whether a file or folder of the repository has a path that ends so."""
    return any(path.endswith(f"/{end.rstrip('/')}") for path in PATHS) or end.rstrip("/") in TREES


def anchors(page: Path) -> set[str]:
    """The sections of a page, as links name them."""
    titles = _HEADING.findall(page.read_text())
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def resolves(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    parts = name.split(".")
    with contextlib.suppress(ModuleNotFoundError):
        if find_spec(name) is not None:
            return True
    while len(parts) > 1:
        last = parts.pop()
        with contextlib.suppress(ModuleNotFoundError):
            return hasattr(import_module(".".join(parts)), last)
    return False


@pytest.mark.parametrize("name", NAMES)
def test_every_path_that_a_page_names_is_there(name):
    """Paths from the top of the repository, ends of paths, and links from the page."""
    page = ROOT / name
    text = page.read_text()
    missing = [path for path in _PATH.findall(text) if not exists(path)]
    missing += [end for end in _SHORT_PATH.findall(text) if not ends_a_path(end)]
    for link, section in _LINK.findall(text):
        target = page.parent / link if link else page
        if not target.exists() or (section and section not in anchors(target)):
            missing.append(f"{link}#{section}")
    assert missing == []


@pytest.mark.parametrize("name", NAMES)
def test_every_module_that_a_page_names_is_there(name):
    """Dotted names, to the class or function in a module."""
    found = set(_MODULE.findall((ROOT / name).read_text()))
    named = {name for name in found if name.rpartition(".")[2] not in _FILE_ENDINGS}
    assert [name for name in sorted(named) if not resolves(name)] == []


@pytest.mark.parametrize("name", NAMES)
def test_every_command_line_of_a_page_is_understood(name):
    """Commands at the beginning of a line are parsed with all their options, and not run."""
    for line in _COMMAND.findall((ROOT / name).read_text().replace("\\\n", "")):
        words = shlex.split(re.sub(r" \[[^]]*\]", "", line))[1:]  # what may be left out
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            try:
                build_parser().parse_args(words)
            except (SystemExit, argparse.ArgumentError):
                pytest.fail(f"{line}: {errors.getvalue()}")


def test_every_figure_is_that_of_its_benchmark():
    """What the page of figures has in bold stands in the page of the benchmark that it names."""
    rows = re.findall(r"^\|.*\]\(\.\./(benchmarks/\w+)\) \|$", FIGURES.read_text(), re.MULTILINE)
    assert len(rows) > 10
    for line in FIGURES.read_text().splitlines():
        for folder in re.findall(r"\(\.\./(benchmarks/\w+)\)", line):
            page = " ".join((ROOT / folder / "README.md").read_text().split())
            missing = [
                figure for figure in re.findall(r"\*\*(.+?)\*\*", line) if figure not in page
            ]
            assert missing == [], folder


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    """Every page is in it, every link between pages and into the reference leads somewhere."""
    pytest.importorskip("sphinx", reason="the extra docs is not installed")
    pytest.importorskip("myst_parser", reason="the extra docs is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-n", "-W", "--keep-going", ROOT / "docs", tmp_path],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "placer.place" in (tmp_path / "api.html").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        assert (tmp_path / page.relative_to(ROOT / "docs").with_suffix(".html")).exists()
    loaded = re.compile(r"""(?:src|href)=["'](?:https?:)?//[^"']+\.(?:js|css|woff2?)""")
    assert not loaded.search((tmp_path / "index.html").read_text())  # no network to read it


@pytest.mark.slow
def test_the_snippet_of_the_readme_runs_as_it_stands(tmp_path):
    """In a fresh process, in an empty folder, whether there are GPUs or not."""
    text = (ROOT / "README.md").read_text()
    (snippet,) = re.findall(r"```python\n(?!# model.py)(.*?)```", text, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", snippet],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "as-it-is" in done.stdout
