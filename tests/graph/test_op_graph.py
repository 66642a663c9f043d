"""The structure of a flat graph."""

from graphs_by_hand import draw


def test_a_tensor_lists_each_consumer_once():
    """An op that reads a tensor twice is one consumer of it."""
    graph = draw("x -> a", "x -> a", "x -> b")
    assert graph.tensors["x:0"].consumers == ("a", "b")
    assert graph.ops["a"].inputs == ("x:0", "x:0")


def test_every_output_is_a_tensor():
    """Outputs that nobody reads are tensors without consumers."""
    graph = draw("split:1 -> a", bytes={"split": 12, "a": 4})
    assert list(graph.tensors) == ["split:0", "split:1", "a:0"]
    assert graph.tensors["split:0"].consumers == ()
    assert graph.tensors["split:1"].properties.shape == (3,)


def test_networkx_shows_ops_data_edges_and_control_edges():
    """Researchers see ops on nodes, tensors on data edges, and ``None`` on control edges."""
    graph = draw("x -> a -> b", "x -> b", "a ..> b", "a ..> c")
    shown = graph.networkx
    assert [shown.nodes[name]["op"].name for name in shown] == list(graph.ops)
    edges = sorted(
        (source, target, tensor.name if tensor else "")
        for source, target, tensor in shown.edges(data="tensor")
    )
    assert edges == [
        ("a", "b", ""),
        ("a", "b", "a:0"),
        ("a", "c", ""),
        ("x", "a", "x:0"),
        ("x", "b", "x:0"),
    ]
    assert shown.edges["x", "b", 0]["tensor"] is graph.tensors["x:0"]


def test_networkx_answers_questions_of_graph_theory():
    """The view is a plain networkx graph: its algorithms run on it."""
    import networkx

    graph = draw("x -> a, b -> c -> d")
    assert networkx.ancestors(graph.networkx, "c") == {"x", "a", "b"}
    assert networkx.dag_longest_path_length(graph.networkx) == 3


def test_tensors_and_producers_have_numbers():
    """Tensors are numbered in graph order, as the ops are; inputs are those numbers."""
    graph = draw("split:1 -> a", "split:0 -> a", "a -> b", bytes={"split": 12})
    assert graph.tensor_numbers == {"split:0": 0, "split:1": 1, "a:0": 2, "b:0": 3}
    assert list(graph.tensor_producers) == [0, 0, 1, 2]
    assert [list(read) for read in graph.input_numbers] == [[], [1, 0], [2]]
    assert [list(found) for found in graph.producer_numbers] == [[], [0, 0], [1]]
