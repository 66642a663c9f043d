"""Control edges that order nothing, by the transitive closure and reduction of networkx."""

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.extraction.flattening.implied_control import drop_implied_control
from placer.graph.tensor_names import data_inputs


@st.composite
def graphs(draw):
    """Ops in order, some of them bundles of edges, with data and control inputs."""
    count = draw(st.integers(2, 12))
    names = [f"op{number}" for number in range(count)]
    bundles = {name for name in names if draw(st.integers(0, 3)) == 0}
    inputs = {}
    for place, name in enumerate(names):
        before = st.sampled_from(names[:place]) if place else st.nothing()
        read = draw(st.lists(before, max_size=2, unique=True)) if place else []
        waited = draw(st.lists(before, max_size=4, unique=True)) if place else []
        read = [] if name in bundles else [other for other in read if other not in bundles]
        inputs[name] = [*read, *(f"^{other}" for other in waited)]
    return names, bundles, inputs


def paths(names, bundles, inputs):
    """The graph of all ops, and of its closure without bundles."""
    graph = networkx.DiGraph()
    graph.add_nodes_from(names)
    graph.add_edges_from((text.lstrip("^"), name) for name in names for text in inputs[name])
    closure = networkx.transitive_closure(graph)
    return graph, closure.subgraph(set(names) - bundles)


@given(graphs())
def test_all_paths_between_ops_stay(given_graph):
    """Whoever waited for an op still does, over ops that are no bundles or by an edge."""
    names, bundles, inputs = given_graph
    sources = {name: [text.lstrip("^") for text in inputs[name]] for name in names}
    left = {name: list(texts) for name, texts in inputs.items()}
    drop_implied_control(names, dict.fromkeys(names, "Add"), left, sources, bundles)
    _, before = paths(names, bundles, inputs)
    graph, after = paths(names, bundles, left)
    assert set(before.edges) == set(after.edges)
    for name in names:
        assert data_inputs(inputs[name]) == data_inputs(left[name])
    if not bundles:  # then it is the transitive reduction, data edges aside
        reduced = networkx.transitive_reduction(graph)
        kept = {(text[1:], name) for name in names for text in left[name] if text[0] == "^"}
        data = {(text, name) for name in names for text in left[name] if text[0] != "^"}
        assert kept <= set(reduced.edges) | data


@pytest.mark.parametrize(("op_type", "waits"), [("Add", []), ("Merge", ["^a"])])
def test_a_merge_waits_for_one_of_its_inputs_only(op_type, waits):
    """What comes before one input of a ``Merge`` need not have run when that gives its output."""
    inputs = {"a": [], "b": ["a"], "c": ["b"], "d": ["c", "^a"]}
    sources = {name: [text.lstrip("^") for text in texts] for name, texts in inputs.items()}
    op_types = {"a": "Const", "b": "Neg", "c": op_type, "d": "Neg"}
    drop_implied_control(list(inputs), op_types, inputs, sources, ())
    assert inputs["d"] == ["c", *waits]


def test_reads_that_gate_an_output_order_nothing():
    """As in the functions of SavedModels: reads, a NoOp that waits for all, an output behind it."""
    inputs = {
        "x": [],
        "read": [],
        "other": [],
        "y": ["x", "read"],
        "gate": ["^read", "^other"],
        "out": ["y", "^gate"],
    }
    sources = {name: [text.lstrip("^") for text in texts] for name, texts in inputs.items()}
    drop_implied_control(list(inputs), dict.fromkeys(inputs, "Add"), inputs, sources, {"gate"})
    assert inputs["gate"] == ["^other"]  # no other path leads from it to the output
    assert inputs["out"] == ["y", "^gate"]
