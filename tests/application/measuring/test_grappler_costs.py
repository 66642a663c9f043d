"""What Grappler's scheduler ran, as it is read."""

from __future__ import annotations

import pytest

from placer.application.measuring.grappler_costs import executions


def test_ops_take_nanoseconds_and_a_merge_none() -> None:
    """A matrix product of 219 ns is not free; a merge that ran for each of its two inputs, and is
    said to last from the first to the last, is one op that takes no time."""
    step_stats = pytest.importorskip("tensorflow.core.framework.step_stats_pb2")
    stats = step_stats.StepStats()
    device = stats.dev_stats.add(device="/job:localhost/replica:0/task:0/device:GPU:0")
    product = device.node_stats.add(node_name="MatMul", all_start_nanos=265, op_end_rel_nanos=219)
    product.output.add().tensor_description.allocation_description.allocated_bytes = 16_384
    for _ in range(2):
        device.node_stats.add(node_name="Merge", all_start_nanos=500, op_end_rel_nanos=9_000)
    found = {execution.name: execution for execution in executions(stats)}
    assert found["MatMul"].seconds == pytest.approx(219e-9)
    assert found["MatMul"].end == pytest.approx(484e-9)
    assert found["MatMul"].output_bytes == (16_384,)
    assert found["Merge"].end == pytest.approx(9_500e-9)
    assert found["Merge"].seconds == 0.0
    assert len(list(executions(stats))) == 2
