"""Costs in the environment that a program runs in."""

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
