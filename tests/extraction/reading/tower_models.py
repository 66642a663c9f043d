"""SavedModels with variables that the default signature does not reach."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

v1 = tf.compat.v1


class Towers(tf.Module):
    """Two towers, a second copy of one table, called ``again``, and the slots of the other."""

    def __init__(self, again: str) -> None:
        super().__init__()
        self.user = tf.Variable(tf.random.stateless_normal([50, 8], (0, 1)), name="user")
        self.item = tf.Variable(tf.random.stateless_normal([90, 8], (0, 2)), name="item")
        self.again = tf.Variable(self.user.read_value(), name=again)
        self.slot = tf.Variable(tf.ones([50, 8]), name="slot")

    def rows(self, ids: Any) -> Any:
        return tf.gather(self.user, ids)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32, name="ids")])
    def serve(self, ids):
        return {"y": self.rows(ids)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32, name="ids")])
    def embed(self, ids):
        return {"y": tf.gather(self.item, ids)}

    @tf.function(input_signature=[tf.TensorSpec([50, 8], tf.float32, name="gradient")])
    def train(self, gradient):
        tf.raw_ops.ResourceApplyMomentum(
            var=self.user.handle, accum=self.slot.handle, lr=0.1, grad=gradient, momentum=0.9
        )
        return {"y": tf.reduce_sum(self.user)}


def save_towers(folder: Path, module: Towers) -> Path:
    """Writes a SavedModel of TensorFlow 2 with three signatures."""
    signatures = {"serving_default": module.serve, "embed": module.embed, "train": module.train}
    tf.saved_model.save(module, str(folder), signatures)
    return folder


def save_session_model(folder: Path, *, resources: bool, rows: int = 50, unused: str) -> Path:
    """Writes a SavedModel as a session of TensorFlow 1 does: a table, the product with w, and a
    variable that nothing reads; with ``resources`` or references."""
    with tf.Graph().as_default(), v1.Session() as session:
        ids = v1.placeholder(tf.int64, [None], "ids")
        table = v1.get_variable("table", [rows, 8], use_resource=resources)
        w = v1.get_variable("w", [8, 4], use_resource=resources)
        v1.get_variable(unused, [90, 8], use_resource=resources)
        y = tf.matmul(tf.gather(table, ids), w)
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(session, str(folder), {"ids": ids}, {"y": y})
    return folder
