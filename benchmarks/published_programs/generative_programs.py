"""Programs whose models have a training step of their own, as they are published: they draw, play,
or compare."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

SIDE, LATENT = 16, 32
Arrays = tuple[Any, ...]


def pictures(count: int) -> Arrays:
    """Pictures without labels."""
    return (np.random.default_rng(5).random((count, SIDE, SIDE, 3), dtype=np.float32),)


class GAN(keras.Model):
    """A generator and a discriminator with an optimizer each (a DCGAN)."""

    def __init__(self, discriminator: Any, generator: Any, latent_dim: int) -> None:
        super().__init__()
        self.discriminator, self.generator = discriminator, generator
        self.latent_dim = latent_dim
        self.seed_generator = keras.random.SeedGenerator(1337)

    def compile(self, d_optimizer: Any, g_optimizer: Any, loss_fn: Any) -> None:
        """With an optimizer for each of the two."""
        super().compile()
        self.d_optimizer, self.g_optimizer, self.loss_fn = d_optimizer, g_optimizer, loss_fn
        self.d_loss_metric = keras.metrics.Mean(name="d_loss")
        self.g_loss_metric = keras.metrics.Mean(name="g_loss")

    @property
    def metrics(self) -> list[Any]:
        """The two losses."""
        return [self.d_loss_metric, self.g_loss_metric]

    def train_step(self, real_images: Any) -> dict[str, Any]:
        """One step of the discriminator, then one of the generator."""
        batch_size = ops.shape(real_images)[0]
        shape = (batch_size, self.latent_dim)
        latent = keras.random.normal(shape=shape, seed=self.seed_generator)
        generated = self.generator(latent)
        combined = ops.concatenate([generated, real_images], axis=0)
        labels = ops.concatenate([ops.ones((batch_size, 1)), ops.zeros((batch_size, 1))], axis=0)
        labels += 0.05 * tf.random.uniform(tf.shape(labels), seed=3)
        with tf.GradientTape() as tape:
            predictions = self.discriminator(combined)
            d_loss = self.loss_fn(labels, predictions)
        grads = tape.gradient(d_loss, self.discriminator.trainable_weights)
        self.d_optimizer.apply_gradients(
            zip(grads, self.discriminator.trainable_weights, strict=True)
        )
        latent = keras.random.normal(shape=shape, seed=self.seed_generator)
        misleading = ops.zeros((batch_size, 1))
        with tf.GradientTape() as tape:
            predictions = self.discriminator(self.generator(latent))
            g_loss = self.loss_fn(misleading, predictions)
        grads = tape.gradient(g_loss, self.generator.trainable_weights)
        self.g_optimizer.apply_gradients(zip(grads, self.generator.trainable_weights, strict=True))
        self.d_loss_metric.update_state(d_loss)
        self.g_loss_metric.update_state(g_loss)
        return {"d_loss": self.d_loss_metric.result(), "g_loss": self.g_loss_metric.result()}


def gan() -> Any:
    """A DCGAN of faces."""
    discriminator = keras.Sequential(
        [
            keras.Input((SIDE, SIDE, 3)),
            layers.Conv2D(32, 4, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Conv2D(64, 4, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Flatten(),
            layers.Dropout(0.2),
            layers.Dense(1, activation="sigmoid"),
        ],
        name="discriminator",
    )
    generator = keras.Sequential(
        [
            keras.Input((LATENT,)),
            layers.Dense(4 * 4 * 32),
            layers.Reshape((4, 4, 32)),
            layers.Conv2DTranspose(32, 4, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Conv2DTranspose(64, 4, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Conv2D(3, 5, padding="same", activation="sigmoid"),
        ],
        name="generator",
    )
    model = GAN(discriminator=discriminator, generator=generator, latent_dim=LATENT)
    model.compile(
        d_optimizer=keras.optimizers.Adam(learning_rate=0.0001),
        g_optimizer=keras.optimizers.Adam(learning_rate=0.0001),
        loss_fn=keras.losses.BinaryCrossentropy(),
    )
    return model


class Sampling(layers.Layer):
    """A point near a mean, as far as a variance says."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.seed_generator = keras.random.SeedGenerator(1337)

    def call(self, inputs: Any) -> Any:
        """Draws one for each example."""
        z_mean, z_log_var = inputs
        epsilon = keras.random.normal(ops.shape(z_mean), seed=self.seed_generator)
        return z_mean + ops.exp(0.5 * z_log_var) * epsilon


