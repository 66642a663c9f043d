"""Small training programs: (loss of a batch, variables, batches), the same every time."""

from __future__ import annotations

from typing import Any

import numpy as np


def convolutional(batch: int) -> tuple[Any, list[Any], list[Any]]:
    """A convolution and a dense layer on images."""
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            keras.layers.Conv2D(4, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(5),
        ]
    )
    random = np.random.default_rng(0)
    images = random.normal(size=(batch, 8, 8, 3)).astype(np.float32)
    return (
        _classifier(model),
        model.trainable_variables,
        [
            tf.constant(images),
            tf.constant(random.integers(0, 5, batch)),
        ],
    )


def transformer(batch: int) -> tuple[Any, list[Any], list[Any]]:
    """Attention, layer normalisation and a feed-forward layer on embedded tokens."""
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(2)
    tokens = keras.Input((6,), dtype="int32")
    x = keras.layers.Embedding(20, 8)(tokens)
    x = keras.layers.LayerNormalization()(x + keras.layers.MultiHeadAttention(2, 4)(x, x))
    x = keras.layers.LayerNormalization()(x + keras.layers.Dense(8, activation="gelu")(x))
    model = keras.Model(tokens, keras.layers.Dense(5)(keras.layers.GlobalAveragePooling1D()(x)))
    random = np.random.default_rng(1)
    words = random.integers(0, 20, (batch, 6)).astype(np.int32)
    return (
        _classifier(model),
        model.trainable_variables,
        [
            tf.constant(words),
            tf.constant(random.integers(0, 5, batch)),
        ],
    )


def recurrent(batch: int) -> tuple[Any, list[Any], list[Any]]:
    """An LSTM over sequences of a length that the program does not know."""
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(3)
    sequence = keras.Input((None, 4))
    model = keras.Model(sequence, keras.layers.Dense(5)(keras.layers.LSTM(6)(sequence)))
    random = np.random.default_rng(2)
    values = random.normal(size=(batch, 7, 4)).astype(np.float32)
    return (
        _classifier(model),
        model.trainable_variables,
        [
            tf.constant(values),
            tf.constant(random.integers(0, 5, batch)),
        ],
    )


def recommender(batch: int) -> tuple[Any, list[Any], list[Any]]:
    """Two embedding tables with sparse gradients, and a tower over what they give."""
    import tensorflow as tf

    random = np.random.default_rng(3)

    def weight(name: str, *shape: int) -> Any:
        return tf.Variable(random.normal(scale=0.1, size=shape).astype(np.float32), name=name)

    users, items = weight("users", 50, 4), weight("items", 30, 4)
    hidden, last = weight("hidden", 8, 6), weight("last", 6, 1)

    def loss(ids: Any, rating: Any) -> Any:
        columns = [tf.gather(users, ids[:, 0]), tf.gather(items, ids[:, 1])]
        score = tf.nn.relu(tf.concat(columns, axis=1) @ hidden) @ last
        return tf.reduce_mean(tf.square(score[:, 0] - rating))

    ids = np.stack([random.integers(0, 50, batch), random.integers(0, 30, batch)], axis=1)
    ratings = random.normal(size=batch).astype(np.float32)
    return loss, [users, items, hidden, last], [tf.constant(ids), tf.constant(ratings)]


def _classifier(model: Any) -> Any:
    import keras
    import tensorflow as tf

    def loss(inputs: Any, labels: Any) -> Any:
        logits = model(inputs, training=True)
        each = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
        return tf.reduce_mean(each)

    return loss


PROGRAMS = {
    "convolutional": convolutional,
    "transformer": transformer,
    "recurrent": recurrent,
    "recommender": recommender,
}
