"""Edges that hold large buffers to what an order takes."""

from graphs_by_hand import draw, draw_costs, random_graphs
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from placer.fitting.sequence_edges import edges_along, edges_in_line
from placer.graph.control_edges import add_control_edges
from placer.graph.order import predecessors
from placer.prediction.memory.timelines import StepMemory

KIB = 1024
DEVICE = "CPU:0"


def step_of(graph):
    return StepMemory(graph, draw_costs(graph), dict.fromkeys(graph.ops, DEVICE), [DEVICE])


def edges_of(graph, order, *, floor=0, least_share=0.0):
    return edges_along(step_of(graph), order, {DEVICE: floor}, least_share)


def pairs(**sizes):
    """Two values made and summed, then two more: each sum lets go of what it reads."""
    return draw(
        "x=Placeholder -> a1=MatMul -> r1=Sum",
        "x -> a2=MatMul -> r2=Sum",
        "x -> a3=MatMul -> r3=Sum",
        "r1, r2, r3 -> y=AddN",
        bytes=dict.fromkeys(("a1", "a2", "a3"), 8 * KIB) | sizes,
        feeds=["x"],
        fetches=["y:0"],
    )


def test_only_what_allocates_waits_and_only_for_what_is_free_by_then():
    """a1 and a2 may run at once, as along the order; a3 waits until both are gone."""
    edges = edges_of(pairs(), ["x", "a1", "a2", "r1", "r2", "a3", "r3", "y"], least_share=0.1)
    assert sorted(edges) == [("r1", "a3"), ("r2", "a3")]


def test_each_waits_where_one_is_there_at_a_time():
    edges = edges_of(pairs(), ["x", "a1", "r1", "a2", "r2", "a3", "r3", "y"], least_share=0.1)
    assert edges == [("r1", "a2"), ("r2", "a3")]


def test_what_is_small_waits_for_nothing():
    order = ["x", "a1", "r1", "a2", "r2", "a3", "r3", "y"]
    assert edges_of(pairs(a2=8), order, least_share=0.1) == [("r1", "a3")]


def test_nothing_waits_where_less_is_in_use_than_the_floor():
    order = ["x", "a1", "r1", "a2", "r2", "a3", "r3", "y"]
    assert edges_of(pairs(), order, floor=64 * KIB) == []


def test_what_writes_over_a_buffer_waits_for_its_other_readers():
    """The Relu writes over what the product gives, if the sum has read it."""
    graph = draw(
        "x=Placeholder -> a=MatMul -> r=Sum",
        "a -> w=Relu -> s=Sum",
        "r, s -> y=AddN",
        bytes={"a": 8 * KIB, "w": 8 * KIB},
        feeds=["x"],
        fetches=["y:0"],
    )
    step, order = step_of(graph), ["x", "a", "r", "w", "s", "y"]
    other = ["x", "a", "w", "r", "s", "y"]
    assert step.peaks(other)[DEVICE] > step.peaks(order)[DEVICE] + 7 * KIB
    assert edges_of(graph, order, least_share=0.1) == [("r", "w")]


def test_many_waits_become_one_for_the_allocation_before():
    """Six values are let go before two more are made: the second waits for the first."""
    names = [f"a{number}" for number in range(6)]
    lines = [f"x=Placeholder -> {name}=MatMul -> r{name}=Sum -> y=AddN" for name in names]
    lines += [f"x -> {name}=MatMul -> y" for name in ("b", "c")]
    graph = draw(
        *lines, bytes=dict.fromkeys((*names, "b", "c"), 8 * KIB), feeds=["x"], fetches=["y:0"]
    )
    order = ["x", *names, *(f"r{name}" for name in names), "b", "c", "y"]
    edges = edges_of(graph, order, least_share=0.1)
    waits = [before for before, after in edges if after == "b"]
    assert waits[0] == "a5"
    assert sorted(waits[1:]) == [f"ra{number}" for number in range(6)]
    assert [before for before, after in edges if after == "c"] == ["b"]


def test_in_line_all_that_touch_large_buffers_wait_for_each_other():
    order = ["x", "a1", "a2", "r1", "r2", "a3", "r3", "y"]
    edges = edges_in_line(step_of(pairs(a2=8)), order, {DEVICE: 0}, 0.1)
    assert edges == [("a1", "r1"), ("r1", "a3"), ("a3", "r3")]
    assert edges_in_line(step_of(pairs()), order, {DEVICE: 64 * KIB}, 0.1) == []


def drawn_order(random, graph):
    """A topological order."""
    left, order = dict.fromkeys(graph.ops), []
    while left:
        ready = [
            name
            for name in left
            if not any(each in left for each in predecessors(graph.ops[name], graph.ops))
        ]
        order.append(random.choice(ready))
        del left[order[-1]]
    return order


@settings(max_examples=300, deadline=None)
@given(random_graphs(item_bytes=(256, 512, 4096)), st.randoms(use_true_random=False))
def test_no_order_with_the_edges_takes_more(graph, random):
    """Parts of buffers aside: that an op writes over one of them, lifetimes do not say."""
    for op in graph.ops.values():
        sizes = {graph.ops[name].info.outputs[0].shape for name in (*op.producers, op.name)}
        assume(op.op_type not in ("Identity", "Reshape") or len(sizes) == 1)
    order = drawn_order(random, graph)
    step = step_of(graph)
    edges = edges_of(graph, order)
    held = add_control_edges(graph, edges)
    known = step.peaks(order)[DEVICE]
    for _ in range(8):
        other = drawn_order(random, held)
        assert step.peaks(other)[DEVICE] <= known, (order, edges, other, known, step.peaks(other))
    for edge in edges:
        without = add_control_edges(graph, [other for other in edges if other != edge])
        before, known = {edge[1]}, 0
        while len(before) > known:
            known = len(before)
            before |= {
                each for name in before for each in predecessors(without.ops[name], without.ops)
            }
        assert edge[0] not in before  # nothing else implies it


def test_computation_waits_for_a_copy_out_and_a_copy_back_for_room():
    """``c`` allocates once ``a`` has arrived on the host; ``a`` is sent back once ``c`` is gone.

    GPU:0    x --> a --> b --> c --> d --> e     a, c: large
                   '-> a/arrived -> a/swapped -> e
    """
    sizes = dict.fromkeys(("a", "c", "a/arrived", "a/swapped"), 8 * KIB)
    graph = draw(
        "x -> a -> b -> c -> d -> e",
        "a -> a/arrived=Identity -> a/swapped=Identity -> e",
        bytes=sizes,
    )
    host = ("a/arrived", "a/swapped")
    placement = {name: "CPU:0" if name in host else "GPU:0" for name in graph.ops}
    step = StepMemory(graph, draw_costs(graph), placement, ["GPU:0", "CPU:0"])
    order = ["x", "a", "b", "a/arrived", "c", "d", "a/swapped", "e"]
    floors = {"GPU:0": 0}
    assert edges_along(step, order, floors, 0.1) == [("a/arrived", "c"), ("d", "a/swapped")]
    line = edges_in_line(step, order, floors, 0.1)
    assert ("a/arrived", "c") in line
    assert ("d", "a/swapped") in line
