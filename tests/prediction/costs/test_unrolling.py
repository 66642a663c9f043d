"""What loops hold, iteration by iteration."""

import pytest
from graphs_by_hand import draw, draw_costs

from placer.prediction.costs import op_costs
from placer.prediction.costs.op_costs import follow_loop


def _follow(body, trips, parallel_iterations=10):
    """The memory of a loop with ``body``, whose condition reads its first argument."""
    condition = draw(
        ",".join(f"a{index}=Placeholder" for index in range(len(body.feeds))),
        "a0 -> less=Less",
        bytes={"less": 4},
        feeds=[f"a{index}" for index in range(len(body.feeds))],
        fetches=["less:0"],
    )
    arguments = [f"x{index}" for index in range(len(body.feeds))]
    types = [body.ops[feed].info.outputs[0] for feed in body.feeds]
    graph = draw(
        ",".join(arguments) + " -> while=While",
        bytes={
            name: 4 * size.shape[0]
            for name, size in zip(arguments, types, strict=True)
            if size.shape
        },
        dtypes={name: size.dtype for name, size in zip(arguments, types, strict=True)},
        attributes={"while": {"parallel_iterations": parallel_iterations}},
        bodies={"while": {"cond": ("condition",), "body": ("body",)}},
    )
    functions = {"condition": condition, "body": body}
    costs = {name: draw_costs(function) for name, function in functions.items()}
    return follow_loop(graph.ops["while"], functions, costs, trips)


def _counting(*lines, fetches=(), feeds=(), **drawn):
    """A body that also counts: ``i`` goes to ``next``, which costs 4 bytes."""
    return draw(
        "i=Placeholder -> next=MatMul",
        *lines,
        feeds=["i", *feeds],
        fetches=["next:0", *fetches],
        **drawn,
    )


def test_one_iteration_waits_for_the_one_before():
    """A state of 400 bytes: one new and one old are alive, however often the loop runs; 4 bytes are
    the counter, and 4 the last condition."""
    body = _counting("s=Placeholder -> t", bytes={"s": 400, "t": 400}, feeds=["s"], fetches=["t:0"])
    assert max(_follow(body, 1).peak_bytes) == 400 + 4 + 4
    assert max(_follow(body, 7).peak_bytes) == max(_follow(body, 20).peak_bytes)
    assert 2 * 400 <= max(_follow(body, 7).peak_bytes) <= 2 * 400 + 4 * 4


@pytest.mark.parametrize("limit", [1, 4])
def test_what_does_not_depend_on_the_state_runs_ahead(limit):
    """A counter that is inexpensive goes on at once: products of it alone wait for the state, in
    up to ``parallel_iterations``.

    i --> wide --> t     s --> slow --> t
    """
    body = draw(
        "i=Placeholder -> next=Reshape",
        "s=Placeholder -> slow -> t",
        "i -> wide -> t",
        bytes={"wide": 4000},
        feeds=["i", "s"],
        fetches=["next:0", "t:0"],
    )
    ahead = max(_follow(body, 20, limit).peak_bytes) // 4000
    assert 1 <= ahead <= limit + 1
    assert (ahead > 1) == (limit > 1)


def test_a_list_holds_every_item_once():
    """Three trips put the same tensor into two lists, and weights that pass through into a third:
    the tensors count once, the weights not at all."""
    body = _counting(
        "s=Placeholder -> t",
        "a=Placeholder -> pa=TensorListPushBack",
        "b=Placeholder -> pb=TensorListPushBack",
        "c=Placeholder -> pc=TensorListPushBack",
        "w=Placeholder",
        "t -> pa",
        "t -> pb",
        "w -> pc",
        bytes={"s": 400, "t": 400, "w": 10_000},
        dtypes=dict.fromkeys(("a", "b", "c", "pa", "pb", "pc"), "variant"),
        feeds=["s", "a", "b", "c", "w"],
        fetches=["t:0", "pa:0", "pb:0", "pc:0", "w:0"],
    )
    found = _follow(body, 3)
    assert sum(found.result_bytes) == 4 + 3 * 400
    assert found.result_bytes[-1] == 0


def test_long_loops_are_concluded_from_fewer_iterations(monkeypatch):
    """A list that grows by 400 bytes a trip: following 5 of 50 trips finds the same."""
    body = draw(
        "i=Placeholder -> next",
        "s=Placeholder -> t",
        "list=Placeholder -> push=TensorListPushBack",
        "t -> push",
        bytes={"s": 400, "t": 400},
        dtypes={"list": "variant", "push": "variant"},
        feeds=["i", "s", "list"],
        fetches=["next:0", "t:0", "push:0"],
    )
    whole = _follow(body, 50)
    monkeypatch.setattr(op_costs, "_MOST_OPS", 5 * 12)
    fewer = _follow(body, 50)
    assert fewer.result_bytes == whole.result_bytes
    assert set(fewer.peak_bytes) == set(whole.peak_bytes)
