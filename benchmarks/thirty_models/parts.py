"""Layers and ways to save that the builders share."""

from __future__ import annotations

from itertools import pairwise

import tensorflow as tf


class Dense(tf.Module):
    """Layers of given widths, with rectified units between them."""

    def __init__(self, widths):
        super().__init__()
        self.w = [
            tf.Variable(tf.random.stateless_normal([a, b], [a, b]) / a**0.5)
            for a, b in pairwise(widths)
        ]

    def __call__(self, x):
        for number, w in enumerate(self.w):
            x = tf.linalg.matmul(tf.nn.relu(x) if number else x, w)
        return x


def spec(shape, dtype, name):
    """A named spec."""
    return tf.TensorSpec(shape, dtype, name=name)


def save(model, path, function):
    """A SavedModel with one signature."""
    tf.saved_model.save(model, path, signatures={"serving_default": function})