class VAE(keras.Model):
    """An autoencoder whose code is a normal distribution."""

    def __init__(self, encoder: Any, decoder: Any) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.total_loss_tracker = keras.metrics.Mean(name="total_loss")
        self.reconstruction_loss_tracker = keras.metrics.Mean(name="reconstruction_loss")
        self.kl_loss_tracker = keras.metrics.Mean(name="kl_loss")

    @property
    def metrics(self) -> list[Any]:
        """The whole loss and its two parts."""
        return [
            self.total_loss_tracker,
            self.reconstruction_loss_tracker,
            self.kl_loss_tracker,
        ]

    def train_step(self, data: Any) -> dict[str, Any]:
        """Reconstruction and divergence, one step."""
        with tf.GradientTape() as tape:
            z_mean, z_log_var, z = self.encoder(data)
            reconstruction = self.decoder(z)
            entropy = keras.losses.binary_crossentropy(data, reconstruction)
            reconstruction_loss = ops.mean(ops.sum(entropy, axis=(1, 2)))
            kl_loss = -0.5 * (1 + z_log_var - ops.square(z_mean) - ops.exp(z_log_var))
            kl_loss = ops.mean(ops.sum(kl_loss, axis=1))
            total_loss = reconstruction_loss + kl_loss
        grads = tape.gradient(total_loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(grads, self.trainable_weights, strict=True))
        self.total_loss_tracker.update_state(total_loss)
        self.reconstruction_loss_tracker.update_state(reconstruction_loss)
        self.kl_loss_tracker.update_state(kl_loss)
        return {
            "loss": self.total_loss_tracker.result(),
            "reconstruction_loss": self.reconstruction_loss_tracker.result(),
            "kl_loss": self.kl_loss_tracker.result(),
        }


def vae() -> Any:
    """A convolutional one."""
    inputs = keras.Input((SIDE, SIDE, 3))
    x = layers.Conv2D(32, 3, activation="relu", strides=2, padding="same")(inputs)
    x = layers.Conv2D(64, 3, activation="relu", strides=2, padding="same")(x)
    x = layers.Dense(16, activation="relu")(layers.Flatten()(x))
    z_mean = layers.Dense(2, name="z_mean")(x)
    z_log_var = layers.Dense(2, name="z_log_var")(x)
    encoder = keras.Model(inputs, [z_mean, z_log_var, Sampling()([z_mean, z_log_var])])
    codes = keras.Input((2,))
    x = layers.Dense(4 * 4 * 64, activation="relu")(codes)
    x = layers.Reshape((4, 4, 64))(x)
    x = layers.Conv2DTranspose(64, 3, activation="relu", strides=2, padding="same")(x)
    x = layers.Conv2DTranspose(32, 3, activation="relu", strides=2, padding="same")(x)
    decoder = keras.Model(
        codes, layers.Conv2DTranspose(3, 3, activation="sigmoid", padding="same")(x)
    )
    model = VAE(encoder, decoder)
    model.compile(optimizer=keras.optimizers.Adam())
    return model


