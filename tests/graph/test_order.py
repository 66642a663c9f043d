"""Execution orders."""

import pytest
from graphs_by_hand import draw
from hypothesis import given
from hypothesis import strategies as st

from placer.errors import ModelError
from placer.graph.order import predecessors, topological_order


def _shuffled(graph, names):
    return {name: graph.ops[name] for name in names}


@st.composite
def _small_graphs(draw_value):
    size = draw_value(st.integers(2, 9))
    pairs = [(i, j) for j in range(size) for i in range(j)]
    chosen = draw_value(st.lists(st.sampled_from(pairs), unique=True))
    arrows = draw_value(st.lists(st.sampled_from(["->", "..>"]), min_size=len(chosen)))
    lines = [f"n{i} {arrow} n{j}" for (i, j), arrow in zip(chosen, arrows, strict=False)]
    return draw(*(f"n{i}" for i in range(size)), *lines)


@given(graph=_small_graphs(), data=st.data())
def test_every_op_follows_what_it_needs(graph, data):
    """Whatever the order of the file, an op follows its producers and its control inputs."""
    names = data.draw(st.permutations(list(graph.ops)))
    order = topological_order(_shuffled(graph, names))
    place = {name: index for index, name in enumerate(order)}
    assert sorted(order) == sorted(names)
    assert all(
        place[before] < place[op.name]
        for op in graph.ops.values()
        for before in predecessors(op, graph.ops)
    )


@given(graph=_small_graphs())
def test_a_topological_order_is_left_alone(graph):
    """Sorting twice changes nothing."""
    assert topological_order(graph.ops) == tuple(graph.ops)


def test_a_v1_loop_is_no_cycle():
    """The back edge from NextIteration to Merge orders nothing: the loop runs from Enter to Exit.

    enter -> merge -> switch -> body -> next
               ^_________________________|
    """
    graph = draw(
        "enter=Enter -> merge=Merge -> switch=Switch",
        "switch:1 -> body -> next=NextIteration -> merge",
        "switch:0 -> exit=Exit",
    )
    assert list(graph.ops) == ["enter", "merge", "switch", "body", "next", "exit"]


def test_a_cycle_is_named():
    """A cycle that is no loop is refused, and the message walks along it."""
    with pytest.raises(ModelError, match=r"a -> b -> c -> a|b -> c -> a -> b|c -> a -> b -> c"):
        draw("x -> a -> b -> c -> a", "c -> d")


def test_a_control_cycle_is_named():
    """Control edges close cycles too."""
    with pytest.raises(ModelError, match=r"a -> b -> a|b -> a -> b"):
        draw("a -> b", "b ..> a")


def test_a_long_cycle_is_shown_by_its_ends():
    """Of a cycle of a hundred ops, the message names a few and says how many there are."""
    names = [f"n{number}" for number in range(100)]
    with pytest.raises(ModelError, match=r"\.\.\. \(100 ops\) -> n\d+; break") as told:
        draw(" -> ".join([*names, names[0]]))
    assert len(str(told.value)) < 200
