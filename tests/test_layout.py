"""The house stays sorted: small folders, and tests that lie where what they test lies."""

from __future__ import annotations

from pathlib import Path

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


def test_tests_mirror_the_packages():
    """Every folder of tests has the name of a package, or is of none on purpose."""
    tests = ROOT / "tests"
    folders = {file.parent.relative_to(tests) for file in tests.rglob("test_*.py")}
    of_packages = [folder for folder in folders if not OF_NO_PACKAGE & set(folder.parts)]
    homes = (ROOT, ROOT / "placer")
    assert [f for f in of_packages if not any((home / f).is_dir() for home in homes)] == []
