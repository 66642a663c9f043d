"""Outputs whose sizes only a run can tell, held against runs of TensorFlow."""

from __future__ import annotations

import numpy as np
import pytest

from placer.extraction import extract
from placer.extraction.reading.training_steps import training_step


@pytest.fixture(scope="module")
def lookups():
    """A program that selects, deduplicates, parts and stitches, with every tensor of interest."""
    import tensorflow as tf

    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.int32, (6,), name="x")
        chosen = tf.where(x > 0, name="chosen")
        unique, _ = tf.unique(x, name="unique")
        parts = tf.dynamic_partition(x, x % 2, 2, name="parts")
        places = tf.dynamic_partition(tf.range(6), x % 2, 2, name="places")
        stitched = tf.dynamic_stitch(places, parts, name="stitched")
        tensors = [chosen, unique, *parts, stitched]
    return graph, tensors


def test_sizes_are_taken_at_their_largest(lookups):
    """No run needs more than the shapes that are assumed, and some run needs just that."""
    import tensorflow as tf

    graph, tensors = lookups
    names = [tensor.name for tensor in tensors]
    extraction = extract(graph, outputs=names)
    assumed = [extraction.graph.tensors[name].properties.shape for name in names]
    assert extraction.unknown == ()
    assert assumed == [(6, 1), (6,), (6,), (6,), (6,)]
    largest = np.zeros((len(names), 2), int)
    with tf.compat.v1.Session(graph=graph) as session:
        for fed in ([1, 2, 3, 4, 5, 6], [2] * 6, [1] * 6, [0, -1, 0, 7, 7, 7]):
            values = session.run(tensors, {"x:0": fed})
            for row, value in enumerate(values):
                largest[row, : value.ndim] = np.maximum(largest[row, : value.ndim], value.shape)
    assert [
        tuple(row[: len(shape)]) for row, shape in zip(largest, assumed, strict=True)
    ] == assumed


def test_what_is_assumed_is_said(lookups):
    """The ops are listed in a warning that names the option to say better."""
    graph, tensors = lookups
    warnings = extract(graph, outputs=[tensors[0].name]).warnings
    ((_, message, ops),) = [w for w in warnings if w[0] == "data_dependent_shape"]
    assert len(ops) == 1
    assert "--shape" in message


ROWS, WIDTH, IDS = 30, 4, 6


def trained(optimizer):
    """The training step of a table of which rows are read, with one of Keras's optimizers."""
    import keras
    import tensorflow as tf

    ids = keras.Input((IDS,), dtype="int32")
    model = keras.Model(ids, keras.layers.Embedding(ROWS, WIDTH)(ids))
    model.compile(optimizer, "mse")
    specs = tf.TensorSpec((None, IDS), tf.int32), tf.TensorSpec((None, IDS, WIDTH), tf.float32)
    return training_step(model, specs)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("Adagrad", {}),
        ("Adadelta", {}),
        ("Adafactor", {}),
        ("RMSprop", {"centered": True, "momentum": 0.9}),
        ("Ftrl", {}),
        ("Adagrad", {"gradient_accumulation_steps": 2}),
    ],
)
def test_gradients_that_are_rows_have_sizes_with_every_optimizer(name, settings):
    """Keras divides rows by an accumulator in branches, which may return every row of it."""
    import keras

    step = trained(getattr(keras.optimizers, name)(0.1, **settings))
    assert extract(step, batch_size=1).unknown == ()


@pytest.mark.parametrize(("divisor", "count"), [(0.0, ROWS), (1.0, IDS)])
def test_a_branch_returns_no_more_than_is_assumed(divisor, count):
    """Rows divided by a table: all rows come out where it is zero, those that went in otherwise."""
    import keras
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec((None,), tf.int64), tf.TensorSpec((), tf.float32)])
    def divide(ids, by):
        rows = tf.IndexedSlices(tf.ones((IDS, WIDTH)), ids, tf.constant([ROWS, WIDTH]))
        found = keras.ops.divide(rows, tf.fill((ROWS, WIDTH), by))
        return {"values": found.values, "indices": found.indices}

    step = divide.get_concrete_function()
    extraction = extract(step, batch_size=IDS)
    found = step(tf.range(IDS, dtype=tf.int64), tf.constant(divisor))
    tensors = dict(extraction.outputs)
    for key, value in found.items():
        assumed = extraction.graph.tensors[tensors[key]].properties.shape
        assert assumed == (ROWS, *value.shape[1:]), key
        assert value.shape[0] == count, key


def test_a_conditional_that_stays_one_op_gives_the_larger_of_its_branches():
    """In a graph, whose ``If`` others may fetch."""
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, (6, 2), name="x")
        taken = tf.compat.v1.placeholder(tf.bool, (), name="taken")
        rows = tf.cond(taken, lambda: tf.concat([x, x], 0), lambda: x)
        tf.identity(rows, name="rows")
    extraction = extract(graph, outputs=["rows"])
    assert any(op.op_type in ("If", "StatelessIf") for op in extraction.graph.ops.values())
    assert extraction.graph.tensors["rows:0"].properties.shape == (12, 2)
    assert [code for code, *_ in extraction.warnings] == ["data_dependent_shape"]


def test_a_branch_is_taken_at_its_largest_whatever_the_batch():
    """One output of the conditional follows the batch, the other what the branch takes of it."""
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, (None, 2), name="x")
        taken = tf.compat.v1.placeholder(tf.bool, (), name="taken")
        _, rows = tf.cond(taken, lambda: (x, x[:3]), lambda: (x + 1, x[:5] + 0))
        tf.identity(rows, name="rows")
    extraction = extract(graph, outputs=["rows"], batch_size=8)
    assert extraction.unknown == ()
    assert extraction.graph.tensors["rows:0"].properties.shape == (5, 2)


def test_a_shape_through_a_conditional_keeps_its_type():
    """TensorFlow 1's: the merge hands on a shape of int64 and the number of the branch."""
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        tf.compat.v1.disable_control_flow_v2()
        x = tf.compat.v1.placeholder(tf.float32, (4, 6), name="x")
        taken = tf.compat.v1.placeholder(tf.bool, (), name="taken")
        shape = tf.constant([3, 8], tf.int64)
        found = tf.compat.v1.cond(taken, lambda: tf.identity(shape), lambda: tf.identity(shape))
        tf.reshape(x, found, name="y")
        tf.compat.v1.enable_control_flow_v2()
    extraction = extract(graph, outputs=["y"])
    assert extraction.graph.tensors["y:0"].properties.shape == (3, 8)
    assert extraction.warnings == ()


def test_what_grows_in_a_loop_is_not_taken_for_its_first_turn():
    """TensorFlow 1's: a branch doubles the rows in every turn, so their number is not known."""
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        tf.compat.v1.disable_control_flow_v2()
        x = tf.compat.v1.placeholder(tf.float32, (16, 2), name="x")

        def double(turn, rows):
            twice = tf.compat.v1.cond(
                turn < 3, lambda: tf.concat([rows, rows], 0), lambda: tf.identity(rows)
            )
            return turn + 1, twice

        shapes = (tf.TensorShape([]), tf.TensorShape([None, 2]))
        _, rows = tf.compat.v1.while_loop(
            lambda turn, rows: turn < 5, double, (tf.constant(0), x), shape_invariants=shapes
        )
        tf.identity(rows, name="rows")
        tf.compat.v1.enable_control_flow_v2()
    extraction = extract(graph, outputs=["rows"])
    unknown = {str(name).partition(":")[0] for name in extraction.unknown}
    assert {"while/cond/concat", "while/cond/Merge"} <= unknown
