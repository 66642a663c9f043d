"""Loops and branches laid out in the graph, and recordings followed in it."""

from dataclasses import replace

import pytest
from graphs_by_hand import draw, draw_costs

from benchmarks.memory_accuracy.recorded_orders import (
    RecordedLayout,
    recorded_order,
    taken_branches,
)
from placer.graph.order import topological_order
from placer.prediction.memory.lifetimes import find_lifetimes
from placer.prediction.memory.timelines import StepMemory
from placer.prediction.step import loop_bodies
from placer.prediction.step.control_flow import TripCount


@pytest.fixture
def three_trips(monkeypatch):
    """Every loop runs three times."""
    count = TripCount(count=3, exact=True)
    monkeypatch.setattr(loop_bodies, "find_trip_count", lambda _op, _graph: count)


def _laid_out(graph, taken=None, session_targets=()):
    costs = {name: draw_costs(function) for name, function in graph.functions.items()}
    layout = RecordedLayout(graph.functions, costs, taken, session_targets)
    return layout.laid_out(graph, draw_costs(graph))


def _branch():
    """x --> if(p, x) --> y     then: x --> wide --> sum     else: x --> same"""
    then = draw("x=Placeholder -> wide -> sum=Sum", feeds=["x"], fetches=["sum:0"])
    other = draw("x=Placeholder -> same", feeds=["x"], fetches=["same:0"])
    return draw(
        "p=Placeholder, x=Placeholder -> if=If -> y",
        "if ..> after",
        feeds=["p", "x"],
        fetches=["y:0", "if:0"],
        bodies={"if": {"then_branch": ("then",), "else_branch": ("other",)}},
        functions={"then": then, "other": other},
    )


def test_a_taken_branch_takes_the_place_of_its_op():
    """The readers read what the branch returns, and what waits for the op waits for that."""
    graph = _laid_out(_branch(), {"if": "then"})
    assert graph.ops["y"].inputs == ("if/then/sum:0",)
    assert graph.fetches == ("y:0", "if/then/sum:0")
    order = topological_order(graph.ops)
    assert order.index("if/then/sum") < order.index("after")
    assert "p" in graph.ops["if/switch/0"].control_inputs


def test_a_branch_that_nobody_knows_of_stays_one_op():
    graph = _branch()
    assert _laid_out(graph).ops == dict(graph.ops)


def test_a_recording_tells_the_branch():
    started = ["p", "Func/if/else/_3/input/_9", "if/else/_3/same", "inner/if/then/_7/wide"]
    assert taken_branches(started) == {"if": "else", "inner/if": "then"}


def test_a_recording_is_followed():
    """Ops come in the recorded order, those it does not name as soon as they can; fed ops have
    names of their own there."""
    graph = _laid_out(_branch(), {"if": "then"})
    started = ["_arg_x_0_1", "_arg_p_0_0", "if/then/_1/wide", "if/then/_1/sum", "after", "y"]
    order = recorded_order(graph, started)
    then = ("if/switch/0", "if/then/wide", "if/then/sum", "if/executed")
    assert order == ("x", "p", *then, "after", "y")


def _loop():
    """Three trips of i --> i + 1 and i --> wide, product(wide, state)."""
    body = draw(
        "i=Placeholder -> add=AddV2",
        "one=Const -> add",
        "i -> wide -> product",
        "s=Placeholder -> product",
        dtypes={"one": "int32", "add": "int32", "i": "int32"},
        feeds=["i", "s"],
        fetches=["add:0", "product:0"],
    )
    condition = draw(
        "i=Placeholder -> less=Less",
        "limit=Const -> less",
        "s=Placeholder",
        dtypes={"i": "int32", "limit": "int32"},
        feeds=["i", "s"],
        fetches=["less:0"],
    )
    return draw(
        "start=Const, s=Placeholder -> while=While",
        "while:1 -> y",
        dtypes={"start": "int32", "while:0": "int32"},
        feeds=["s"],
        fetches=["y:0"],
        bodies={"while": {"cond": ("condition",), "body": ("body",)}},
        functions={"condition": condition, "body": body},
    )


