"""Each example keeps its promise: one headline number."""

from __future__ import annotations

import importlib.util
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tables_go_to_the_host_and_only_looked_up_rows_cross():
    """Two columns of 128 rows of 64 floats cross, and nothing larger."""
    example = load("embeddings_on_the_host")
    plan = example.place_recommender()
    rows = example.BATCH_SIZE * example.WIDTH * 4
    crossing = [t["bytes"] for t in plan.transfers if t["kind"] == "data" and t["bytes"] >= rows]
    assert plan.variables["table_a"] == plan.variables["table_b"] == "CPU:0"
    assert plan.variables["hidden"].startswith("GPU:")
    assert crossing == [rows, rows]
