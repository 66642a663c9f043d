"""Training programs of several kinds, each small: what tests place and run for some steps."""

from __future__ import annotations

from contextlib import nullcontext

import keras
import numpy as np
import tensorflow as tf

layers = keras.layers


def fresh(build, scope=None):
    """``build()`` with the names and the random values of a new process, inside of ``scope``."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(7)
    with scope or nullcontext():
        return build()


def cnn():
    """Convolution, batch normalisation, dropout, dense; Adam, cross entropy, accuracy."""
    model = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(8, 3),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Flatten(),
            layers.Dropout(0.3),
            layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    return model


def _perceptron(optimizer, dtype="float32"):
    """Dense layers whose every update runs inside of a ``cond``; data as of the CNN."""
    shape = {"dtype": dtype}
    model = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Flatten(),
            layers.Dense(32, activation="relu", **shape),
            layers.BatchNormalization(**shape),
            layers.Dense(16, activation="relu", **shape),
            layers.Dense(10, **shape),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
    return model


def mixed_float16():
    """Adam behind a loss scale that grows at every sixth step; the first steps overflow."""
    adam = keras.optimizers.Adam(1e-2)
    scaled = keras.optimizers.LossScaleOptimizer(adam, 2.0**22, dynamic_growth_steps=6)
    return _perceptron(scaled, "mixed_float16")


def accumulated():
    """Adam that updates at every fourth step, in between gradients are added up."""
    return _perceptron(keras.optimizers.Adam(1e-2, gradient_accumulation_steps=4))


def averaged():
    """Momentum whose weights are overwritten by their average at every third step."""
    return _perceptron(
        keras.optimizers.SGD(0.05, 0.9, use_ema=True, ema_momentum=0.8, ema_overwrite_frequency=3)
    )


def cnn_data(steps=20, batch=16):
    """(images, labels) of ``steps`` batches."""
    rng = np.random.default_rng(0)
    count = steps * batch
    return rng.random((count, 8, 8, 3), np.float32), rng.integers(0, 10, count)


def transformer():
    """One encoder block over embedded tokens; the head reads the mean."""
    ids = keras.Input((12,), dtype="int32")
    x = layers.Embedding(50, 16)(ids)
    attended = layers.MultiHeadAttention(2, 8)(x, x)
    x = layers.LayerNormalization()(x + attended)
    hidden = layers.Dense(16)(layers.Dense(32, activation="gelu")(x))
    x = layers.LayerNormalization()(x + hidden)
    model = keras.Model(ids, layers.Dense(1)(layers.GlobalAveragePooling1D()(x)))
    model.compile(keras.optimizers.Adam(1e-3), "mse")
    return model


def transformer_data(steps=20, batch=4):
    """(token ids, targets) of ``steps`` batches."""
    rng = np.random.default_rng(1)
    count = steps * batch
    return rng.integers(0, 50, (count, 12), np.int32), rng.random((count, 1), np.float32)


def recurrent():
    """A stateful LSTM, which Keras runs as a ``While``, and a dense head."""
    lstm = layers.LSTM(8, stateful=True, use_cudnn=False)
    model = keras.Sequential([keras.Input(batch_shape=(4, 6, 5)), lstm, layers.Dense(1)])
    model.compile("rmsprop", "mse")
    return model


def recurrent_data(steps=20, batch=4):
    """(sequences, targets) of ``steps`` batches."""
    rng = np.random.default_rng(2)
    count = steps * batch
    return rng.random((count, 6, 5), np.float32), rng.random((count, 1), np.float32)


def shared_parts():
    """Two towers that share their layers, and an embedding that is read twice."""
    tower = keras.Sequential([layers.Dense(16, activation="relu"), layers.Dense(8)])
    table = layers.Embedding(30, 6)
    left, right = keras.Input((5,), dtype="int32"), keras.Input((5,), dtype="int32")
    ends = [tower(layers.Flatten()(table(side))) for side in (left, right)]
    model = keras.Model([left, right], layers.Dot(1)(ends))
    model.compile("sgd", "mse")
    return model


def shared_data(steps=20, batch=4):
    """((left ids, right ids), targets) of ``steps`` batches."""
    rng = np.random.default_rng(3)
    ids = [rng.integers(0, 30, (steps * batch, 5), np.int32) for _ in range(2)]
    return tuple(ids), rng.random((steps * batch, 1), np.float32)


class MixedPrecision(tf.Module):
    """A loop of one's own in float16, float32 weights, and a loss scale that follows the
    gradients (``cond``)."""

    def __init__(self):
        super().__init__()
        self.first = tf.Variable(tf.random.stateless_normal([12, 16], [1, 2]), name="first")
        self.second = tf.Variable(tf.random.stateless_normal([16, 1], [3, 4]), name="second")
        self.momenta = [
            tf.Variable(tf.zeros_like(v), name=f"{v.name[:-2]}_momentum") for v in self.weights
        ]
        self.scale = tf.Variable(2.0**10, name="scale")
        self.good_steps = tf.Variable(0, name="good_steps")

    @property
    def weights(self):
        return [self.first, self.second]

    @tf.function(input_signature=[tf.TensorSpec([None, 12]), tf.TensorSpec([None, 1])])
    def step(self, x, y):
        with tf.GradientTape() as tape:
            first, second = (tf.cast(w, tf.float16) for w in self.weights)
            hidden = tf.nn.relu(tf.cast(x, tf.float16) @ first)
            loss = tf.reduce_mean(tf.square(tf.cast(hidden @ second, tf.float32) - y))
            scaled = loss * self.scale
        gradients = [g / self.scale for g in tape.gradient(scaled, self.weights)]
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(g)) for g in gradients])
        tf.cond(finite, lambda: self._apply(gradients), self._skip)
        return loss

    def _apply(self, gradients):
        for weight, momentum, gradient in zip(self.weights, self.momenta, gradients, strict=True):
            momentum.assign(0.9 * momentum + gradient)
            weight.assign_sub(0.01 * momentum)
        self.good_steps.assign_add(1)
        self.scale.assign(tf.where(self.good_steps % 5 == 0, self.scale * 2.0, self.scale))
        return tf.constant(True)

    def _skip(self):
        self.scale.assign(self.scale / 2.0)
        return tf.constant(False)

    def batches(self, steps=20):
        rng = np.random.default_rng(4)
        for _ in range(steps):
            x = rng.random((4, 12), np.float32)
            yield tf.constant(x), tf.constant(x.sum(1, keepdims=True))


class Recommender(tf.Module):
    """User and item embeddings with sparse gradients, which Adagrad applies row by row."""

    def __init__(self):
        super().__init__()
        shapes = {"users": [40, 8], "items": [60, 8]}
        self.tables = {
            name: tf.Variable(tf.random.stateless_normal(shape, [5, shape[0]]), name=name)
            for name, shape in shapes.items()
        }
        self.slots = {
            name: tf.Variable(tf.fill(shape, 0.1), name=f"{name}_accumulator")
            for name, shape in shapes.items()
        }
        self.head = tf.Variable(tf.random.stateless_normal([8, 1], [6, 7]), name="head")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)] * 2 + [tf.TensorSpec([None, 1])])
    def step(self, users, items, ratings):
        with tf.GradientTape() as tape:
            rows = [
                tf.nn.embedding_lookup(self.tables[name], ids)
                for name, ids in (("users", users), ("items", items))
            ]
            loss = tf.reduce_mean(tf.square((rows[0] * rows[1]) @ self.head - ratings))
        watched = [*self.tables.values(), self.head]
        *sparse, dense = tape.gradient(loss, watched)
        for name, gradient in zip(self.tables, sparse, strict=True):
            assert isinstance(gradient, tf.IndexedSlices)
            tf.raw_ops.ResourceSparseApplyAdagradV2(
                var=self.tables[name].handle,
                accum=self.slots[name].handle,
                lr=0.1,
                epsilon=1e-7,
                grad=gradient.values,
                indices=gradient.indices,
            )
        self.head.assign_sub(0.1 * dense)
        return loss

    def batches(self, steps=20):
        rng = np.random.default_rng(5)
        for _ in range(steps):
            ids = [tf.constant(rng.integers(0, n, 6, np.int32)) for n in (40, 60)]
            yield (*ids, tf.constant(rng.random((6, 1), np.float32)))
