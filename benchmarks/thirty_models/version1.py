"""Graphs of TensorFlow 1: MetaGraphDefs of training steps, and GraphDefs."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
v1.disable_v2_behavior()


def dense(x, width, name):
    """A layer with variables of its own."""
    with v1.variable_scope(name):
        w = v1.get_variable("w", [x.shape[-1], width])
        return x @ w + v1.get_variable("b", [width], initializer=v1.zeros_initializer())


def save(path, loss, optimizer=None):
    """A MetaGraphDef with a training step for ``loss``."""
    optimizer = optimizer or v1.train.AdamOptimizer()
    v1.add_to_collection("train_op", optimizer.minimize(loss, name="train"))
    v1.add_to_collection("losses", loss)
    v1.train.export_meta_graph(path)


def averages(path):
    """Batch statistics with update ops, a default for a rate, moving averages of weights."""
    x = v1.placeholder(tf.float32, [None, 16], "x")
    keep = v1.placeholder_with_default(0.5, [], "keep")
    hidden = dense(x, 32, "a")
    mean, spread = tf.nn.moments(hidden, [0])
    kept = v1.get_variable("mean", [32], trainable=False, initializer=v1.zeros_initializer())
    v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, v1.assign(kept, 0.9 * kept + 0.1 * mean))
    hidden = tf.nn.relu((hidden - mean) * tf.math.rsqrt(spread + 1e-3)) * keep
    loss = tf.reduce_mean(dense(hidden, 1, "b") ** 2, name="loss")
    average = tf.train.ExponentialMovingAverage(0.9)
    with tf.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
        step = v1.train.AdamOptimizer().minimize(loss)
    with tf.control_dependencies([step]):
        v1.add_to_collection("train_op", average.apply(v1.trainable_variables()))
    v1.add_to_collection("losses", loss)
    v1.train.export_meta_graph(path)
    return []


def recurrent(path):
    """A loop of frames (``Enter``, ``Switch``, ``NextIteration``) over a sequence; a GraphDef."""
    x = v1.placeholder(tf.float32, [None, 10, 8], "x")
    w = v1.get_variable("w", [16, 8])
    steps = tf.transpose(x, [1, 0, 2])
    source = tf.TensorArray(tf.float32, 10).unstack(steps)
    state = tf.zeros([tf.shape(x)[0], 8])

    def body(number, state):
        both = tf.concat([source.read(number), state], 1)
        state = tf.tanh(both @ w)
        state.set_shape([None, 8])
        return number + 1, state

    _, state = v1.while_loop(lambda number, _: number < 10, body, [0, state])
    tf.identity(state, "y")
    with open(path, "wb") as file:
        file.write(v1.get_default_graph().as_graph_def().SerializeToString())
    return ["--outputs", "y"]


def queued(path):
    """Examples through two queues."""
    data = tf.constant(np.random.default_rng(0).normal(size=[64, 8]).astype("float32"))
    (one,) = v1.train.slice_input_producer([data], shuffle=False)
    batch = v1.train.batch([one], 8)
    save(path, tf.reduce_mean(dense(tf.nn.relu(dense(batch, 32, "a")), 8, "b") ** 2, name="loss"))
    return []


def sparse_ids(path):
    """Sparse ids into a table in four partitions."""
    ids = v1.sparse_placeholder(tf.int64, [None, 50], "ids")
    with v1.variable_scope("table", partitioner=v1.fixed_size_partitioner(4)):
        table = v1.get_variable("rows", [400, 8])
    pooled = v1.nn.safe_embedding_lookup_sparse(table, ids, combiner="sum")
    save(
        path,
        tf.reduce_mean(dense(pooled, 1, "b") ** 2, name="loss"),
        v1.train.AdagradOptimizer(0.1),
    )
    return ["--ragged", "ids=8x5"]


def datasets(path):
    """A dataset with a function, shuffled, through an iterator that must be initialised."""
    data = tf.data.Dataset.range(100).map(lambda n: tf.fill([8], tf.cast(n, tf.float32)))
    x = v1.data.make_initializable_iterator(data.batch(8, drop_remainder=True)).get_next()
    save(path, tf.reduce_mean(dense(x, 8, "a") ** 2, name="loss"))
    return []
