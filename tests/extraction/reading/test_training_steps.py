"""Batches that no training step of a Keras model can be made of."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import placer
from placer.errors import UsageError

X, Y = np.zeros((4, 16), np.float32), np.zeros((4, 1), np.float32)

REFUSED = {
    "no targets": (X, "no targets"),
    "a tuple without targets": ((X,), "no targets"),
    "nothing": (None, "on a batch of nothing"),
    "no batches": (tf.data.Dataset.from_tensor_slices((X, Y)), r"float32\(None,\).*\.batch\(N\)"),
    "another width": ((X[:, :9], Y), "to have value 16"),
    "a number": (5, "got 5"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_batch_that_the_step_cannot_take_is_named(case):
    """In one line, without the colours of Keras; ``auto`` says the same."""
    model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    data, words = REFUSED[case]
    with pytest.raises(UsageError, match=words) as raised:
        placer.training_step(model, data)
    assert "\x1b" not in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "as fit takes it, such as (x, y)" in str(raised.value)
    if data is not None:  # of which auto asks the model itself
        with pytest.raises(UsageError, match=words):
            placer.auto(model, "1xT4", batch_size=4, data=data)
