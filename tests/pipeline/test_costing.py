"""Costs in the environment that a program runs in."""

import pytest
from graphs_by_hand import draw, draw_costs

from placer.pipeline.costing import with_kept_constants


def test_a_session_keeps_the_first_value_of_slots():
    """It is a constant, one for all slots of a variable; from 10 MiB on it is none."""
    graph = draw(
        "w=VarHandleOp, m=VarHandleOp, v=VarHandleOp, g -> a=ResourceApplyAdam",
        "table=VarHandleOp, n=VarHandleOp, g -> b=ResourceApplyMomentum",
        dtypes=dict.fromkeys(("w", "m", "v", "table", "n"), "resource"),
    )
    sizes = dict.fromkeys(("w", "m", "v"), 1 << 20) | dict.fromkeys(("table", "n"), 11 << 20)
    found = with_kept_constants(draw_costs(graph, persistent_bytes=sizes), graph)
    kept = {name: cost.persistent_bytes for name, cost in found.items() if cost.persistent_bytes}
    assert kept == {**sizes, "m": 2 << 20}


@pytest.mark.parametrize(("limit", "unused"), [(5, True), (None, False)])
def test_a_trip_count_that_no_loop_takes_is_said_and_one_that_is_assumed(limit, unused):
    """A loop with a constant limit has its count; one whose limit is an input takes what is
    given, and else one that is assumed: nothing is proven then."""
    tf = pytest.importorskip("tensorflow")
    import placer

    @tf.function(input_signature=[tf.TensorSpec([4], name="x"), tf.TensorSpec([], tf.int32)])
    def step(x, most):
        end = most if limit is None else limit
        return tf.while_loop(lambda i, _: i < end, lambda i, x: (i + 1, tf.tanh(x)), [0, x])[1]

    report = placer.report(step, trip_count=7, devices="CPU:0=1GiB")
    codes = [code for code, *_ in report.warnings]
    assert ("unused_trip_count" in codes) is unused
    assert "assumed_trip_count" not in codes
    plan = placer.place(step, "1xT4", time_limit=2)
    assert ("assumed_trip_count" in [row.code for row in plan.warnings]) is not unused
    assert (plan.solver.status == "OPTIMAL") is unused
    assert ("best for the assumed trip count" in plan.summary()) is not unused
