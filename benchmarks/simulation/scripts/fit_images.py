"""A convolutional classifier fed by tf.data, with callbacks that save, stop and lower the rate."""

import tempfile
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

BATCH, STEPS, EPOCHS = 16, 4, 3

random = np.random.default_rng(0)
images = random.random((BATCH * STEPS, 64, 64, 3), "float32")
labels = np.eye(10, dtype="float32")[random.integers(0, 10, BATCH * STEPS)]


def pipeline(training: bool) -> tf.data.Dataset:
    rows = tf.data.Dataset.from_tensor_slices((images, labels))
    if training:
        rows = rows.shuffle(100).map(lambda x, y: (tf.image.random_flip_left_right(x), y))
    return rows.batch(BATCH).prefetch(tf.data.AUTOTUNE)


def block(x, filters):
    shortcut = keras.layers.Conv2D(filters, 1, strides=2)(x)
    x = keras.layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.MaxPooling2D()(keras.layers.SeparableConv2D(filters, 3, padding="same")(x))
    return keras.layers.add([x, shortcut])


inputs = keras.Input((64, 64, 3))
x = inputs
for filters in (16, 32, 64):
    x = block(x, filters)
outputs = keras.layers.Dense(10)(keras.layers.GlobalAveragePooling2D()(x))
model = keras.Model(inputs, outputs)
model.compile(
    keras.optimizers.SGD(0.1, momentum=0.9, global_clipnorm=1.0),
    keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1),
    metrics=["accuracy", keras.metrics.TopKCategoricalAccuracy(3)],
)
with tempfile.TemporaryDirectory() as folder:
    best = Path(folder) / "best.weights.h5"
    callbacks = [
        keras.callbacks.ModelCheckpoint(best, save_weights_only=True, save_best_only=True),
        keras.callbacks.EarlyStopping(patience=EPOCHS, restore_best_weights=True),
        keras.callbacks.ReduceLROnPlateau(patience=1),
        keras.callbacks.CSVLogger(Path(folder) / "log.csv"),
    ]
    history = model.fit(
        pipeline(training=True),
        validation_data=pipeline(training=False),
        epochs=EPOCHS,
        callbacks=callbacks,
        verbose=2,
    )
    model.load_weights(best)
print("last step:", STEPS * len(history.epoch))
