"""Models with a table, and what splitting them must not change."""

from __future__ import annotations

from pathlib import Path

import numpy as np

USERS, COLUMNS = 5000, 32
"""Parts are large enough for the checksum's lanes."""


def export_recommender(folder: Path) -> None:
    """A SavedModel that looks up users in one function and reads them in another of its own."""
    import tensorflow as tf

    class Recommender(tf.Module):
        def __init__(self):
            super().__init__()
            rows = np.random.default_rng(0).normal(size=[USERS, COLUMNS]).astype(np.float32)
            rows[:: USERS // 10] = -0.0
            rows[1 :: USERS // 10] = np.nan
            self.users = tf.Variable(rows, name="users")
            self.items = tf.Variable(rows[:100], name="items")
            self.last = tf.Variable(rows[2:3].T, name="last")

        @tf.function(input_signature=[tf.TensorSpec([None], tf.int32, name="user")])
        def score(self, user):
            looked_up = tf.gather(self.users, user)
            read = tf.gather(self.users.read_value(), tf.stack([user, user]), axis=0)
            item = tf.gather(self.items, user % 100)
            return {"rows": looked_up, "pairs": read, "score": (looked_up + item) @ self.last}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, name="user")])
        def size(self, user):
            return {"rows": tf.shape(tf.gather(self.users, user)) + self.users.shape[0]}

    model = Recommender()
    signatures = {"serving_default": model.score, "size": model.size}
    tf.saved_model.save(model, folder, signatures=signatures)


def edge_ids(parts: int) -> np.ndarray:
    """Ids on both sides of where each of so many parts begins, and some others."""
    starts = [USERS * part // parts for part in range(parts + 1)]
    edges = [at + step for at in starts for step in (-1, 0, 1)]
    return np.array([*filter(range(USERS).__contains__, edges), 7, 7, 501], np.int32)


def same_bits(first: object, second: object) -> bool:
    """Whether two arrays are equal, every NaN and the sign of every zero."""
    a, b = np.asarray(first), np.asarray(second)
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def export_training(path: Path, name: str) -> None:
    """A training step of TensorFlow 1 with a table, its initialiser and its saver, as a ``.meta``
    file."""
    import tensorflow as tf

    v1 = tf.compat.v1
    kinds = {"sgd": "GradientDescent", "adagrad": "Adagrad", "ftrl": "Ftrl"}
    optimizer = getattr(v1.train, f"{kinds[name]}Optimizer")(0.1)
    with tf.Graph().as_default():
        ids = v1.placeholder(tf.int32, [None], "ids")
        wanted = v1.placeholder(tf.float32, [None, 1], "wanted")
        normal = v1.random_normal_initializer(seed=1)
        with v1.variable_scope("", use_resource=True):
            users = v1.get_variable("users", [300, 8], initializer=normal)
            last = v1.get_variable("last", [8, 1], initializer=normal)
        rows = tf.nn.embedding_lookup(users, ids)
        loss = tf.reduce_mean((tf.nn.tanh(rows) @ last - wanted) ** 2, name="loss")
        optimizer.minimize(loss, name="train")  # which adds itself to the collection train_op
        v1.add_to_collection("losses", loss)
        v1.global_variables_initializer()
        v1.train.Saver()
        v1.train.export_meta_graph(str(path))