class ContrastiveModel(keras.Model):
    """SimCLR with a linear probe beside, an optimizer each."""

    def __init__(self) -> None:
        super().__init__()
        self.temperature = 0.1
        self.contrastive_augmenter = _augmenter(0.25)
        self.classification_augmenter = _augmenter(0.75)
        self.encoder = keras.Sequential(
            [
                keras.Input((SIDE, SIDE, 3)),
                layers.Conv2D(16, 3, strides=2, activation="relu"),
                layers.Conv2D(16, 3, strides=2, activation="relu"),
                layers.Flatten(),
                layers.Dense(24, activation="relu"),
            ],
            name="encoder",
        )
        self.projection_head = keras.Sequential(
            [keras.Input((24,)), layers.Dense(24, activation="relu"), layers.Dense(24)]
        )
        self.linear_probe = keras.Sequential([keras.Input((24,)), layers.Dense(10)])

    def compile(self, contrastive_optimizer: Any, probe_optimizer: Any, **settings: Any) -> None:
        """With an optimizer for each of the two losses."""
        super().compile(**settings)
        self.contrastive_optimizer, self.probe_optimizer = contrastive_optimizer, probe_optimizer
        self.probe_loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.contrastive_loss_tracker = keras.metrics.Mean(name="c_loss")
        self.contrastive_accuracy = keras.metrics.SparseCategoricalAccuracy(name="c_acc")
        self.probe_loss_tracker = keras.metrics.Mean(name="p_loss")
        self.probe_accuracy = keras.metrics.SparseCategoricalAccuracy(name="p_acc")

    @property
    def metrics(self) -> list[Any]:
        """Losses and accuracies of both."""
        return [
            self.contrastive_loss_tracker,
            self.contrastive_accuracy,
            self.probe_loss_tracker,
            self.probe_accuracy,
        ]

    def contrastive_loss(self, projections_1: Any, projections_2: Any) -> Any:
        """How hard it is to tell which two views are of one image."""
        projections_1 = ops.normalize(projections_1, axis=1)
        projections_2 = ops.normalize(projections_2, axis=1)
        alike = ops.matmul(projections_1, ops.transpose(projections_2)) / self.temperature
        labels = ops.arange(ops.shape(projections_1)[0])
        self.contrastive_accuracy.update_state(labels, alike)
        self.contrastive_accuracy.update_state(labels, ops.transpose(alike))
        one = keras.losses.sparse_categorical_crossentropy(labels, alike, from_logits=True)
        other = keras.losses.sparse_categorical_crossentropy(
            labels, ops.transpose(alike), from_logits=True
        )
        return (one + other) / 2

    def train_step(self, data: Any) -> dict[str, Any]:
        """One step of the encoder on two views, then one of the probe on labels."""
        images, labels = data
        views = [self.contrastive_augmenter(images, training=True) for _ in range(2)]
        with tf.GradientTape() as tape:
            first, second = (
                self.projection_head(self.encoder(view, training=True), training=True)
                for view in views
            )
            contrastive_loss = self.contrastive_loss(first, second)
        weights = self.encoder.trainable_weights + self.projection_head.trainable_weights
        gradients = tape.gradient(contrastive_loss, weights)
        self.contrastive_optimizer.apply_gradients(zip(gradients, weights, strict=True))
        self.contrastive_loss_tracker.update_state(contrastive_loss)
        augmented = self.classification_augmenter(images, training=True)
        with tf.GradientTape() as tape:
            features = self.encoder(augmented, training=False)
            logits = self.linear_probe(features, training=True)
            probe_loss = self.probe_loss(labels, logits)
        gradients = tape.gradient(probe_loss, self.linear_probe.trainable_weights)
        self.probe_optimizer.apply_gradients(
            zip(gradients, self.linear_probe.trainable_weights, strict=True)
        )
        self.probe_loss_tracker.update_state(probe_loss)
        self.probe_accuracy.update_state(labels, logits)
        return {metric.name: metric.result() for metric in self.metrics}


def _augmenter(least_area: float) -> Any:
    zoom = 1.0 - least_area**0.5
    return keras.Sequential(
        [
            keras.Input((SIDE, SIDE, 3)),
            layers.Rescaling(1 / 255),
            layers.RandomFlip("horizontal"),
            layers.RandomTranslation(zoom / 2, zoom / 2),
            layers.RandomZoom((-zoom, 0.0), (-zoom, 0.0)),
        ]
    )


def contrastive() -> Any:
    """SimCLR."""
    model = ContrastiveModel()
    model.compile(
        contrastive_optimizer=keras.optimizers.Adam(), probe_optimizer=keras.optimizers.Adam()
    )
    return model


def contrastive_data(count: int) -> Arrays:
    """Images and the labels of their probe."""
    labels = np.random.default_rng(6).integers(0, 10, count)
    return 255 * pictures(count)[0], labels


