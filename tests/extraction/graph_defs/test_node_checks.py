"""Ops that do not fit their definitions are refused by name before anything counts on them."""

import pytest
from graph_defs_by_hand import Function, add_constant, add_function, add_node

pytest.importorskip("tensorflow")

from tensorflow.core.framework import graph_pb2

from placer.errors import ModelError
from placer.extraction import extract
from placer.extraction.graph_defs.call_scopes import MOST_NESTED_CALLS
from placer.extraction.reading.loading import load_program


def small_graph():
    """x -> y = Neg(x)"""
    graph = graph_pb2.GraphDef()
    add_node(graph.node, "Placeholder", "x", dtype="float32", shape=(2, 3))
    add_node(graph.node, "Neg", "y", ["x"], T="float32")
    return graph


def test_a_sound_graph_passes():
    """Nothing is refused that TensorFlow would take."""
    assert [key for key, _ in extract(small_graph()).outputs] == ["y"]


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda y: y.input.append("x"), "'y' of type Neg has 2 inputs, its definition has 1"),
        (lambda y: y.attr.pop("T"), "'y' of type Neg lacks the attribute 'T'"),
        (lambda y: y.attr["T"].CopyFrom(type(y.attr["T"])(i=1)), "has 'i' for the attribute 'T'"),
        (lambda y: y.attr["T"].CopyFrom(type(y.attr["T"])(type=3)), "'x' of dtype float32 as"),
        (lambda y: y.attr["T"].CopyFrom(type(y.attr["T"])(type=0)), "no data type for the"),
        (lambda y: y.attr["T"].CopyFrom(type(y.attr["T"])(type=999)), "data type number 999"),
        (lambda y: y.input.__setitem__(0, "x:1"), "reads 'x:1', but 'x' has 1"),
        (lambda y: y.input.__setitem__(0, "x:9999999999"), "names no output"),
        (lambda y: y.input.__setitem__(0, ""), "which names no tensor"),
    ],
)
def test_an_op_that_does_not_fit_its_definition_is_refused(harm, message):
    """Inputs, attributes and dtypes are held against the op definition."""
    graph = small_graph()
    harm(graph.node[1])
    with pytest.raises(ModelError, match=message):
        extract(graph)


def test_of_ops_that_are_alike_each_has_its_inputs():
    """Equal attributes are looked at once, the inputs of every op."""
    graph = small_graph()
    add_node(graph.node, "Neg", "z", ["y"], T="float32")
    assert [key for key, _ in extract(graph).outputs] == ["z"]
    graph.node[2].input.append("x")
    with pytest.raises(ModelError, match="'z' of type Neg has 2 inputs, its definition has 1"):
        extract(graph)


def test_what_does_not_run_is_held_against_its_definition_too():
    """A constant that nobody reads, and a call, of which only the body is in the flat graph."""
    graph = small_graph()
    add_constant(graph.node, "unread", 0)
    assert "unread" not in extract(graph).graph.ops
    del graph.node[2].attr["value"]
    with pytest.raises(ModelError, match="'unread' of type Const lacks the attribute 'value'"):
        extract(graph)
    graph = calling_graph(1, 1)
    del graph.node[2].attr["Tout"]
    with pytest.raises(ModelError, match="'call' of type PartitionedCall lacks the attribute"):
        extract(graph)


def test_a_count_that_no_op_has_is_refused():
    """A number of outputs as large as an int64 does not become a list of that length."""
    graph = small_graph()
    add_constant(graph.node, "axis", 0)
    add_node(graph.node, "Split", "split", ["axis", "y"], T="float32", num_split=2**40)
    with pytest.raises(ModelError, match=r"1,099,511,627,776 inputs or outputs"):
        extract(graph)


def calling_graph(levels, width):
    """x -> f_0, each function calling the next ``width`` times, the last one negates."""
    graph = small_graph()
    for level in range(levels + 1):
        function = add_function(graph.library, f"f_{level}", [("a", "float32")], [("r", "float32")])
        reference = "a"
        for number in range(width if level < levels else 0):
            add_node(
                function.node_def, "PartitionedCall", f"call_{number}", [reference],
                Tin=["float32"], Tout=["float32"], f=Function(f"f_{level + 1}"),
            )  # fmt: skip
            reference = f"call_{number}:output:0"
        add_node(function.node_def, "Neg", "neg", [reference], T="float32")
        function.ret["r"] = "neg:y:0"
    add_node(
        graph.node, "PartitionedCall", "call", ["y"], Tin=["float32"], Tout=["float32"],
        f=Function("f_0"),
    )  # fmt: skip
    return graph


def test_calls_that_nest_without_end_are_refused():
    """A chain of calls is followed as deep as programs go, and no deeper."""
    assert len(load_program(calling_graph(20, 1)).graph_def.node) == 23
    with pytest.raises(ModelError, match=f"nest deeper than {MOST_NESTED_CALLS}"):
        load_program(calling_graph(MOST_NESTED_CALLS + 1, 1))


def test_calls_that_multiply_are_refused():
    """Forty functions that call one another twice would be a million million ops."""
    with pytest.raises(ModelError, match="multiply to more than 20,000 calls"):
        load_program(calling_graph(40, 2))


def test_control_flow_must_fit_its_functions():
    """A While whose body takes another number of tensors is refused before it is followed."""
    graph = small_graph()
    for name, results in (("cond", [("r", "bool")]), ("body", [("r", "float32")])):
        function = add_function(graph.library, name, [("a", "float32"), ("b", "float32")], results)
        add_node(function.node_def, "Neg", "neg", ["a"], T="float32")
        function.ret["r"] = "neg:y:0"
    add_node(
        graph.node, "StatelessWhile", "while", ["y"], T=["float32"], cond=Function("cond"),
        body=Function("body"), output_shapes=[(2, 3)], parallel_iterations=1,
    )  # fmt: skip
    with pytest.raises(ModelError, match="function 'cond' takes 2 and gives 1"):
        extract(graph)


def test_a_function_that_reaches_itself_through_control_flow_is_refused():
    """A branch that contains the same conditional would be analysed for ever."""
    graph = small_graph()
    add_node(graph.node, "Placeholder", "flag", dtype="bool", shape=())
    branch = add_function(
        graph.library, "again", [("flag", "bool"), ("a", "float32")], [("r", "float32")]
    )
    again = {"then_branch": Function("again"), "else_branch": Function("again")}
    options = {"Tcond": "bool", "Tin": ["bool", "float32"], "Tout": ["float32"]}
    shapes = {"output_shapes": [(2, 3)]}
    add_node(branch.node_def, "If", "if", ["flag", "flag", "a"], **options, **again, **shapes)
    branch.ret["r"] = "if:output:0"
    add_node(graph.node, "If", "if", ["flag", "flag", "y"], **options, **again, **shapes)
    with pytest.raises(ModelError, match="refer to themselves: again -> again"):
        extract(graph)
