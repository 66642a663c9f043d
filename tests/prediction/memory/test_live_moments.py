"""What a device holds at least while an op runs there."""

from graphs_by_hand import draw, draw_costs, random_graphs
from hypothesis import given

from placer.prediction.memory.live_moments import widest_op, working_sets


@given(graph=random_graphs())
def test_the_widest_op_is_the_first_of_the_largest_working_set(graph):
    """It is found without the working sets of most ops."""
    costs = draw_costs(graph)
    sets = working_sets(graph, costs)
    widest = max(sets, key=lambda name: sets[name].bytes)
    assert widest_op(graph, costs) == (widest, sets[widest].bytes)


def test_a_view_counts_once():
    """An op that reads a tensor and a view of it holds one buffer, and its own output."""
    graph = draw("x -> view=Reshape -> y", "x -> y", bytes={"x": 64, "view": 64, "y": 8})
    sets = working_sets(graph, draw_costs(graph, temporary_bytes={"y": 100}))
    assert sets["view"].bytes == 64
    assert sets["y"].bytes == 64 + 8 + 100


def test_a_graph_without_ops_has_no_widest_one():
    """Nothing is held there."""
    assert widest_op(draw(), {}) == ("", 0)
