"""Trains in replicated replicas of which one fails while the other one waits for it, then goes on.

Prints a line for each of three steps that end with an error: its type and its words."""

import sys

import keras
import keras_models
import numpy as np
import tensorflow as tf
from test_keras_replicas import bound

import placer

TURNS = 3000
"""So many products take long enough for the other replica to wait."""


class Checked(keras.layers.Layer):
    """Its values as they are; where one is no number, an error after a while."""

    def call(self, values):
        turns = tf.where(tf.reduce_any(tf.math.is_nan(values)), TURNS, 0)
        _, product = tf.while_loop(
            lambda turn, _: turn < turns,
            lambda turn, value: (turn + 1, value @ value / 64),
            (0, tf.ones((64, 64))),
        )
        with tf.control_dependencies([product]):
            return tf.debugging.check_numerics(values, "the values")


def checked():
    """A model whose values are looked at, and its data."""
    model = keras.Sequential([keras.Input((24,)), Checked(), keras.layers.Dense(5)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, jit_compile=False)
    return model, *keras_models.functional()[1:]


def main():
    placer.cpu_devices(2)
    model, x, y = keras_models.fresh(checked)
    x, y = x[: keras_models.BATCH], y[: keras_models.BATCH]
    wrong = np.concatenate([x[:-1], np.full_like(x[:1], np.nan)])  # in the second replica
    with bound(model, checked):
        model.train_on_batch(x, y)
        for batch in (wrong, x, x):
            try:
                model.train_on_batch(batch, y)
            except Exception as error:
                sys.stdout.write(f"{type(error).__name__} {' '.join(str(error).split())}\n")


if __name__ == "__main__":
    main()
