"""The steps of graphs with loops: iterations that are followed among the ops around them."""

import pytest
from graphs_by_hand import draw, draw_costs

from placer.prediction.costs.op_costs import estimate_costs
from placer.prediction.orders.execution_orders import typical_order
from placer.prediction.orders.possible_steps import (
    PossibleSteps,
    as_it_runs,
    predict_peak_ranges,
)
from placer.prediction.step import loop_bodies
from placer.prediction.step.control_flow import TripCount
from placer.prediction.step.loop_bodies import BodyLayout


@pytest.fixture(autouse=True)
def five_trips(monkeypatch):
    """Every loop runs five times."""
    count = TripCount(count=5, exact=True)
    monkeypatch.setattr(loop_bodies, "find_trip_count", lambda _op, _graph: count)


def _loop(item_bytes=400):
    """x --> while --> y: every trip puts an element into a list, and reads a constant of the body.

    body: i, list --> MatMul(i, constant), push(list, element)
    """
    body = draw(
        "list=Placeholder -> push=TensorListPushBack",
        "i=Placeholder -> next=MatMul",
        "constant=Const -> next",
        "i -> element=MatMul -> push",
        bytes={"i": 400, "next": 400, "element": item_bytes, "constant": 4000},
        dtypes={"list": "variant", "push": "variant"},
        feeds=["i", "list"],
        fetches=["next:0", "push:0"],
    )
    condition = draw(
        "i=Placeholder -> any=Any", "list=Placeholder", feeds=["i", "list"], fetches=["any:0"]
    )
    return draw(
        "x=Placeholder, list=EmptyTensorList -> while=While",
        "while:1 -> stack=TensorListStack -> y",
        bytes={"x": 400, "while:0": 400, "stack": 5 * item_bytes, "y": 4},
        dtypes={"list": "variant", "while:1": "variant"},
        feeds=["x"],
        fetches=["y:0"],
        bodies={"while": {"cond": ("condition",), "body": ("body",)}},
        functions={"condition": condition, "body": body},
    )


def test_a_graph_without_loops_is_followed_as_it_is():
    graph = draw("x=Placeholder -> a -> b", feeds=["x"], fetches=["b:0"])
    steps = PossibleSteps(graph, draw_costs(graph), accelerated=False)
    assert steps.graph is graph
    assert not steps.owner


def test_iterations_run_where_their_loop_is_and_bear_its_name():
    """The list of five elements is held by the loop at the peak, and all names are the graph's."""
    graph = _loop()
    steps = PossibleSteps(graph, estimate_costs(graph), accelerated=False)
    assert len(steps.graph.ops) > len(graph.ops)
    placement = {**dict.fromkeys(graph.ops, "CPU:0"), "while": "CPU:1"}
    step = steps.memory(placement, ("CPU:0", "CPU:1"))
    timeline = step.timelines(typical_order(steps.orders, [{"CPU:1": 0} for _ in steps.orders]))
    assert timeline["CPU:1"].peak_by_op()["while"] >= 5 * 400
    named = {buffer.op for found in timeline.values() for buffer in found.live_at_peak}
    assert named | {found.peak_op for found in timeline.values()} <= {*graph.ops}
    assert {*timeline["CPU:1"].order} <= {*graph.ops}


def test_a_constant_of_the_body_is_there_once():
    """4,000 bytes, however often the loop runs."""
    graph = _loop()
    steps = PossibleSteps(graph, estimate_costs(graph), accelerated=False)
    placement = dict.fromkeys(graph.ops, "CPU:0")
    assert steps.memory(placement, ("CPU:0",)).resident_bytes("CPU:0") == 4000


def test_the_range_grows_with_what_the_iterations_hold():
    """Elements of 4,000 bytes instead of 400: the peak has five of them more, stacked and not."""
    small, large = (
        predict_peak_ranges(
            graph, estimate_costs(graph), dict.fromkeys(graph.ops, "CPU:0"), ("CPU:0",)
        )["CPU:0"]
        for graph in (_loop(400), _loop(4000))
    )
    growth = large.expected_bytes - small.expected_bytes
    assert 2 * 5 * 3600 <= growth <= 2 * 5 * 3600 + 2 * 3600


def test_a_loop_that_is_too_long_stays_one_op():
    graph = _loop()
    costs = {name: draw_costs(function) for name, function in graph.functions.items()}
    layout = BodyLayout(graph.functions, costs, 20)
    assert layout.laid_out(graph, draw_costs(graph)).ops == dict(graph.ops)
    assert not layout.owner


def test_what_is_loaded_and_not_used_is_that_of_the_graph_that_is_asked():
    """A report asks first with everything on one GPU, then for a placement: what lies unused where
    in the first is not where it is in the second."""
    graph = draw("w=Const -> a", "x -> a")
    graph.ask_once(type)
    beside = graph.with_idle({"GPU:0": (5 << 20,)})
    assert as_it_runs(beside, accelerated=True).idle_bytes == {"GPU:0": (5 << 20,)}
    assert as_it_runs(graph, accelerated=True).idle_bytes == {}
