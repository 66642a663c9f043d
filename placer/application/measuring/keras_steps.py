"""How long Keras takes for a step beside its ops."""

from __future__ import annotations

import time

import numpy as np
import tensorflow as tf

_STEPS, _EPOCHS = 300, 5


def measure_keras_seconds() -> float:
    """The seconds that a step of ``fit`` of one small layer takes on this machine's host, in the
    fastest of some epochs: its ops take some microseconds, the rest is Keras's."""
    import keras

    with tf.device("CPU:0"):
        model = keras.Sequential([keras.layers.Input([4]), keras.layers.Dense(2)])
        model.compile("sgd", "mse", jit_compile=False)
        x, y = np.zeros([_STEPS, 4], np.float32), np.zeros([_STEPS, 2], np.float32)
        found = []
        for _ in range(_EPOCHS):
            started = time.perf_counter()
            model.fit(x, y, batch_size=1, verbose=0)
            found.append(time.perf_counter() - started)
    return float(f"{min(found) / _STEPS:.2g}")
