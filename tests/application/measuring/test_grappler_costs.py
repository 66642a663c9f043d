"""What Grappler's scheduler ran, as it is read."""

from __future__ import annotations

import pytest

from placer.application.measuring.grappler_costs import seconds_by_op


def test_ops_take_nanoseconds_and_a_merge_none() -> None:
    """A matrix product of 219 ns is not free; a merge that ran for each of its two inputs, and is
    said to last from the first to the last, is one op that takes no time."""
    step_stats = pytest.importorskip("tensorflow.core.framework.step_stats_pb2")
    stats = step_stats.StepStats()
    device = stats.dev_stats.add(device="/job:localhost/replica:0/task:0/device:GPU:0")
    device.node_stats.add(node_name="MatMul", all_start_nanos=265, op_end_rel_nanos=219)
    for _ in range(2):
        device.node_stats.add(node_name="Merge", all_start_nanos=500, op_end_rel_nanos=9_000)
    assert seconds_by_op(stats) == {"MatMul": pytest.approx(219e-9), "Merge": 0.0}
