"""A variational autoencoder trained by a loop of its own, with checkpoints and clipping."""

import tempfile

import keras
import numpy as np
import tensorflow as tf

BATCH, STEPS, CODE = 32, 8, 16

images = np.random.default_rng(0).random((BATCH * STEPS - 5, 28, 28, 1), "float32")
batches = tf.data.Dataset.from_tensor_slices(images).batch(BATCH)

layers = keras.layers
encoder = keras.Sequential(
    [
        layers.Conv2D(32, 3, strides=2, padding="same", activation="relu"),
        layers.Conv2D(64, 3, strides=2, padding="same", activation="relu"),
        layers.Flatten(),
        layers.Dense(2 * CODE),
    ]
)
decoder = keras.Sequential(
    [
        layers.Dense(7 * 7 * 32, "relu"),
        layers.Reshape((7, 7, 32)),
        layers.Conv2DTranspose(32, 3, strides=2, padding="same", activation="relu"),
        layers.UpSampling2D(),
        layers.Conv2D(1, 3, padding="same"),
    ]
)
optimizer = keras.optimizers.Adam(1e-3)
mean_loss = keras.metrics.Mean()


@tf.function
def train(batch):
    with tf.GradientTape() as tape:
        mean, log_variance = tf.split(encoder(batch, training=True), 2, axis=1)
        code = mean + tf.exp(0.5 * log_variance) * tf.random.normal(tf.shape(mean))
        error = tf.nn.sigmoid_cross_entropy_with_logits(batch, decoder(code, training=True))
        divergence = -0.5 * tf.reduce_sum(1 + log_variance - mean**2 - tf.exp(log_variance), 1)
        loss = tf.reduce_mean(tf.reduce_sum(error, (1, 2, 3)) + divergence)
    variables = encoder.trainable_variables + decoder.trainable_variables
    gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, variables), 5.0)
    optimizer.apply_gradients(zip(gradients, variables, strict=True))
    mean_loss.update_state(loss)


with tempfile.TemporaryDirectory() as folder:
    checkpoint = tf.train.Checkpoint(encoder=encoder, decoder=decoder, optimizer=optimizer)
    manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=2)
    for step, batch in enumerate(batches):
        train(batch)
        if step % 3 == 0:
            manager.save()
            print("loss", float(mean_loss.result()))
            mean_loss.reset_state()
    checkpoint.restore(manager.latest_checkpoint)
    assert int(optimizer.iterations) == 7
print("last step:", step + 1)