class DiffusionModel(keras.Model):
    """A U-Net that tells the noise in an image, and the moving average of its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.normalizer = layers.Normalization()
        self.network, self.ema_network = _denoiser(), _denoiser()
        self.ema_network.set_weights(self.network.get_weights())
        self.seed_generator = keras.random.SeedGenerator(42)

    def compile(self, **settings: Any) -> None:
        """With trackers of both losses."""
        super().compile(**settings)
        self.noise_loss_tracker = keras.metrics.Mean(name="n_loss")
        self.image_loss_tracker = keras.metrics.Mean(name="i_loss")

    @property
    def metrics(self) -> list[Any]:
        """The losses of noise and of images."""
        return [self.noise_loss_tracker, self.image_loss_tracker]

    @staticmethod
    def diffusion_schedule(times: Any) -> tuple[Any, Any]:
        """The rates of noise and signal at these times."""
        start, end = ops.arccos(0.95), ops.arccos(0.02)
        angles = ops.cast(start, "float32") + times * ops.cast(end - start, "float32")
        return ops.sin(angles), ops.cos(angles)

    def train_step(self, images: Any) -> dict[str, Any]:
        """One step on noise of a random strength, and of the average."""
        images = self.normalizer(images, training=True)
        noises = keras.random.normal(ops.shape(images), seed=self.seed_generator)
        count = ops.shape(images)[0]
        times = keras.random.uniform((count, 1, 1, 1), seed=self.seed_generator)
        noise_rates, signal_rates = self.diffusion_schedule(times)
        noisy = signal_rates * images + noise_rates * noises
        with tf.GradientTape() as tape:
            told = self.network([noisy, noise_rates**2], training=True)
            told_images = (noisy - noise_rates * told) / signal_rates
            noise_loss = self.loss(noises, told)
            image_loss = self.loss(images, told_images)
        gradients = tape.gradient(noise_loss, self.network.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.network.trainable_weights, strict=True))
        self.noise_loss_tracker.update_state(noise_loss)
        self.image_loss_tracker.update_state(image_loss)
        both = zip(self.network.weights, self.ema_network.weights, strict=True)
        for weight, average in both:
            average.assign(0.999 * average + (1 - 0.999) * weight)
        return {m.name: m.result() for m in self.metrics}


def _sinusoidal_embedding(x: Any) -> Any:
    frequencies = ops.exp(ops.linspace(ops.log(1.0), ops.log(1000.0), 8))
    angles = ops.cast(2.0 * np.pi * frequencies, "float32") * x
    return ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=3)


def _denoiser() -> Any:
    noisy, variances = keras.Input((SIDE, SIDE, 3)), keras.Input((1, 1, 1))
    e = layers.Lambda(_sinusoidal_embedding, output_shape=(1, 1, 16))(variances)
    e = layers.UpSampling2D(size=SIDE, interpolation="nearest")(e)
    x = layers.Concatenate()([layers.Conv2D(16, 1)(noisy), e])
    skips = []
    for width in (16, 24):
        x = _residual(width, x)
        skips.append(x)
        x = layers.AveragePooling2D(2)(x)
    x = _residual(32, x)
    for width in (24, 16):
        x = layers.UpSampling2D(2, interpolation="bilinear")(x)
        x = _residual(width, layers.Concatenate()([x, skips.pop()]))
    x = layers.Conv2D(3, 1, kernel_initializer="zeros")(x)
    return keras.Model([noisy, variances], x, name="residual_unet")


def _residual(width: int, x: Any) -> Any:
    residual = x if x.shape[3] == width else layers.Conv2D(width, 1)(x)
    x = layers.BatchNormalization(center=False, scale=False)(x)
    x = layers.Conv2D(width, 3, padding="same", activation="swish")(x)
    x = layers.Conv2D(width, 3, padding="same")(x)
    return layers.Add()([x, residual])


def diffusion() -> Any:
    """A denoising diffusion implicit model of flowers."""
    model = DiffusionModel()
    model.normalizer.adapt(pictures(64)[0])
    model.compile(
        optimizer=keras.optimizers.AdamW(learning_rate=1e-3, weight_decay=1e-4),
        loss=keras.losses.mean_absolute_error,
    )
    return model


class DeepQ(keras.Model):
    """A player of four actions that learns from what it remembers, by a slower copy of itself."""

    def __init__(self) -> None:
        super().__init__()
        self.player, self.target = _player(), _player()
        self.target.set_weights(self.player.get_weights())

    def call(self, states: Any) -> Any:
        """What each action is worth."""
        return self.player(states)

    def train_step(self, data: Any) -> dict[str, Any]:
        """One update from a batch of memories."""
        states, actions, rewards, after, done = data[0]
        future = self.target(after, training=False)
        worth = rewards + 0.99 * ops.max(future, axis=1)
        worth = worth * (1 - done) - done
        mask = ops.one_hot(actions, 4)
        with tf.GradientTape() as tape:
            values = self.player(states)
            taken = ops.sum(ops.multiply(values, mask), axis=1)
            loss = self.compute_loss(y=worth, y_pred=taken)
        grads = tape.gradient(loss, self.player.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.player.trainable_variables, strict=True))
        for slow, fast in zip(self.target.weights, self.player.weights, strict=True):
            slow.assign(0.995 * slow + 0.005 * fast)
        return {"loss": loss}


def _player() -> Any:
    return keras.Sequential(
        [
            keras.Input((20, 20, 4)),
            layers.Conv2D(16, 8, strides=4, activation="relu"),
            layers.Conv2D(32, 2, strides=2, activation="relu"),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(4, activation="linear"),
        ]
    )


def reinforcement() -> Any:
    """Deep Q-learning of a game."""
    model = DeepQ()
    optimizer = keras.optimizers.Adam(learning_rate=0.00025, clipnorm=1.0)
    model.compile(optimizer=optimizer, loss=keras.losses.Huber())
    return model


def memories(count: int) -> Arrays:
    """States, actions, rewards, the states after, and whether that was the end."""
    random = np.random.default_rng(7)
    states = random.random((2, count, 20, 20, 4), dtype=np.float32)
    actions = random.integers(0, 4, count)
    rewards = random.random(count, dtype=np.float32)
    done = (random.random(count) < 0.1).astype("float32")
    return ((states[0], actions, rewards, states[1], done),)
