"""Keras models of eight kinds, each small, with data whose last batch is smaller."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

layers = keras.layers
BATCH = 32
COUNT = 80  # two batches, and one of 16


def fresh(build):
    """``build()`` with the names and the random values of a new process: (model, x, y)."""
    keras.mixed_precision.set_global_policy("float32")
    keras.utils.clear_session()
    keras.utils.set_random_seed(7)
    return build()


def _random(*shape):
    return np.random.default_rng(sum(shape)).random((COUNT, *shape), np.float32)


def _numbers(most, *shape):
    return np.random.default_rng(most).integers(0, most, (COUNT, *shape))


def functional():
    """Two branches joined; accuracy beside the loss, gradients clipped by their global norm."""
    inputs = keras.Input((24,))
    left = layers.Dense(32, activation="relu")(inputs)
    right = layers.Dense(32, activation="tanh")(inputs)
    outputs = layers.Dense(5)(layers.Concatenate()([left, right]))
    model = keras.Model(inputs, outputs)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-2, global_clipnorm=0.5), loss, metrics=["accuracy"])
    return model, _random(24), _numbers(5)


@keras.saving.register_keras_serializable("tests")
class Own(keras.Model):
    """A subclass with a training step of its own: its loss is a mean of its own making."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.first = layers.Dense(32, activation="relu")
        self.last = layers.Dense(1)

    def call(self, values):
        return self.last(self.first(values))

    def build(self, shape):
        self.first.build(shape)
        self.last.build((*shape[:-1], 32))

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"loss": loss}


def own_train_step():
    """See :class:`Own`; what ``evaluate`` gives is compiled."""
    model = Own(name="own")
    model.build((None, 24))
    model.compile(keras.optimizers.SGD(0.1, 0.9), "mse")
    return model, _random(24), _random(1)


def two_inputs():
    """A dictionary of inputs, two outputs with their losses and weights; two steps add up."""
    left, right = keras.Input((8,), name="left"), keras.Input((12,), name="right")
    joined = layers.Concatenate()([layers.Dense(16)(left), layers.Dense(16)(right)])
    model = keras.Model(
        {"left": left, "right": right},
        {"a": layers.Dense(1, name="a")(joined), "b": layers.Dense(4, name="b")(joined)},
    )
    losses = {"a": "mse", "b": keras.losses.SparseCategoricalCrossentropy(from_logits=True)}
    adam = keras.optimizers.Adam(gradient_accumulation_steps=2)
    model.compile(adam, losses, loss_weights={"a": 1.0, "b": 0.5})
    return model, {"left": _random(8), "right": _random(12)}, {"a": _random(1), "b": _numbers(4)}


def mixed():
    """float16 behind a loss scale that grows at every third step."""
    keras.mixed_precision.set_global_policy("mixed_float16")
    inputs = keras.Input((24,))
    hidden = layers.Dense(32, activation="relu")(inputs)
    model = keras.Model(inputs, layers.Dense(3, dtype="float32")(hidden))
    keras.mixed_precision.set_global_policy("float32")
    adam = keras.optimizers.Adam(1e-2)
    scaled = keras.optimizers.LossScaleOptimizer(adam, 2.0**10, dynamic_growth_steps=3)
    model.compile(scaled, "mse", metrics=["mae"])
    return model, _random(24), _random(3)


def normalised():
    """Batch normalisation and dropout: its parts are not what the whole is."""
    model = keras.Sequential(
        [
            keras.Input((24,)),
            layers.Dense(32),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Dropout(0.2),
            layers.Dense(5),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    return model, _random(24), _numbers(5)


def embedded():
    """Tables of which rows are read, and gradients that are rows."""
    users, items = keras.Input((), dtype="int32"), keras.Input((), dtype="int32")
    rows = [layers.Embedding(200, 8)(ids) for ids in (users, items)]
    model = keras.Model([users, items], layers.Dense(1)(layers.Concatenate()(rows)))
    model.compile(keras.optimizers.Adagrad(0.1), "mse")
    return model, [_numbers(200).astype("int32"), _numbers(190).astype("int32")], _random(1)


def recurrent():
    """An LSTM, which is a loop; its average of weights, and a schedule."""
    model = keras.Sequential(
        [keras.Input((6, 8)), layers.LSTM(12, use_cudnn=False), layers.Dense(1)]
    )
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.8)
    optimizer = keras.optimizers.SGD(schedule, use_ema=True, ema_overwrite_frequency=3)
    model.compile(optimizer, "mse", metrics=["mae"])
    return model, _random(6, 8), _random(1)


def transformer():
    """A decoder block over embedded tokens with positions, as KerasHub builds them."""
    ids = keras.Input((10,), dtype="int32")
    x = layers.Embedding(60, 16)(ids)
    normed = layers.LayerNormalization()(x)
    x = x + layers.MultiHeadAttention(2, 8)(normed, normed, use_causal_mask=True)
    hidden = layers.Dense(32, activation="gelu")(layers.LayerNormalization()(x))
    x = x + layers.Dense(16)(hidden)
    model = keras.Model(ids, layers.Dense(60)(layers.LayerNormalization()(x)))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.AdamW(1e-2), loss, metrics=["accuracy"])
    return model, _numbers(60, 10).astype("int32"), _numbers(59, 10)


MODELS = {
    "functional": functional,
    "own_train_step": own_train_step,
    "two_inputs": two_inputs,
    "mixed": mixed,
    "normalised": normalised,
    "embedded": embedded,
    "recurrent": recurrent,
    "transformer": transformer,
}
