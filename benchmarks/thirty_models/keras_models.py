"""Models of Keras: with preprocessing in them, exported, and as files."""

from __future__ import annotations

import keras
import tensorflow as tf

layers = keras.layers


def wide_and_deep(path):
    """Normalised numbers, hashed crosses, looked-up strings and multi-hot categories."""
    age, city = keras.Input([1], name="age"), keras.Input([1], name="city", dtype="string")
    tags = keras.Input([3], name="tags", dtype="int64")
    scaled = layers.Normalization(mean=30.0, variance=9.0)(age)
    looked = layers.StringLookup(vocabulary=["Bonn", "Kiel", "Ulm"])(city)
    crossed = layers.HashedCrossing(50, output_mode="one_hot")(
        (city, layers.Hashing(9)(tags[:, :1]))
    )
    kinds = layers.CategoryEncoding(20, output_mode="multi_hot")(tags)
    deep = layers.Flatten()(layers.Embedding(5, 8)(looked))
    x = layers.Concatenate()([scaled, deep, crossed, kinds])
    out = layers.Dense(1, "sigmoid")(layers.Dense(32, "relu")(x))
    keras.Model([age, city, tags], out).export(path, verbose=False)
    return []


def buckets(path):
    """Numbers in buckets, integers looked up, embedded and joined."""
    x, ids = keras.Input([4], name="x"), keras.Input([6], name="ids", dtype="int64")
    bucketed = layers.Embedding(6, 4)(layers.Discretization([0.1, 0.3, 0.5, 0.9])(x))
    looked = layers.Embedding(12, 4)(layers.IntegerLookup(vocabulary=list(range(10, 20)))(ids))
    both = layers.Concatenate(axis=1)([bucketed, looked])
    keras.Model([x, ids], layers.Dense(2)(layers.Flatten()(both))).export(path, verbose=False)
    return []


def text_counts(path):
    """Texts as counts of words, a linear classifier."""
    text = layers.TextVectorization(100, output_mode="count")
    text.adapt(["a b c", "d e a"])
    model = keras.Sequential([keras.Input((), dtype="string"), text, layers.Dense(2)])
    model.export(path, verbose=False)
    return ["--ragged", f"{text.name}=8x5"]


def text_pairs(path):
    """Texts as ids of single words and of pairs."""
    text = layers.TextVectorization(100, ngrams=2, output_sequence_length=12)
    text.adapt(["a b c", "d e a"])
    model = keras.Sequential(
        [
            keras.Input((), dtype="string"),
            text,
            layers.Embedding(100, 8),
            layers.GlobalAveragePooling1D(),
            layers.Dense(2),
        ]
    )
    model.export(path, verbose=False)
    return ["--ragged", f"{text.name}=8x5"]


def autoencoder(path):
    """A variational autoencoder that draws a code for every picture."""

    class Sample(layers.Layer):
        def call(self, code):
            mean, spread = tf.split(code, 2, 1)
            return mean + tf.exp(spread) * tf.random.normal(tf.shape(mean))

    x = keras.Input([28, 28, 1])
    code = layers.Dense(8)(layers.Flatten()(layers.Conv2D(8, 3, 2, activation="relu")(x)))
    grid = layers.Reshape([7, 7, 4])(layers.Dense(196, "relu")(Sample()(code)))
    out = layers.Conv2DTranspose(1, 3, 4, padding="same")(grid)
    keras.Model(x, out).export(path, verbose=False)
    return []


def unet(path):
    """Down and up with skips, as a file of Keras 3."""
    x = first = keras.Input([32, 32, 3])
    skips = []
    for width in (8, 16):
        x = layers.BatchNormalization()(layers.Conv2D(width, 3, padding="same")(x))
        skips.append(layers.ReLU()(x))
        x = layers.MaxPooling2D()(skips[-1])
    for width, skip in ((16, skips[1]), (8, skips[0])):
        x = layers.Concatenate()([layers.Conv2DTranspose(width, 2, 2)(x), skip])
        x = layers.Conv2D(width, 3, padding="same", activation="relu")(x)
    keras.Model(first, layers.Conv2D(2, 1)(x)).save(path)
    return []


def video(path):
    """A recurrence of convolutions over frames, as a file of Keras 3."""
    frames = keras.Input([4, 16, 16, 1])
    x = layers.ConvLSTM2D(4, 3, padding="same", return_sequences=True)(frames)
    x = layers.TimeDistributed(layers.Conv2D(1, 1))(x)
    keras.Model(frames, x).save(path)
    return []


def series(path):
    """Attention over a series, as a file of Keras 3."""
    x = first = keras.Input([24, 8])
    for _ in range(2):
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 8)(x, x))
        x = layers.LayerNormalization()(x + layers.Dense(8)(layers.Dense(16, "gelu")(x)))
    keras.Model(first, layers.Dense(3)(layers.Flatten()(x))).save(path)
    return []


def masked(path):
    """Masked sequences both ways through a GRU, as an HDF5 file."""
    ids = keras.Input([16], dtype="int32")
    x = layers.Bidirectional(layers.GRU(8))(layers.Embedding(50, 8, mask_zero=True)(ids))
    keras.Model(ids, layers.Dense(2)(x)).save(path)
    return []


def twins(path):
    """Two inputs through one tower, compared, as a file of Keras 3."""
    tower = keras.Sequential(
        [keras.Input([20]), layers.Dense(16, "relu"), layers.UnitNormalization()]
    )
    a, b = keras.Input([20], name="a"), keras.Input([20], name="b")
    keras.Model([a, b], layers.Dot(1)([tower(a), tower(b)])).save(path)
    return []
