"""A classifier of texts with recurrent layers, trained, evaluated and asked by Keras."""

import keras
import numpy as np

WORDS, LENGTH, CLASSES, STEPS = 8_000, 64, 20, 6

random = np.random.default_rng(0)
texts = random.integers(1, WORDS, (32 * STEPS, LENGTH))
classes = random.integers(0, CLASSES, 32 * STEPS)

model = keras.Sequential(
    [
        keras.layers.Embedding(WORDS, 128, mask_zero=True),
        keras.layers.Bidirectional(keras.layers.LSTM(64, return_sequences=True)),
        keras.layers.GRU(64),
        keras.layers.Dropout(0.2),
        keras.layers.Dense(CLASSES, "softmax"),
    ]
)
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
history = model.fit(texts, classes, batch_size=32, verbose=2)
model.evaluate(texts[:50], classes[:50], batch_size=32, verbose=2)
assert model.predict(texts[:5], verbose=0).shape == (5, CLASSES)
print("last step:", STEPS * len(history.epoch))
