"""The executor's orders and the range of peaks they span."""

from graphs_by_hand import draw, draw_costs

from placer.graph.order import predecessors
from placer.prediction.execution_orders import executor_orders, predict_peak_ranges
from placer.prediction.memory import predict_memory


def _branches():
    """Two branches with a large middle.

    x ---> a1 --> a2 --> y        a1 and b1 are large
      '--> b1 --> b2 --'
    """
    return draw("x -> a1 -> a2 -> y", "x -> b1 -> b2 -> y", bytes={"a1": 400, "b1": 400})


def test_a_gpu_runs_first_in_first_out():
    """Both large ops are launched before either branch goes on."""
    assert executor_orders(_branches())["inline"] == ("x", "a1", "b1", "a2", "b2", "y")


def test_a_cpu_goes_on_with_the_last_expensive_op():
    """The thread keeps the last op that became ready, and comes back for the others."""
    assert executor_orders(_branches())["feeds_early"] == ("x", "b1", "b2", "a1", "a2", "y")


def test_cheap_ops_run_at_once():
    """A reshape that becomes ready beside a product runs before it."""
    graph = draw("x -> m -> y", "x -> r=Reshape -> y")
    assert executor_orders(graph)["feeds_early"] == ("x", "r", "m", "y")


def test_constants_start_first_and_feeds_before_or_after_variables():
    """What depends on variables alone runs before or after what depends on fed values."""
    graph = draw(
        "x=Placeholder -> from_feed",
        "v=VarHandleOp -> r=ReadVariableOp -> from_variable",
        "c=Const -> from_constant",
        dtypes={"v": "resource"},
        feeds=["x"],
    )
    orders = executor_orders(graph)
    assert orders["feeds_early"][:4] == ("c", "from_constant", "x", "from_feed")
    assert orders["feeds_late"][:4] == ("c", "from_constant", "v", "r")


def test_every_order_is_a_topological_one():
    """All ops run, each after what it needs."""
    graph = _branches()
    for order in executor_orders(graph).values():
        place = {name: index for index, name in enumerate(order)}
        assert sorted(order) == sorted(graph.ops)
        for op in graph.ops.values():
            assert all(place[name] < place[op.name] for name in predecessors(op, graph.ops))


def test_the_range_covers_the_orders():
    """Depth first needs one large buffer at a time, breadth first both."""
    graph = _branches()
    costs = draw_costs(graph)
    placement = dict.fromkeys(graph.ops, "GPU:0")
    found = predict_peak_ranges(graph, costs, placement, ("CPU:0", "GPU:0"))["GPU:0"]
    assert (found.least_bytes, found.most_bytes) == (400 + 4 + 4, 400 + 400 + 4)
    plain = predict_memory(graph, costs, placement, ("CPU:0", "GPU:0"))["GPU:0"].peak_bytes
    assert found.least_bytes <= plain <= found.most_bytes
