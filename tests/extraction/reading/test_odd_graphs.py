"""Graphs that few people write today and many have: old files, live graphs, very large ones."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

tf = pytest.importorskip("tensorflow")

from google.protobuf import message  # noqa: E402

from placer.errors import ModelError, UsageError  # noqa: E402
from placer.extraction import extract  # noqa: E402
from placer.extraction.graph_defs.protobufs import live_graph_def  # noqa: E402
from placer.extraction.reading.loading import load_program  # noqa: E402
from placer.extraction.reading.training_steps import refuse_distributed  # noqa: E402

v1 = tf.compat.v1


def shape_of(extraction, tensor):
    """The shape of a tensor."""
    return extraction.graph.tensors[tensor].properties.shape


@pytest.mark.parametrize(("producer", "declared"), [(0, None), (26, ())])
def test_an_empty_shape_of_an_old_producer_is_unknown(producer, declared):
    """TensorFlow up to 1.0 wrote inputs of unknown shape so; later files mean a scalar."""
    with tf.Graph().as_default() as graph:
        v1.placeholder(tf.float32, [], "x")
        tf.square(graph.get_tensor_by_name("x:0"), name="y")
    graph_def = graph.as_graph_def()
    graph_def.versions.producer = producer
    program = load_program(graph_def)
    assert program.inputs[0].shape == declared


def test_the_input_of_an_old_file_can_be_bound():
    """Its shape is stated with --shape, as TensorFlow learns it from what is fed."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [2, 8], "x")
        tf.matmul(x, tf.ones([8, 3]), name="y")
    graph_def = graph.as_graph_def()
    graph_def.ClearField("versions")
    graph_def.node[0].attr["shape"].shape.ClearField("dim")
    assert "y:0" in extract(graph_def).unknown
    bound = extract(graph_def, shapes={"x": (2, 8)})
    assert bound.unknown == ()
    assert shape_of(bound, "y:0") == (2, 3)


def test_a_live_graph_keeps_what_set_shape_says():
    """An op whose shape nobody can infer has the one that its script gave it."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, 3], "x")
        sorted_ = v1.py_func(lambda value: value, [x], tf.float32, stateful=False)
        sorted_.set_shape([None, 3])
        tf.matmul(sorted_, tf.ones([3, 2]), name="y")
    assert shape_of(extract(graph, batch_size=4, shapes={"x": (4, 3)}), "y:0")[1] == 2


def test_a_graph_that_no_protobuf_can_hold_is_refused_in_a_sentence():
    """Constants of over 2 GB: it says how much they are, and what to make of them."""

    class Huge:
        """Takes the place of a ``tf.Graph``."""

        def as_graph_def(self, add_shapes=False):
            raise message.DecodeError("Error parsing message")

        def get_operations(self):
            tensor = SimpleNamespace(shape=tf.TensorShape([300_000, 1024]), dtype=tf.float32)
            return [SimpleNamespace(type="Const", outputs=[tensor])] * 2

    with pytest.raises(ModelError, match=r"2 constants of the graph are 2\.5 GB.*tf\.Variable"):
        live_graph_def(Huge())


def test_a_model_with_replicas_is_refused():
    """Its variables and batches are divided already; one replica is no division."""
    strategy = SimpleNamespace(num_replicas_in_sync=2)
    model = SimpleNamespace(name="m", distribute_strategy=strategy)
    with pytest.raises(UsageError, match="already divides every batch among 2 replicas"):
        refuse_distributed(model)
    strategy.num_replicas_in_sync = 1
    refuse_distributed(model)


def test_values_that_a_branch_hands_to_its_gradient_have_shapes():
    """Optionals carry them from the branches of ``tf.cond`` to those of its gradient."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, 4], "x")
        flag = v1.placeholder(tf.bool, [], "flag")
        w = v1.get_variable("w", [4, 4], use_resource=True)
        y = tf.cond(flag, lambda: tf.nn.relu(x @ w) @ w, lambda: tf.tanh(x @ w))
        (gradient,) = tf.gradients(tf.reduce_mean(y), [w])
        tf.identity(gradient, "gradient")
    found = extract(graph, outputs=["gradient"], batch_size=5)
    assert found.unknown == ()
    shapes = {
        op.info.outputs[0].shape
        for body in found.graph.functions.values()
        for op in body.ops.values()
        if op.op_type == "OptionalGetValue"
    }
    assert (5, 4) in shapes


def test_a_module_of_xla_follows_the_batch():
    """Its output has the open dimension of its input, whatever is in the module."""
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops

    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, 8], "x")
        w = tf.ones([8, 2])
        (y,) = gen_xla_ops.xla_call_module(
            args=[x, w],
            version=9,
            module=b"",
            Sout=[tf.TensorShape([None, 2])],
            Tout=[tf.float32],
            platforms=["CPU"],
        )
        tf.identity(y, "y")
    found = extract(graph, batch_size=6)
    assert found.unknown == ()
    assert shape_of(found, "y:0") == (6, 2)
