"""Prints the fingerprints of one small model in every format, as this process has them.

``python fingerprints_of_formats.py DEVICES``, with so many logical CPU devices; files go to the
current folder.
"""

import json
import sys
from pathlib import Path

import keras
import tensorflow as tf

import placer
from placer.extraction.reading.loading import load_program

layers = keras.layers
placer.cpu_devices(int(sys.argv[1]))
if int(sys.argv[1]) > 1:  # what another process did before
    for number in range(3):
        tf.function(lambda x, n=number: tf.numpy_function(lambda v: v + n, [x], tf.float32))(1.0)
    tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, 0)


def build():
    """Words, a recurrence, a dropout, and a SavedModel of other layers."""
    keras.utils.clear_session()
    inner = keras.Sequential([keras.Input([8]), layers.Dense(6)])
    inner.export("inner", verbose=False)
    words = keras.Input([5], dtype="string")
    ids = layers.StringLookup(vocabulary=["a", "b", "c"])(words)
    x = layers.GRU(8, dropout=0.1)(layers.Embedding(5, 4)(ids))
    x = layers.TFSMLayer("inner", call_endpoint="serve")(x)
    model = keras.Model(words, layers.Dense(2)(x))
    model.compile("adam", "mse", metrics=["mae"])
    return model


@tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32)])
def own(x):
    """Python, a loop that calls a function, and a table."""
    keys = tf.constant(["p", "q"])
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, [1.0, 2.0]), 0.0)
    x = tf.numpy_function(lambda v: v, [x], tf.float32)
    x = tf.ensure_shape(x, [None, 3])
    step = tf.function(lambda v: tf.nn.relu(v) + table.lookup(tf.constant("p")))
    step._autograph = False
    return tf.while_loop(lambda i, _: i < 3, lambda i, v: (i + 1, step(v)), [0, x])[1]


def graph():
    """A graph of TensorFlow 1 with a table out of a file."""
    Path("words.txt").write_text("a\\nb\\n")
    found = tf.Graph()
    with found.as_default():
        words = tf.compat.v1.placeholder(tf.string, [None], name="words")
        text = tf.lookup.TextFileInitializer(
            str(Path("words.txt").resolve()), tf.string, 0, tf.int64, 1
        )
        ids = tf.lookup.StaticHashTable(text, -1).lookup(words)
        weight = tf.compat.v1.get_variable("weight", [4, 2])
        tf.nn.embedding_lookup(weight, ids, name="out")
    return found


batch = (tf.TensorSpec([None, 5], tf.string), tf.TensorSpec([None, 2], tf.float32))
model = build()
own_graph = own.get_concrete_function().graph.as_graph_def()
SOURCES = {
    "keras": (model, {}),
    "training step": (placer.training_step(model, batch), {}),
    "function": (own, {}),
    "graph_def": (own_graph, {}),
    "graph": (graph(), {"outputs": ["out"]}),
}
model.export("saved", verbose=False)
SOURCES["saved_model"] = ("saved", {})
found = {name: load_program(source, **more).fingerprint for name, (source, more) in SOURCES.items()}
sys.stdout.write(json.dumps(found) + "\n")
