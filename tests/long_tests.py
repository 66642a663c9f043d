"""Tests that run only where ``PLACER_LONG_TESTS`` is set."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from typing import Any

import pytest

long_test = pytest.mark.skipif(
    not os.environ.get("PLACER_LONG_TESTS"), reason="PLACER_LONG_TESTS is not set"
)


def sometimes(cases: Iterable[tuple[Any, ...]], always: Collection[tuple[Any, ...]]) -> list[Any]:
    """The cases as parameters of a test, those that are not run ``always`` marked as long ones."""
    return [pytest.param(*case, marks=() if case in always else long_test) for case in cases]
