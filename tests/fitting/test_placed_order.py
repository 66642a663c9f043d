"""Control edges that keep memory low: what they promise, on graphs drawn by hand."""

import random

import pytest
from graphs_by_hand import draw, draw_costs
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_models.clusters import parse_cluster
from placer.errors import ModelError, UsageError
from placer.fitting.list_scheduling import find_low_order
from placer.fitting.placed_order import (
    FIT,
    FREE,
    edges_of_placement,
)
from placer.graph.control_edges import add_control_edges, joinable_ops
from placer.graph.order import predecessors
from placer.prediction.memory.timelines import StepMemory
from placer.prediction.orders.possible_steps import predict_peak_ranges
from placer.prediction.step.executor import prepare

KIB = 1024


def masks(count=6):
    """A chain that reads one large mask per step; every mask could be made at once.

    m1 --.    m2 --.    m3 --.
    x --> a1 ----> a2 ----> a3
    """
    lines = ["x=Placeholder -> s0"]
    for number in range(count):
        lines += [f"s{number}, m{number}=RandomUniform -> a{number}", f"a{number} -> s{number + 1}"]
    sizes = {f"m{number}": 64 * KIB for number in range(count)}
    sizes |= {f"a{number}": 4 * KIB for number in range(count)}
    return draw(*lines, bytes=sizes, feeds=["x"], fetches=[f"s{count}:0"])


def edges_of(graph, order, cap="64GiB"):
    """The edges of a placement on one device under ``cap``."""
    placement = dict.fromkeys(graph.ops, "CPU:0")
    cluster = parse_cluster(f"CPU:{cap}")
    return edges_of_placement(graph, draw_costs(graph), placement, cluster, (), order)


def high_peak(graph, edges=()):
    """The high end of the peak with the ``edges``."""
    ordered, placement = add_control_edges(graph, edges), dict.fromkeys(graph.ops, "CPU:0")
    return predict_peak_ranges(ordered, draw_costs(graph), placement, ["CPU:0"])["CPU:0"].high_bytes


def test_masks_are_made_one_at_a_time():
    """Six masks of 64 KiB take little more than one."""
    edges = edges_of(masks(), "memory")
    assert high_peak(masks()) > 6 * 64 * KIB
    assert high_peak(masks(), edges) < 1.2 * 64 * KIB
    assert all(after[0] in "ma" for _, after in edges)


def test_the_caps_decide_whether_ops_are_held():
    """Under a cap of three masks some wait; free, or under a cap for all, none does."""
    cap = 3 * 64 * KIB + 16 * KIB
    some = edges_of(masks(), FIT, f"{cap}B")
    assert some
    assert high_peak(masks(), some) <= cap
    assert edges_of(masks(), FIT, f"{7 * 64 * KIB}B") == ()
    assert edges_of(masks(), FREE, f"{cap}B") == ()


def test_a_chain_needs_no_edges():
    """One order only: nothing to choose."""
    chain = draw("x=Placeholder -> a -> b -> c", feeds=["x"], fetches=["c:0"])
    assert edges_of(chain, "memory") == ()


@st.composite
def any_graph(draw_value):
    """Up to 14 ops in layers, with sizes that differ a lot."""
    count = draw_value(st.integers(3, 14))
    seed = draw_value(st.integers(0, 1000))
    rng = random.Random(seed)
    lines = []
    for op in range(1, count):
        for source in rng.sample(range(op), min(op, rng.randint(1, 2))):
            lines.append(f"n{source} -> n{op}")
    sizes = {f"n{op}": 4 * rng.choice((1, 64, 1024, 4096)) for op in range(count)}
    return draw("n0=Placeholder", *lines, bytes=sizes, feeds=["n0"], fetches=[f"n{count - 1}:0"])


@settings(max_examples=40, deadline=None)
@given(any_graph())
def test_edges_never_make_a_cycle_and_never_raise_a_peak(graph):
    """Whatever the graph: it can still be run, and the high peak is not above what it was."""
    edges = edges_of(graph, "memory")
    with_edges = add_control_edges(graph, edges)
    position = {name: index for index, name in enumerate(with_edges.ops)}
    for op in with_edges.ops.values():
        assert all(position[before] < position[op.name] for before in predecessors(op, graph.ops))
    assert high_peak(graph, edges) <= high_peak(graph)


@settings(max_examples=40, deadline=None)
@given(any_graph())
def test_the_bytes_of_the_low_order_are_those_of_the_prediction(graph):
    """The schedule counts buffers as the prediction does."""
    placement = dict.fromkeys(graph.ops, "CPU:0")
    step = StepMemory(graph, draw_costs(graph), placement, ("CPU:0",))
    successors = [[op for _, op, _ in edges] for edges in prepare(graph).successors]
    low = find_low_order(step.layout, successors, ("CPU:0",), [1 << 30])
    assert sorted(low.ops) == list(range(len(graph.ops)))
    fed = sum(step.layout.bytes[v] for op in step.layout.feeds for v in step.layout.outputs[op])
    names = [step.layout.names[op] for op in low.ops]
    assert low.peak_bytes[0] == step.peaks(names)["CPU:0"] - fed


def test_what_an_edge_may_not_join():
    """Nothing inside a loop of TensorFlow 1 or behind it, no fed value, constant or branch."""
    graph = draw(
        "x=Placeholder -> enter=Enter -> merge=Merge -> body -> exit=Exit -> after",
        "x -> free -> if=If",
        "constant=Const -> free",
        feeds=["x"],
        fetches=["after:0", "if:0"],
        bodies={"if": {"then_branch": ("then",), "else_branch": ("else",)}},
    )
    assert joinable_ops(graph) == {"free"}


def test_edges_that_cannot_be():
    """A cycle and an unknown op are refused."""
    graph = draw("a=Placeholder -> b -> c", feeds=["a"], fetches=["c:0"])
    with pytest.raises(ModelError, match="cycle"):
        add_control_edges(graph, [("c", "b")])
    with pytest.raises(UsageError, match="z, which the model lacks"):
        add_control_edges(graph, [("z", "b")])
