"""The house stays sorted: small folders, tests that lie where what they test lies, and benchmarks
that import what there is."""

from __future__ import annotations

import ast
import re
import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
MOST_FILES = 20
OF_NO_PACKAGE = {"examples", "fuzzing"}


@pytest.mark.parametrize("tree", ["cost_models", "placer", "tests"])
def test_no_folder_is_too_full_to_read(tree):
    """A folder holds twenty files at most; what does not fit belongs in a sub-package."""
    folders = {file.parent for file in (ROOT / tree).rglob("*.py")}
    assert [folder for folder in folders if count(folder) > MOST_FILES] == []


def count(folder: Path) -> int:
    """The files in a folder, as git would list them."""
    return sum(file.is_file() and file.suffix != ".pyc" for file in folder.iterdir())


@pytest.mark.parametrize("tree", ["cost_models", "placer"])
def test_docstrings_are_sentences(tree):
    """A docstring says "Returns what ...", or names a thing: it does not begin in the middle."""
    odd = re.compile(r'^ *"""(What|Of|That of) .*', re.MULTILINE)
    files = (ROOT / tree).rglob("*.py")
    found = [(str(file), text.group()) for file in files for text in odd.finditer(file.read_text())]
    assert found == []


def test_tests_mirror_the_packages():
    """Every folder of tests has the name of a package, or is of none on purpose."""
    tests = ROOT / "tests"
    folders = {file.parent.relative_to(tests) for file in tests.rglob("test_*.py")}
    of_packages = [folder for folder in folders if not OF_NO_PACKAGE & set(folder.parts)]
    homes = (ROOT, ROOT / "placer")
    assert [f for f in of_packages if not any((home / f).is_dir() for home in homes)] == []


def test_benchmarks_import_what_there_is():
    """Nobody runs them after every change: what they import of the packages is looked up."""
    pytest.importorskip("tensorflow")
    imports = [
        (file.relative_to(ROOT).as_posix(), node.module, alias.name)
        for file in sorted((ROOT / "benchmarks").rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
        if node.module.partition(".")[0] in ("cost_models", "placer")
    ]
    assert imports
    assert [found for found in imports if not is_there(*found[1:])] == []


def is_there(name: str, part: str) -> bool:
    """Whether a module has such a part, or a package such a module."""
    module = import_module(name)
    return hasattr(module, part) or (
        hasattr(module, "__path__") and find_spec(f"{name}.{part}") is not None
    )


@pytest.fixture(scope="module")
def house() -> ModuleType:
    """The module that ``make house`` runs."""
    spec = spec_from_file_location("house", ROOT / ".ci" / "house.py")
    module = module_from_spec(spec)
    sys.modules["house"] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


def test_what_is_over_a_limit_has_a_reason(house):
    """Lines of files and functions, attributes, parameters: make it smaller, or give the reason in
    .ci/reasons.toml; what is no longer over a limit leaves that list."""
    measured = house.measure()
    found = {kind: {each.name for each in house.over(measured, kind)} for kind in house.LIMITS}
    stated = {kind: set(names) for kind, names in house.reasons().items()}
    assert {
        kind: sorted(found[kind] - stated[kind]) for kind in found if found[kind] - stated[kind]
    } == {}
    assert {
        kind: sorted(stated[kind] - found[kind]) for kind in found if stated[kind] - found[kind]
    } == {}


def test_contributing_states_the_limits(house):
    """The numbers of CONTRIBUTING are those that the tests hold."""
    text = " ".join((ROOT / "CONTRIBUTING.md").read_text().split())
    limits = house.LIMITS
    assert (
        f"{limits['files']} lines a file, {limits['functions']} a function, {limits['classes']} "
        f"attributes a class, {limits['parameters']} parameters, {MOST_FILES} files a folder"
    ) in text


DRAWN_FILE = '''
LIMIT_BYTES = 2 * 2**20
"""Of bytes, the most."""
NAME = "three"


@dataclass(frozen=True)
class Row:
    """What a row is."""

    size: int = 0
    share: float = 0.5


class Walk:
    """A walk."""

    SHOWN: ClassVar[int] = 3

    def __init__(self, a, b, *, c, **d):
        self.a, self.b = a, b
        self.c: int = c
'''


def test_the_house_is_measured_as_drawn(house):
    """Lines, attributes, parameters, constants and docstrings are those of a file drawn by hand."""
    found = house.House()
    found.add_file("placer/room/file.py", DRAWN_FILE)
    assert found.room_lines == {"placer/room": DRAWN_FILE.count("\n")}
    assert [(each.size, each.place.split()[-1]) for each in found.records] == [(2, "Row")]
    assert [(each.size, each.place.split()[-1]) for each in found.classes] == [(3, "Walk")]
    assert [each.size for each in found.parameters] == [4]
    names = [each.place.split()[-1] for each in found.constants]
    assert names == ["LIMIT_BYTES", "size", "share", "SHOWN"]
    assert [each.place.split(" ", 1)[1] for each in found.docstrings] == [
        "Of bytes, the most.",
        "What a row is.",
    ]
