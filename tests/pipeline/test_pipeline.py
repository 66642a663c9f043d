"""The map stays one."""

from __future__ import annotations

import ast
import inspect

import pytest

from placer.pipeline import pipeline

MOST_STATEMENTS = 20


@pytest.mark.parametrize("function", [pipeline.place, pipeline.report])
def test_the_map_is_read_from_top_to_bottom(function):
    """About twenty statements, and no loop."""
    (definition,) = ast.parse(inspect.getsource(function)).body
    statements = [node for node in ast.walk(definition) if isinstance(node, ast.stmt)]
    assert len(statements) - 2 <= MOST_STATEMENTS  # the definition and its docstring
    assert not any(isinstance(node, ast.For | ast.While) for node in statements)
