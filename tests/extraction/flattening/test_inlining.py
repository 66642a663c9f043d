"""Calls become the ops of their bodies, and nothing else changes."""

import pytest

tf = pytest.importorskip("tensorflow")

from placer.errors import ModelError, UsageError  # noqa: E402
from placer.extraction.reading.loading import load_program  # noqa: E402


def run_flat(program, feeds, captures=None):
    graph = tf.Graph()
    with graph.as_default():
        tf.graph_util.import_graph_def(program.graph_def, name="")
    with tf.compat.v1.Session(graph=graph) as session:
        fetches = [tensor for _, tensor in program.outputs], list(program.targets)
        return session.run(fetches, feeds)[0]


def test_nested_calls_give_the_same_numbers_and_call_paths():
    """A program with two levels of calls computes the same when flat, and names say the path."""

    @tf.function
    def inner(x):
        return tf.nn.relu(x) * 2.0, x

    @tf.function
    def middle(x):
        a, b = inner(x - 1.0)
        return a + b

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    def outer(x):
        return {"y": middle(x), "z": inner(x)[1]}

    program = load_program(outer)
    x = [[0.5, 1.5, 2.5]]
    expected = outer(tf.constant(x))
    y, z = run_flat(program, {"x:0": x})
    assert y.tolist() == expected["y"].numpy().tolist()
    assert z.tolist() == expected["z"].numpy().tolist()
    assert [key for key, _ in program.outputs] == ["y", "z"]
    assert not any("PartitionedCall" in node.op for node in program.graph_def.node)
    flat = next(name for name in program.origins if name.endswith("/Relu"))
    functions = [function for function, _ in program.call_path[flat]]
    assert functions[0] == ""
    assert len(functions) == 2
    assert program.origins[flat][1] == "Relu"


def test_callers_wait_for_side_effects_of_the_body():
    """A read after a call that assigns waits for the assignment inside the flat body."""
    v = tf.Variable(1.0, name="counter")

    @tf.function
    def bump():
        v.assign_add(1.0)

    @tf.function(input_signature=[])
    def outer():
        bump()
        return v.read_value()

    program = load_program(outer)
    nodes = {node.name: node for node in program.graph_def.node}
    assign = next(name for name, node in nodes.items() if node.op == "AssignAddVariableOp")
    read = next(node for node in nodes.values() if node.op == "ReadVariableOp")
    assert f"^{assign}" in read.input
    assert program.targets == (assign,)
    assert [variable.name for variable in program.variables] == ["counter"]
    assert set(program.captures) == {variable.handle for variable in program.variables}


def test_bodies_of_control_flow_stay_in_the_library():
    """While stays one op and the library keeps only what it calls."""

    @tf.function
    def unused(x):
        return x

    @tf.function(input_signature=[tf.TensorSpec([4], tf.float32)])
    def looping(x):
        x = unused(x)
        return tf.while_loop(lambda i, _: i < 3, lambda i, a: (i + 1, a * 2.0), [0, x])[1]

    program = load_program(looping)
    assert sum(node.op in ("While", "StatelessWhile") for node in program.graph_def.node) == 1
    assert len(program.graph_def.library.function) == 2


def test_missing_and_recursive_functions_are_model_errors():
    """A call of an absent function, and one of a function by itself, are told by name."""
    graph_def = tf.compat.v1.GraphDef()
    node = graph_def.node.add(name="call", op="PartitionedCall")
    node.attr["f"].func.name = "absent"
    with pytest.raises(ModelError, match="'absent', which is not in the file"):
        load_program(graph_def, outputs=["call:0"])
    function = graph_def.library.function.add()
    function.signature.name = "absent"
    function.signature.output_arg.add(name="y", type=1)
    function.ret["y"] = "again:output:0"
    function.node_def.add(name="again", op="PartitionedCall").attr["f"].func.name = "absent"
    function.node_def[0].attr["Tout"].list.type.append(1)
    with pytest.raises(ModelError, match="calls itself"):
        load_program(graph_def, outputs=["call:0"])


def test_a_graph_that_only_calls_empty_functions_is_refused():
    """Nothing is left to place, and that is said."""
    graph_def = tf.compat.v1.GraphDef()
    graph_def.node.add(name="call", op="empty")
    graph_def.library.function.add().signature.name = "empty"
    with pytest.raises(ModelError, match="nothing is left of the 1 ops"):
        load_program(graph_def)
    with pytest.raises(ModelError, match="the graph has no ops"):
        load_program(tf.Graph())


def test_a_function_with_two_traces_is_refused():
    """With two traces the program is not determined, and the error says what to pass."""

    @tf.function
    def f(x):
        return x + 1

    f(tf.constant(1.0))
    f(tf.constant(1))
    with pytest.raises(UsageError, match="2 traces"):
        load_program(f)
