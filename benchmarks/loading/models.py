"""Twelve SavedModels of six exporters: ``models.py FOLDER NAME`` writes one.

Weights are random; every model has variables that its signature does not use, or more than one
signature, or tables.  ``tf_keras`` models need the package tf_keras.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

if sys.argv[2:] and sys.argv[2].startswith("tf_keras"):
    os.environ["TF_USE_LEGACY_KERAS"] = "1"

import tensorflow as tf

v1 = tf.compat.v1


def recommender(keras: Any) -> Any:
    """Embeddings, a recurrent layer and a dense head."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input([12], dtype="int32"),
            layers.Embedding(60_000, 128),
            layers.GRU(256, **({"use_cudnn": False} if hasattr(keras, "ops") else {})),
            layers.Dense(10_000),
        ]
    )


def classifier(keras: Any) -> Any:
    """Convolutions with batch normalisation, dropout and a wide head."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input([64, 64, 3]),
            layers.Conv2D(128, 3),
            layers.BatchNormalization(),
            layers.Conv2D(256, 3, strides=4),
            layers.BatchNormalization(),
            layers.Flatten(),
            layers.Dropout(0.1),
            layers.Dense(128),
        ]
    )


def fitted(model: Any) -> Any:
    """The model after a step of Adam: it has slots."""
    import numpy as np

    model.compile("adam", "mse", jit_compile=False)
    shape = [2, *model.input_shape[1:]]
    x = np.zeros(shape, "int32" if len(shape) == 2 else "float32")
    model.fit(x, np.zeros([2, model.output_shape[-1]], "float32"), verbose=0)
    return model


def keras_export(make: Callable[[Any], Any], folder: str, *, trained: bool = False) -> None:
    """Keras 3's own ``export``."""
    import keras

    model = make(keras)
    (fitted(model) if trained else model).export(folder, verbose=False)


def keras_saved(make: Callable[[Any], Any], folder: str) -> None:
    """A Keras 3 model by ``tf.saved_model.save``."""
    import keras

    tf.saved_model.save(make(keras), folder)


def tf_keras_saved(make: Callable[[Any], Any], folder: str) -> None:
    """A model of Keras 2 with Adam's slots."""
    import tf_keras

    fitted(make(tf_keras)).save(folder, save_format="tf")


class Towers(tf.Module):
    """Two towers with a signature each, the slots of one, and a table out of constants."""

    def __init__(self) -> None:
        super().__init__()
        normal = tf.random.stateless_normal
        self.user = tf.Variable(normal([90_000, 64], (0, 1)), name="user")
        self.item = tf.Variable(normal([150_000, 64], (0, 2)), name="item")
        self.slot = tf.Variable(tf.ones([90_000, 64]), name="slot")
        self.counts = tf.Variable(tf.zeros([400_000], tf.int64), name="counts")
        keys = tf.strings.as_string(tf.range(5_000))
        pairs = tf.lookup.KeyValueTensorInitializer(keys, tf.range(5_000, dtype=tf.int64))
        self.ids = tf.lookup.StaticHashTable(pairs, 0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32, name="ids")])
    def serve(self, ids: Any) -> Any:
        """One row of users each."""
        return {"y": tf.gather(self.user, ids)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="name")])
    def name(self, name: Any) -> Any:
        """The numbers of names."""
        return {"id": self.ids.lookup(name)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32, name="ids")])
    def embed(self, ids: Any) -> Any:
        """One row of items each."""
        return {"y": tf.gather(self.item, ids)}

    @tf.function(input_signature=[tf.TensorSpec([90_000, 64], tf.float32, name="gradient")])
    def train(self, gradient: Any) -> Any:
        """Momentum on users."""
        tf.raw_ops.ResourceApplyMomentum(
            var=self.user.handle, accum=self.slot.handle, lr=0.1, grad=gradient, momentum=0.9
        )
        return {"y": tf.reduce_sum(self.user)}


def module_saved(folder: str, signature: str) -> None:
    """A ``tf.Module`` by ``tf.saved_model.save``."""
    module = Towers()
    step = {"serve": module.serve, "embed": module.embed}[signature]
    others = {"train": module.train, "embed": module.embed, "serve": module.serve}
    others["name"] = module.name
    tf.saved_model.save(module, folder, {**others, "serving_default": step})


def session_saved(folder: str, *, resource: bool, shards: int = 1) -> None:
    """What an Estimator exports: a builder, a saver, a main op, an unused average."""
    with tf.Graph().as_default(), v1.Session() as session:
        ids = v1.placeholder(tf.int64, [None], "ids")
        sliced = tf.compat.v1.fixed_size_partitioner(shards) if shards > 1 else None
        table = v1.get_variable("table", [120_000, 64], use_resource=resource, partitioner=sliced)
        w = v1.get_variable("w", [64, 20_000], use_resource=resource)
        v1.get_variable("table/average", [120_000, 64], use_resource=resource)
        v1.get_variable("global_step", [], tf.int64, use_resource=resource)
        y = tf.matmul(tf.nn.embedding_lookup(table, ids), w)
        session.run(v1.global_variables_initializer())
        builder = v1.saved_model.Builder(folder)
        signature = v1.saved_model.predict_signature_def({"ids": ids}, {"y": y})
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            {"serving_default": signature},
            main_op=v1.tables_initializer(),
            saver=v1.train.Saver(sharded=True),
        )
        builder.save()


def hub_saved(folder: str, *, resource: bool) -> None:
    """TensorFlow 1's Hub format: no tags, a signature ``default``."""
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 4_000], "x")
        w = v1.get_variable("module/w", [4_000, 3_000], use_resource=resource)
        b = v1.get_variable("module/b", [3_000], use_resource=resource)
        v1.get_variable("module/aux", [3_000, 3_000], use_resource=resource)
        y = tf.nn.relu(tf.matmul(x, w) + b)
        session.run(v1.global_variables_initializer())
        builder = v1.saved_model.Builder(folder)
        signature = v1.saved_model.predict_signature_def({"x": x}, {"y": y})
        builder.add_meta_graph_and_variables(session, [], {"default": signature})
        builder.save()


MODELS: dict[str, Callable[[str], None]] = {
    "keras_recommender": lambda to: keras_export(recommender, to),
    "keras_trained": lambda to: keras_export(classifier, to, trained=True),
    "keras_saved_recommender": lambda to: keras_saved(recommender, to),
    "keras_saved_classifier": lambda to: keras_saved(classifier, to),
    "tf_keras_recommender": lambda to: tf_keras_saved(recommender, to),
    "tf_keras_classifier": lambda to: tf_keras_saved(classifier, to),
    "module_users": lambda to: module_saved(to, "serve"),
    "module_items": lambda to: module_saved(to, "embed"),
    "session_resource": lambda to: session_saved(to, resource=True, shards=3),
    "session_reference": lambda to: session_saved(to, resource=False),
    "hub_resource": lambda to: hub_saved(to, resource=True),
    "hub_reference": lambda to: hub_saved(to, resource=False),
}


if __name__ == "__main__":
    MODELS[sys.argv[2]](str(Path(sys.argv[1]) / sys.argv[2]))
