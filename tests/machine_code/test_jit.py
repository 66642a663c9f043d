"""Compiled code kept on disk, across releases."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numba
import pytest

TYPES = "from typing import NamedTuple\n\nclass Pair(NamedTuple):\n    one: int\n    other: int\n"
SUM = """
from {types} import Pair
from placer.machine_code.jit import compiled

@compiled
def total(pair):
    return pair.one + pair.other

def answer():
    return total(Pair(2, 3))
"""


def test_a_cache_that_names_a_module_that_is_gone_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A type moves from one module to another: what was compiled for the first is compiled anew."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(numba.core.config, "CACHE_DIR", str(tmp_path))
    for types in ("first_types", "second_types"):
        (tmp_path / f"{types}.py").write_text(TYPES)
        (tmp_path / "compiled_sum.py").write_text(SUM.format(types=types))
        importlib.invalidate_caches()
        assert importlib.import_module("compiled_sum").answer() == 5
        assert list(tmp_path.rglob("*.nbi"))
        (tmp_path / f"{types}.py").unlink()
        for name in ("compiled_sum", types):
            del sys.modules[name]
