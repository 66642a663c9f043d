"""Training by fit on all GPUs at once, each with a copy of the variables."""

import keras
import numpy as np
import tensorflow as tf

STEPS, EACH = 6, 16

strategy = tf.distribute.MirroredStrategy()
batch = EACH * strategy.num_replicas_in_sync
data = np.random.default_rng(0).random((batch * STEPS, 256), "float32")
rows = tf.data.Dataset.from_tensor_slices((data, data[:, :1])).batch(batch)

with strategy.scope():
    model = keras.Sequential(
        [
            keras.layers.Dense(1024, "relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.1),
            keras.layers.Dense(1024, "relu"),
            keras.layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.Adam(), "mse", metrics=["mae"])
history = model.fit(rows, epochs=2, verbose=2)
model.evaluate(rows, verbose=2)
print("replicas:", strategy.num_replicas_in_sync)
print("last step:", STEPS * len(history.epoch))
