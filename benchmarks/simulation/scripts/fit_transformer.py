"""A small language model in mixed precision, with callbacks that profile, back up and schedule."""

import tempfile
from pathlib import Path

import keras
import numpy as np

WORDS, LENGTH, WIDTH, BATCH, STEPS, EPOCHS = 4_000, 64, 128, 16, 4, 2

keras.mixed_precision.set_global_policy("mixed_float16")
tokens = np.random.default_rng(0).integers(0, WORDS, (BATCH * STEPS, LENGTH + 1))


def block(x):
    normal = keras.layers.LayerNormalization()(x)
    attention = keras.layers.MultiHeadAttention(4, WIDTH // 4)
    x = x + attention(normal, normal, use_causal_mask=True)
    normal = keras.layers.LayerNormalization()(x)
    hidden = keras.layers.Dense(4 * WIDTH, "gelu")(normal)
    return x + keras.layers.Dense(WIDTH)(hidden)


inputs = keras.Input((LENGTH,), dtype="int32")
x = keras.layers.Embedding(WORDS, WIDTH)(inputs)
for _ in range(2):
    x = block(x)
model = keras.Model(inputs, keras.layers.Dense(WORDS, dtype="float32")(x))
model.compile(
    keras.optimizers.AdamW(1e-3, use_ema=True),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)
with tempfile.TemporaryDirectory() as folder:
    callbacks = [
        keras.callbacks.TensorBoard(folder, profile_batch=(2, 3)),
        keras.callbacks.BackupAndRestore(Path(folder) / "backup"),
        keras.callbacks.LearningRateScheduler(lambda _, rate: rate * 0.9),
    ]
    history = model.fit(
        tokens[:, :-1],
        tokens[:, 1:],
        batch_size=BATCH,
        epochs=EPOCHS,
        callbacks=callbacks,
        verbose=2,
    )
    model.save(Path(folder) / "model.keras")
    keras.models.load_model(Path(folder) / "model.keras")
print("last step:", STEPS * len(history.epoch))
