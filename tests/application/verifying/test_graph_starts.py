"""Tables, iterators and queues of TensorFlow 1: verified as a training script runs them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from placements import plan_for

from placer import verify
from placer.application.running.graph_starts import find_start, started
from placer.errors import ModelError
from placer.extraction.reading.loading import load_program

pytestmark = pytest.mark.slow
v1 = tf.compat.v1


def table():
    """Ids of three words."""
    values = tf.lookup.KeyValueTensorInitializer(["a", "b"], [3, 5], tf.string, tf.int64)
    ids = tf.lookup.StaticHashTable(values, -1).lookup(tf.constant(["b", "a", "c"]))
    return tf.cast(ids, tf.float32)


def iterator():
    """The first batch of a dataset with a function."""
    data = tf.data.Dataset.range(12).map(lambda n: tf.cast(n, tf.float32)).batch(3)
    return v1.data.make_initializable_iterator(data).get_next()


def queue():
    """A batch of what comes through two queues."""
    (one,) = v1.train.slice_input_producer([tf.range(6.0)], shuffle=False)
    return v1.train.batch([one], 3)


FIRST = {table: [5.0, 3.0, -1.0], iterator: [0.0, 1.0, 2.0], queue: [0.0, 1.0, 2.0]}


def save(path, build):
    """A GraphDef with ``y`` twice the value of ``build``."""
    with tf.Graph().as_default() as graph:
        value = build()
        value.set_shape([3])
        tf.multiply(value, 2.0, name="y")
    path.write_bytes(graph.as_graph_def(add_shapes=True).SerializeToString())
    return path


@pytest.mark.parametrize("build", FIRST, ids=lambda build: build.__name__)
def test_what_a_step_needs_is_started(tmp_path, build):
    """Without a plan and with one, from nothing but the graph; the values are the right ones."""
    path = save(tmp_path / "graph.pb", build)
    program = load_program(path, outputs=["y"])
    placement = {node.name: "CPU:0" for node in program.graph_def.node} | {"y": "GPU:0"}
    plan = plan_for(program, placement)
    for found in (verify(path, outputs=["y"]), verify(path, plan, outputs=["y"])):
        found.raise_for_mismatch()
    start = find_start(program.graph_def.node, ["y"])
    assert start.enqueues == ()  # the program itself has none: they come out of the file
    with tf.Graph().as_default() as graph:
        message = v1.GraphDef.FromString(path.read_bytes())
        tf.import_graph_def(message, name="")
        with v1.Session() as session:
            needed = find_start(message.node, ["y"])
            for variable in graph.get_operations():
                if variable.type == "Assign":
                    session.run(variable)
            with started(session, graph, needed):
                assert np.allclose(session.run("y:0"), 2 * np.array(FIRST[build]))


def test_a_failure_of_who_fills_a_queue_is_told(tmp_path):
    """The step does not wait for ever, and the reason is that of the failure."""

    def build():
        filled = v1.FIFOQueue(4, tf.float32, shapes=[[3]])
        number = tf.strings.to_number(tf.constant(["1", "2", "no number"]))
        filled.enqueue(number)
        return filled.dequeue()

    with pytest.raises(ModelError, match="StringToNumberOp could not correctly convert"):
        verify(save(tmp_path / "graph.pb", build), outputs=["y"], time_limit_seconds=60)


def test_files_of_tables_ask_for_leave(tmp_path):
    """A vocabulary outside of the model's folder is read by no run unless that is allowed."""
    words = tmp_path / "words.txt"
    words.write_text("a\nb\n")

    def build():
        values = tf.lookup.TextFileInitializer(
            str(words),
            tf.string,
            tf.lookup.TextFileIndex.WHOLE_LINE,
            tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER,
        )
        ids = tf.lookup.StaticHashTable(values, -1).lookup(tf.constant(["b", "a", "c"]))
        return tf.cast(ids, tf.float32)

    folder = tmp_path / "model"
    folder.mkdir()
    path = save(folder / "graph.pb", build)
    with pytest.raises(ModelError, match="allow_unsafe=True"):
        verify(path, outputs=["y"])
    verify(path, outputs=["y"], allow_unsafe=True).raise_for_mismatch()


def test_what_is_fed_or_restored_starts_nothing():
    """An initialiser that needs a placeholder or a checkpoint cannot run by itself."""

    def node(name, op, *inputs):
        return SimpleNamespace(name=name, op=op, input=list(inputs))

    nodes = [
        node("fed", "Placeholder"),
        node("keys", "Const"),
        node("restored", "RestoreV2", "keys"),
        *(node(f"table_{n}", "HashTableV2") for n in range(3)),
        node("init_0", "InitializeTableV2", "table_0", "keys", "keys"),
        node("init_1", "InitializeTableV2", "table_1", "keys", "fed"),
        node("init_2", "LookupTableImportV2", "table_2", "restored", "keys"),
        node("y", "LookupTableFindV2", "table_0", "keys", "keys"),
        node("z", "AddN", "y", "table_1", "table_2"),
    ]
    assert find_start(nodes, ["z"]).ops == ("init_0",)
    assert find_start(nodes, ["keys"]).ops == ()
