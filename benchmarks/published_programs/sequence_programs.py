"""Programs about texts, ratings, series and graphs, as they are published."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

WORDS, LENGTH, WIDTH = 500, 24, 32
Arrays = tuple[Any, ...]


class TransformerBlock(layers.Layer):
    """Attention and two dense layers, with dropout."""

    def __init__(self, embed_dim: int, num_heads: int, ff_dim: int, rate: float = 0.1) -> None:
        super().__init__()
        self.att = layers.MultiHeadAttention(num_heads=num_heads, key_dim=embed_dim)
        self.ffn = keras.Sequential(
            [layers.Dense(ff_dim, activation="relu"), layers.Dense(embed_dim)]
        )
        self.layernorm1 = layers.LayerNormalization(epsilon=1e-6)
        self.layernorm2 = layers.LayerNormalization(epsilon=1e-6)
        self.dropout1, self.dropout2 = layers.Dropout(rate), layers.Dropout(rate)

    def call(self, inputs: Any, training: bool = False) -> Any:
        """The same shape."""
        attended = self.dropout1(self.att(inputs, inputs), training=training)
        out = self.layernorm1(inputs + attended)
        fed = self.dropout2(self.ffn(out), training=training)
        return self.layernorm2(out + fed)


class TokenAndPositionEmbedding(layers.Layer):
    """Words and where they are."""

    def __init__(self, maxlen: int, vocab_size: int, embed_dim: int) -> None:
        super().__init__()
        self.token_emb = layers.Embedding(input_dim=vocab_size, output_dim=embed_dim)
        self.pos_emb = layers.Embedding(input_dim=maxlen, output_dim=embed_dim)

    def call(self, x: Any) -> Any:
        """One vector a word."""
        positions = ops.arange(start=0, stop=ops.shape(x)[-1], step=1)
        return self.token_emb(x) + self.pos_emb(positions)


def text_classification() -> Any:
    """A Transformer that tells good reviews from bad ones."""
    inputs = keras.Input((LENGTH,))
    x = TokenAndPositionEmbedding(LENGTH, WORDS, WIDTH)(inputs)
    x = TransformerBlock(WIDTH, 2, 32)(x)
    x = layers.GlobalAveragePooling1D()(x)
    x = layers.Dropout(0.1)(x)
    x = layers.Dense(20, activation="relu")(x)
    x = layers.Dropout(0.1)(x)
    model = keras.Model(inputs, layers.Dense(2, activation="softmax")(x))
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def reviews(count: int) -> Arrays:
    """Reviews as numbers of words, and whether they are good."""
    random = np.random.default_rng(8)
    return random.integers(1, WORDS, (count, LENGTH)), random.integers(0, 2, count)


class PositionalEmbedding(layers.Layer):
    """Words and where they are, with a mask for those that are none."""

    def __init__(self, sequence_length: int, vocab_size: int, embed_dim: int) -> None:
        super().__init__()
        self.token_embeddings = layers.Embedding(vocab_size, embed_dim)
        self.position_embeddings = layers.Embedding(sequence_length, embed_dim)

    def call(self, inputs: Any) -> Any:
        """One vector a word."""
        positions = ops.arange(0, ops.shape(inputs)[-1], 1)
        return self.token_embeddings(inputs) + self.position_embeddings(positions)

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """Where there is a word."""
        del mask
        return ops.not_equal(inputs, 0)


class TransformerEncoder(layers.Layer):
    """One block that reads a sentence."""

    def __init__(self, embed_dim: int, dense_dim: int, num_heads: int) -> None:
        super().__init__()
        self.attention = layers.MultiHeadAttention(num_heads=num_heads, key_dim=embed_dim)
        self.dense_proj = keras.Sequential(
            [layers.Dense(dense_dim, activation="relu"), layers.Dense(embed_dim)]
        )
        self.layernorm_1, self.layernorm_2 = (layers.LayerNormalization() for _ in range(2))
        self.supports_masking = True

    def call(self, inputs: Any, mask: Any = None) -> Any:
        """The same shape."""
        padding = None if mask is None else ops.cast(mask[:, None, :], dtype="int32")
        attended = self.attention(inputs, inputs, inputs, attention_mask=padding)
        read = self.layernorm_1(inputs + attended)
        return self.layernorm_2(read + self.dense_proj(read))


class TransformerDecoder(layers.Layer):
    """One block that writes a sentence from what was read."""

    def __init__(self, embed_dim: int, latent_dim: int, num_heads: int) -> None:
        super().__init__()
        self.attention_1, self.attention_2 = (
            layers.MultiHeadAttention(num_heads=num_heads, key_dim=embed_dim) for _ in range(2)
        )
        self.dense_proj = keras.Sequential(
            [layers.Dense(latent_dim, activation="relu"), layers.Dense(embed_dim)]
        )
        self.layernorm_1, self.layernorm_2, self.layernorm_3 = (
            layers.LayerNormalization() for _ in range(3)
        )
        self.supports_masking = True

    def call(self, inputs: Any, mask: Any = None) -> Any:
        """What is written so far and what was read, with their masks."""
        inputs, encoded = inputs
        inputs_mask, encoded_mask = (None, None) if mask is None else mask
        written = self.attention_1(
            inputs, inputs, inputs, attention_mask=self._causal_mask(inputs), query_mask=inputs_mask
        )
        first = self.layernorm_1(inputs + written)
        read = self.attention_2(
            first, encoded, encoded, query_mask=inputs_mask, key_mask=encoded_mask
        )
        second = self.layernorm_2(first + read)
        return self.layernorm_3(second + self.dense_proj(second))

    @staticmethod
    def _causal_mask(inputs: Any) -> Any:
        length = ops.shape(inputs)[1]
        i, j = ops.arange(length)[:, None], ops.arange(length)
        return ops.cast(i >= j, dtype="int32")[None]


def translation() -> Any:
    """A Transformer from English to Spanish; the loss leaves out what is no word."""
    encoder_inputs = keras.Input((None,), dtype="int64", name="encoder_inputs")
    x = PositionalEmbedding(LENGTH, WORDS, WIDTH)(encoder_inputs)
    encoded = TransformerEncoder(WIDTH, 64, 4)(x)
    decoder_inputs = keras.Input((None,), dtype="int64", name="decoder_inputs")
    x = PositionalEmbedding(LENGTH, WORDS, WIDTH)(decoder_inputs)
    x = TransformerDecoder(WIDTH, 64, 4)([x, encoded])
    x = layers.Dropout(0.5)(x)
    outputs = layers.Dense(WORDS, activation="softmax")(x)
    model = keras.Model(
        {"encoder_inputs": encoder_inputs, "decoder_inputs": decoder_inputs}, outputs
    )
    model.compile(
        "rmsprop",
        loss=keras.losses.SparseCategoricalCrossentropy(ignore_class=0),
        metrics=["accuracy"],
    )
    return model


def sentences(count: int) -> Arrays:
    """Sentences of both languages, zeros behind them, and the second one word later."""
    random = np.random.default_rng(9)

    def padded(length: int) -> Any:
        words = random.integers(1, WORDS, (count, length))
        lengths = random.integers(5, length + 1, (count, 1))
        return np.where(np.arange(length) < lengths, words, 0)

    english, spanish = padded(LENGTH), padded(LENGTH + 1)
    inputs = {"encoder_inputs": english, "decoder_inputs": spanish[:, :-1]}
    return inputs, spanish[:, 1:]


class RecommenderNet(keras.Model):
    """Embeddings and biases of users and films, and how they meet."""

    def __init__(self, num_users: int, num_movies: int, embedding_size: int) -> None:
        super().__init__()
        regular = keras.regularizers.l2(1e-6)
        settings = {"embeddings_initializer": "he_normal", "embeddings_regularizer": regular}
        self.user_embedding = layers.Embedding(num_users, embedding_size, **settings)
        self.user_bias = layers.Embedding(num_users, 1)
        self.movie_embedding = layers.Embedding(num_movies, embedding_size, **settings)
        self.movie_bias = layers.Embedding(num_movies, 1)

    def call(self, inputs: Any) -> Any:
        """The rating; the product is over both axes, as it is published."""
        user, movie = self.user_embedding(inputs[:, 0]), self.movie_embedding(inputs[:, 1])
        user_bias, movie_bias = self.user_bias(inputs[:, 0]), self.movie_bias(inputs[:, 1])
        met = ops.tensordot(user, movie, 2)
        return ops.sigmoid(met + user_bias + movie_bias)


def recommender() -> Any:
    """Collaborative filtering of films."""
    model = RecommenderNet(610, 900, 50)
    model.compile(
        loss=keras.losses.BinaryCrossentropy(), optimizer=keras.optimizers.Adam(learning_rate=0.001)
    )
    return model


def ratings(count: int) -> Arrays:
    """Pairs of a user and a film, and the ratings."""
    random = np.random.default_rng(10)
    pairs = np.stack([random.integers(0, 610, count), random.integers(0, 900, count)], axis=1)
    return pairs, random.random(count)


def time_series() -> Any:
    """An LSTM that tells the temperature of the next day from seven measures of the last five."""
    inputs = keras.Input((120, 7))
    x = layers.LSTM(32)(inputs)
    model = keras.Model(inputs, layers.Dense(1)(x))
    model.compile(optimizer=keras.optimizers.Adam(learning_rate=0.001), loss="mse")
    return model


def weather(count: int) -> Arrays:
    """Windows of measures, and the temperature behind each, as a data set has them."""
    random = np.random.default_rng(11)
    return random.random((count, 120, 7), dtype=np.float32), random.random((count, 1))


NODES, EDGES, FEATURES, SUBJECTS = 200, 800, 40, 7


def _network(widths: list[int], rate: float, name: str) -> Any:
    found = []
    for width in widths:
        found += [layers.BatchNormalization(), layers.Dropout(rate)]
        found.append(layers.Dense(width, activation=keras.activations.gelu))
    return keras.Sequential(found, name=name)


class GraphConvolution(layers.Layer):
    """What every node hears of its neighbors."""

    def __init__(self, units: list[int], rate: float, **settings: Any) -> None:
        super().__init__(**settings)
        self.prepare = _network(units, rate, "prepare")
        self.join = _network(units, rate, "join")

    def call(self, inputs: Any) -> Any:
        """The features of all nodes, from those before and the edges."""
        nodes, edges, weights = inputs
        to, of = edges[0], edges[1]
        messages = self.prepare(ops.take(nodes, of, axis=0)) * ops.expand_dims(weights, -1)
        heard = tf.math.unsorted_segment_mean(messages, to, num_segments=nodes.shape[0])
        return ops.normalize(self.join(ops.concatenate([nodes, heard], axis=1)), axis=-1)


class GraphClassifier(keras.Model):
    """Classifies nodes of one graph, which the model holds."""

    def __init__(self, graph: tuple[Any, Any, Any], classes: int) -> None:
        super().__init__()
        features, edges, weights = graph
        self.node_features = ops.convert_to_tensor(features)
        self.edges = ops.convert_to_tensor(edges)
        self.edge_weights = ops.convert_to_tensor(weights / weights.sum())
        self.preprocess = _network([32, 32], 0.5, "preprocess")
        self.conv1 = GraphConvolution([32, 32], 0.5, name="graph_conv1")
        self.conv2 = GraphConvolution([32, 32], 0.5, name="graph_conv2")
        self.postprocess = _network([32, 32], 0.5, "postprocess")
        self.compute_logits = layers.Dense(classes, name="logits")

    def call(self, input_node_indices: Any) -> Any:
        """The logits of some nodes."""
        x = self.preprocess(self.node_features)
        x = x + self.conv1((x, self.edges, self.edge_weights))
        x = x + self.conv2((x, self.edges, self.edge_weights))
        x = self.postprocess(x)
        return self.compute_logits(ops.take(x, input_node_indices, axis=0))


def graph() -> Any:
    """Subjects of papers by what they cite."""
    random = np.random.default_rng(12)
    model = GraphClassifier(
        (
            random.random((NODES, FEATURES), dtype=np.float32),
            random.integers(0, NODES, (2, EDGES)).astype("int32"),
            np.ones(EDGES, "float32"),
        ),
        SUBJECTS,
    )
    model(ops.convert_to_tensor([1, 10, 100]))
    model.compile(
        optimizer=keras.optimizers.Adam(0.01),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[keras.metrics.SparseCategoricalAccuracy(name="acc")],
    )
    return model


def papers(count: int) -> Arrays:
    """Numbers of papers, and their subjects."""
    random = np.random.default_rng(13)
    return random.integers(0, NODES, count), random.integers(0, SUBJECTS, count)
