"""Keras programs to train while they are bound: name -> a compiled model, and ten batches."""

from __future__ import annotations

import keras
import numpy as np

L = keras.layers
STEPS = 10


def perceptron():
    """Weights and slots are nearly all of the memory."""
    hidden = [L.Dense(1024, activation="relu") for _ in range(8)]
    return keras.Sequential([L.Input((1024,)), *hidden, L.Dense(10)])


def transformer():
    """Four blocks of attention."""
    x = ids = L.Input((128,), dtype="int32")
    x = L.Embedding(8000, 256)(x)
    for _ in range(4):
        x = L.LayerNormalization()(x + L.MultiHeadAttention(8, 32)(x, x))
        x = L.LayerNormalization()(x + L.Dense(256)(L.Dense(1024, activation="gelu")(x)))
    return keras.Model(ids, L.Dense(10)(L.GlobalAveragePooling1D()(x)))


def recommender():
    """Two tables of embeddings and a tower."""
    ids = L.Input((1,), dtype="int32"), L.Input((1,), dtype="int32")
    tables = L.Embedding(50_000, 64)(ids[0]), L.Embedding(20_000, 64)(ids[1])
    x = L.Concatenate()([L.Flatten()(table) for table in tables])
    for width in (256, 128, 64):
        x = L.Dense(width, activation="relu")(x)
    return keras.Model(list(ids), L.Dense(10)(x))


def recurrent():
    """Two layers of LSTM, in loops."""
    ids = L.Input((50,), dtype="int32")
    x = L.Embedding(5000, 128)(ids)
    for last in (False, True):
        x = L.LSTM(256, use_cudnn=False, return_sequences=not last)(x)
    return keras.Model(ids, L.Dense(10)(x))


def mobilenet():
    """Convolutions and statistics of batches."""
    return keras.applications.MobileNetV2(
        input_shape=(96, 96, 3), weights=None, classes=10, classifier_activation=None
    )


MODELS = {  # model, optimizer, batch, shape of an example (None: two ids)
    "perceptron": (perceptron, "adam", 64, (1024,)),
    "transformer": (transformer, "adam", 8, (128,)),
    "recommender": (recommender, "sgd", 256, None),
    "recurrent": (recurrent, "rmsprop", 16, (50,)),
    "mobilenet": (mobilenet, keras.optimizers.SGD(0.1, momentum=0.9), 8, (96, 96, 3)),
}


def make(name: str):
    """The compiled model, x and y for ten batches, and the size of a batch."""
    build, optimizer, batch, shape = MODELS[name]
    keras.utils.set_random_seed(1)
    model = build()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, jit_compile=False)
    random, count = np.random.default_rng(0), batch * STEPS
    if shape is None:
        x = [random.integers(0, 20_000, (count, 1)).astype("int32") for _ in range(2)]
    elif name in ("transformer", "recurrent"):
        x = random.integers(0, 5000, (count, *shape)).astype("int32")
    else:
        x = random.normal(size=(count, *shape)).astype("float32")
    return model, x, random.integers(0, 10, count).astype("int32"), batch
