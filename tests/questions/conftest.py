"""A small program to ask about."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(scope="session")
def network() -> Any:
    """Three dense layers, 64 -> 256 -> 256 -> 10, on 8 examples, with a lookup on strings.

    Weights are 338 KiB: with 300 KiB for each of two GPUs the layers must be divided.  The table
    lookup has no GPU kernel.
    """
    import tensorflow as tf

    sizes = ((64, 256), (256, 256), (256, 10))
    weights = [
        tf.Variable(tf.random.stateless_normal(size, seed=(0, i)), name=f"w{i}")
        for i, size in enumerate(sizes)
    ]

    @tf.function(input_signature=[tf.TensorSpec((8, 64)), tf.TensorSpec((8,), tf.string)])
    def serve(x, words):
        for i, weight in enumerate(weights):
            with tf.name_scope(f"layer_{i}"):
                x = tf.nn.relu(tf.matmul(x, weight, name="product"), name="relu")
        lengths = tf.cast(tf.strings.length(words, name="lengths"), tf.float32, name="floats")
        return tf.add(x, lengths[:, None], name="sum")

    serve.kept = weights  # the variables live as long as the function
    return serve


CAPS = {"devices": "2xGPU:300KiB", "time_limit": 3.0}
