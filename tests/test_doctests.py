"""The examples in docstrings, and that reading them loads nothing heavy."""

import doctest
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for package in ("cost_models", "placer")
    for path in (ROOT / package).rglob("*.py")
    if ">>> " in path.read_text()
)


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_give_what_they_show(module):
    """Every ``>>>`` of the module, one example or more, gives what stands below it."""
    found = doctest.testmod(importlib.import_module(module), raise_on_error=False)
    assert found.attempted > 0
    assert found.failed == 0


def test_modules_with_examples_load_no_tensorflow():
    """In a fresh interpreter all of them together import none of the heavy packages."""
    imports = "".join(f"import {module}\n" for module in MODULES)
    check = "import sys; print(*({'tensorflow', 'keras', 'ortools'} & sys.modules.keys()))"
    answer = subprocess.run(
        [sys.executable, "-c", imports + check],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert answer.stdout.strip() == ""