@pytest.mark.usefixtures("three_trips")
def test_a_loop_becomes_its_iterations():
    """Three bodies, four conditions, and the state handed from each to the next."""
    laid_out = _laid_out(_loop())
    names = laid_out.ops.keys()
    assert sum(name.endswith("/product") for name in names) == 3
    assert sum(name.endswith("/less") for name in names) == 4
    assert laid_out.ops["while/next/1/1"].inputs == ("while/body/1/product:0",)
    assert laid_out.ops["y"].inputs == ("while/exit/1:0",)
    assert list(topological_order(laid_out.ops))


@pytest.mark.usefixtures("three_trips")
def test_of_several_iterations_the_last_one_runs_first():
    """The counter ran ahead: the thread pool took the last of the three ``wide``."""
    graph = _laid_out(_loop())
    body = "while/body/_5/"
    once = ["while/cond/_4/limit", "while/cond/_4/less", body + "one", body + "add"]
    started = ["start", "_arg_s_0_0", *3 * once, "while/cond/_4/limit", "while/cond/_4/less"]
    started += 3 * [body + "wide"] + 3 * [body + "product"] + ["y"]
    order = recorded_order(graph, started)
    assert sorted(order) == sorted(graph.ops)
    wide = [name for name in order if name.endswith("/wide")]
    assert wide == ["while/body/2/wide", "while/body/1/wide", "while/body/0/wide"]


def _list_loop():
    """Three trips put 400 bytes each into a list, from which the last element is taken."""
    body = draw(
        "list=Placeholder -> push=TensorListPushBack",
        "i=Placeholder -> item -> push",
        bytes={"item": 400},
        dtypes={"list": "variant", "push": "variant"},
        feeds=["i", "list"],
        fetches=["item:0", "push:0"],
    )
    condition = draw("i=Placeholder -> any=Any", "list=Placeholder", feeds=["i", "list"])
    return draw(
        "i=Placeholder, list=EmptyTensorList -> while=While",
        "while:1 -> pop=TensorListPopBack",
        "pop:1 -> used ..> after ..> rest",
        "pop:0 -> rest=TensorListStack",
        bytes={"i": 400, "while:0": 400, "pop:1": 400},
        dtypes={"list": "variant", "while:1": "variant", "pop:0": "variant"},
        feeds=["i"],
        targets=["while", "after"],
        bodies={"while": {"cond": ("condition",), "body": ("body",)}},
        functions={"condition": replace(condition, fetches=("any:0",)), "body": body},
    )


@pytest.mark.usefixtures("three_trips")
@pytest.mark.parametrize(("asked_for", "kept"), [(False, 2 * 400), (True, 3 * 400)])
def test_a_loop_that_a_session_runs_by_name_keeps_its_lists(asked_for, kept):
    """The element that was taken out and read is freed, unless the IdentityN of the loop's results
    is still to run, for which the list was copied."""
    graph = _list_loop()
    laid_out = _laid_out(graph, session_targets=graph.targets if asked_for else ())
    assert ("while" in laid_out.ops) == asked_for
    last = [name for name in laid_out.ops if name == "while"]
    order = [name for name in laid_out.ops if name != "while"] + last
    step = StepMemory(laid_out, draw_costs(laid_out), dict.fromkeys(order, "CPU:0"), ("CPU:0",))
    at = order.index("after")
    found = find_lifetimes(step.layout, step.numbers(order))
    lists = [f for f in found if f.owner.endswith("/item") and f.first <= at <= f.last]
    assert sum(lifetime.bytes for lifetime in lists) == kept


@pytest.mark.usefixtures("three_trips")
def test_a_v1_loop_beside_it_stays_as_it_is():
    """The back edge of ``next`` to ``merge`` reads what comes later."""
    graph = _loop()
    other = draw(
        "enter=Enter -> merge=Merge -> switch=Switch -> next=NextIteration -> merge",
        "switch:1 -> exit=Exit",
    )
    both = replace(graph, ops={**other.ops, **graph.ops})
    laid_out = _laid_out(both)
    assert laid_out.ops["merge"].inputs == ("enter:0", "next:0")
    assert "while/body/2/product" in laid_out.ops
