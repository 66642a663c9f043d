"""Networks that no library has a constructor for; small, and as their papers draw them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def recurrent(cell: str, units: int, *, both_ways: bool = False) -> Callable[[], Any]:
    """A recurrent layer over 40 steps of 64 features, without cuDNN's kernels for it."""

    def build() -> Any:
        import keras
        from keras import layers

        layer = getattr(layers, cell)(units, return_sequences=True, use_cudnn=False)
        if both_ways:
            layer = layers.Bidirectional(layer)
        last = getattr(layers, cell)(units, use_cudnn=False)
        return keras.Sequential([keras.Input((40, 64)), layer, last, layers.Dense(10)])

    return build


def convlstm() -> Any:
    """Two convolutional LSTMs over eight frames (Shi et al. 2015)."""
    import keras
    from keras import layers

    return keras.Sequential(
        [
            keras.Input((8, 32, 32, 3)),
            layers.ConvLSTM2D(32, 3, padding="same", return_sequences=True),
            layers.ConvLSTM2D(32, 3, padding="same"),
            layers.Conv2D(1, 1),
        ]
    )


def wide_and_deep() -> Any:
    """A linear model and a perceptron over embeddings, added (Cheng et al. 2016)."""
    from keras import Input, Model, layers

    dense, ids = Input((13,)), Input((8,), dtype="int32")
    deep = [layers.Embedding(30_000, 32)(ids[:, column]) for column in range(8)]
    x = layers.Concatenate()([dense, *deep])
    for size in (1024, 512, 256):
        x = layers.Dense(size, activation="relu")(x)
    wide = layers.Add()([layers.Embedding(30_000, 1)(ids[:, column]) for column in range(8)])
    return Model([dense, ids], layers.Add()([layers.Dense(1)(x), wide]))


def dcgan() -> Any:
    """Generator and discriminator for images of 64 x 64 (Radford et al. 2016), trained in one
    step by one loss: the discriminator's on what the generator made of the image it is given."""
    from keras import Input, Model, layers

    x = inputs = Input((64, 64, 3))
    for channels in (32, 64, 128):
        x = layers.Conv2D(channels, 4, 2, "same", use_bias=False)(x)
        x = layers.LeakyReLU()(layers.BatchNormalization()(x))
    for channels in (64, 32):
        x = layers.Conv2DTranspose(channels, 4, 2, "same", use_bias=False)(x)
        x = layers.ReLU()(layers.BatchNormalization()(x))
    x = layers.Conv2DTranspose(3, 4, 2, "same", activation="tanh")(x)
    for channels in (64, 128, 256):
        x = layers.LeakyReLU()(layers.Conv2D(channels, 4, 2, "same")(x))
    return Model(inputs, layers.Dense(1)(layers.Flatten()(x)))


def unet3d() -> Any:
    """An encoder and decoder of volumes with skips (Çiçek et al. 2016), three levels deep."""
    from keras import Input, Model, layers

    def twice(x: Any, channels: int) -> Any:
        for _ in range(2):
            x = layers.Conv3D(channels, 3, padding="same", activation="relu")(x)
        return x

    x = inputs = Input((32, 32, 32, 1))
    skips = []
    for channels in (16, 32, 64):
        x = twice(x, channels)
        skips.append(x)
        x = layers.MaxPooling3D()(x)
    x = twice(x, 128)
    for channels, skip in zip((64, 32, 16), reversed(skips), strict=True):
        x = twice(layers.Concatenate()([layers.Conv3DTranspose(channels, 2, 2)(x), skip]), channels)
    return Model(inputs, layers.Conv3D(2, 1)(x))


def tf1_convolutions() -> Any:
    """A residual network of TensorFlow 1, trained with momentum."""
    import tensorflow as tf

    tf1 = tf.compat.v1
    images = tf1.placeholder(tf.float32, (32, 64, 64, 3), "images")
    labels = tf1.placeholder(tf.int32, (32,), "labels")
    x = images
    for stage, channels in enumerate((32, 64, 128, 256)):
        x = _convolved(x, channels, 2 if stage else 1, f"in{stage}")
        for block in range(2):
            y = tf.nn.relu(_convolved(x, channels, 1, f"a{stage}{block}"))
            x = tf.nn.relu(x + _convolved(y, channels, 1, f"b{stage}{block}"))
    logits = _dense(tf.reduce_mean(x, (1, 2)), 10, "logits")
    return _trained(logits, labels, tf1.train.MomentumOptimizer(0.1, 0.9)), (images, labels)


def tf1_perceptron() -> Any:
    """A perceptron of TensorFlow 1, trained with Adam."""
    import tensorflow as tf

    tf1 = tf.compat.v1
    inputs = tf1.placeholder(tf.float32, (1024, 512), "inputs")
    labels = tf1.placeholder(tf.int32, (1024,), "labels")
    x = inputs
    for number in range(6):
        x = tf.nn.relu(_dense(x, 1024, f"hidden{number}"))
    return _trained(_dense(x, 10, "logits"), labels, tf1.train.AdamOptimizer()), (inputs, labels)


def tf1_recurrent() -> Any:
    """An unrolled LSTM of TensorFlow 1, trained with gradient descent."""
    import tensorflow as tf

    tf1 = tf.compat.v1
    units, steps = 256, 16
    tokens = tf1.placeholder(tf.int32, (64, steps), "tokens")
    labels = tf1.placeholder(tf.int32, (64,), "labels")
    table = tf1.get_variable("table", (5000, units))
    h = c = tf.zeros((64, units))
    for step in range(steps):
        x = tf.nn.embedding_lookup(table, tokens[:, step])
        with tf1.variable_scope("cell", reuse=tf1.AUTO_REUSE):
            i, f, o, g = tf.split(_dense(tf.concat([x, h], 1), 4 * units, "gates"), 4, 1)
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
        h = tf.sigmoid(o) * tf.tanh(c)
    optimizer = tf1.train.GradientDescentOptimizer(0.1)
    return _trained(_dense(h, 10, "logits"), labels, optimizer), (tokens, labels)


def _convolved(x: Any, channels: int, stride: int, name: str) -> Any:
    import tensorflow as tf

    shape = (3, 3, int(x.shape[-1]), channels)
    kernel = tf.compat.v1.get_variable(name, shape)
    return tf.nn.conv2d(x, kernel, stride, "SAME")


def _dense(x: Any, units: int, name: str) -> Any:
    import tensorflow as tf

    tf1 = tf.compat.v1
    kernel = tf1.get_variable(f"{name}/kernel", (int(x.shape[-1]), units))
    return x @ kernel + tf1.get_variable(f"{name}/bias", (units,))


def _trained(logits: Any, labels: Any, optimizer: Any) -> tuple[Any, ...]:
    """The loss, and the op of one training step."""
    import tensorflow as tf

    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    loss = tf.reduce_mean(losses)
    return loss, optimizer.minimize(loss)
