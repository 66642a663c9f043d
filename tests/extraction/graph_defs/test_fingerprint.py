"""The fingerprint stays when a program is placed, and changes when it is another program."""

import pytest

tf = pytest.importorskip("tensorflow")

from placer.extraction.reading.loading import load_program  # noqa: E402


def calling_graph():
    """A GraphDef with two calls of one function and a loop."""

    @tf.function
    def double(x):
        return x * 2.0

    @tf.function(input_signature=[tf.TensorSpec([4], tf.float32, name="x")])
    def run(x):
        x = double(double(x))
        return tf.while_loop(lambda i, _: i < 3, lambda i, a: (i + 1, double(a)), [0, x])[1]

    concrete = run.get_concrete_function()
    return concrete.graph.as_graph_def(), concrete.outputs[0].name


def fingerprint(graph_def, output):
    return load_program(graph_def, outputs=[output]).fingerprint


def test_devices_clones_and_names_of_functions_do_not_count():
    """Devices written everywhere and functions cloned under new names leave it as it was."""
    graph_def, output = calling_graph()
    placed = tf.compat.v1.GraphDef()
    placed.CopyFrom(graph_def)
    for function in list(placed.library.function):
        clone = placed.library.function.add()
        clone.CopyFrom(function)
        clone.signature.name = f"placed_{function.signature.name}"
        for node in clone.node_def:
            node.device = "/device:GPU:1"
    for node in placed.node:
        node.device = "/device:GPU:0"
        node.attr["_class"].list.s.append(b"loc:@x")
        for attribute in node.attr.values():
            if attribute.WhichOneof("value") == "func":
                attribute.func.name = f"placed_{attribute.func.name}"
    assert any(node.op in ("While", "StatelessWhile") for node in placed.node)
    assert fingerprint(placed, output) == fingerprint(graph_def, output)


def test_the_order_of_nodes_does_not_count():
    """The same nodes in another order are the same program."""
    graph_def, output = calling_graph()
    shuffled = tf.compat.v1.GraphDef()
    shuffled.CopyFrom(graph_def)
    nodes = list(shuffled.node)[::-1]
    del shuffled.node[:]
    shuffled.node.extend(nodes)
    assert fingerprint(shuffled, output) == fingerprint(graph_def, output)


def test_a_change_inside_a_loop_body_counts():
    """Another constant in a body that stays in the library is another program."""
    graph_def, output = calling_graph()
    changed = tf.compat.v1.GraphDef()
    changed.CopyFrom(graph_def)
    body = next(f for f in changed.library.function if "while_body" in f.signature.name)
    constant = next(node for node in body.node_def if node.op == "Const")
    constant.attr["value"].tensor.int_val[:] = [7]
    assert fingerprint(changed, output) != fingerprint(graph_def, output)
