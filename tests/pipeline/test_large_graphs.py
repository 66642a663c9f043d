"""Graphs of many ops load in a time that grows with their size."""

import pytest
from layered_graphs import layered_graph
from long_tests import long_test

pytest.importorskip("tensorflow")

from placer.pipeline.pipeline import report


@pytest.mark.parametrize("size", [10_000, pytest.param(100_000, marks=long_test)])
def test_a_large_graph_is_reported_with_all_its_ops(tmp_path, size):
    """Layers, function calls and a While loop: every op is reached, every shape known."""
    path = tmp_path / "graph.pb"
    path.write_bytes(layered_graph(size).SerializeToString())
    found = report(path, batch_size=32)
    assert abs(found.model.op_count / size - 1) < 0.01
    assert found.unknown_shapes == ()
