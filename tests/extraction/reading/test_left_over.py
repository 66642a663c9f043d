"""Which sinks are results and which are left over, on graphs drawn here and on real ones."""

import os
from pathlib import Path

import pytest
import tensorflow as tf

from placer import report
from placer.extraction.files.sources import read_source
from placer.extraction.reading.bare_graphs import read_graph_def
from placer.extraction.reading.loading import flatten, load_program
from placer.plan.report import LeftOverSinks, left_over_verbs

v1 = tf.compat.v1

DATA = os.environ.get("PLACER_TEST_DATA")


def test_a_training_graph_fetches_its_loss_and_its_metrics():
    """Gradients of inputs, summaries and assigned values run; everything else is fetched."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [8, 4], name="x")
        w = v1.get_variable("w", [4, 3], use_resource=True)
        logits = x @ w
        tf.nn.l2_loss(w, name="regulariser")
        v1.summary.histogram("seen", logits)
        tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, -1), 1), tf.float32), name="accuracy")
        loss = tf.reduce_mean(tf.square(logits - 1.0))
        tf.gradients(loss, x)
        tf.raw_ops.ReluGrad(gradients=logits, features=logits, name="by_type")
        v1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
        with tf.name_scope("ema/AssignMovingAvg_1"):
            tf.identity(loss, name="decayed")
        tf.identity(loss, name="metrics/loss")
    program = load_program(graph)
    assert [key for key, _ in program.outputs] == ["regulariser", "accuracy", "metrics/loss"]
    reasons = {tensor.split("/")[0]: reason for tensor, reason in program.left_over.items()}
    assert reasons == {
        **{"seen:0": "summary", "ema": "assign", "by_type:0": "gradient"},
        **{"gradients": "gradient", "gradients_1": "gradient"},
    }
    assert {"train", "seen", "by_type", "ema/AssignMovingAvg_1/decayed"} <= set(program.targets)
    named = load_program(graph, outputs=["accuracy", "seen"])
    assert [key for key, _ in named.outputs] == ["accuracy", "seen"]
    assert named.left_over == {}


def test_a_placeholder_that_nobody_reads_is_no_output_and_does_not_run():
    """Nor what only feeds one: TensorFlow wants no value for it."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [4], name="x")
        v1.placeholder(tf.int32, [4], name="labels")
        v1.placeholder_with_default(tf.sqrt(2.0), [], name="rate")
        tf.square(x, name="y")
    program = load_program(graph)
    assert program.outputs == (("y", "y:0"),)
    assert program.targets == ()
    assert [node.name for node in program.graph_def.node] == ["x", "y"]


def test_what_numpy_cannot_hold_runs_and_is_not_fetched():
    """A list of tensors is a variant, which TensorFlow refuses to fetch."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [4], name="x")
        tf.raw_ops.TensorListReserve(
            element_shape=[2], num_elements=3, element_dtype=tf.float32, name="list"
        )
        tf.square(x, name="y")
    program = load_program(graph)
    assert (program.outputs, program.targets) == ((("y", "y:0"),), ("list",))


def test_where_all_sinks_would_be_left_over_all_are_fetched():
    """A graph that only computes gradients is there for them."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [4], name="x")
        y = v1.placeholder(tf.float32, [4], name="y")
        for value in (x, y):
            tf.gradients(tf.sqrt(value), value)
    program = load_program(graph)
    assert program.left_over == {}
    assert len(program.outputs) == 2


def test_a_report_says_what_is_fetched_what_is_not_and_what_that_would_take():
    """Counts and bytes by reason, in the report and as text."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [8, 16], name="x")
        y = tf.square(x, name="y")
        tf.gradients(y, x)
        with tf.name_scope("gradients"):
            tf.sqrt(x, name="z")
    found = report(graph)
    assert (found.model.outputs, found.model.output_bytes) == (("y",), 8 * 16 * 4)
    (row,) = found.model.left_over
    assert (row.reason, row.count, row.bytes) == ("gradient", 2, 2 * 8 * 16 * 4)
    text = found.summary(width=120)
    assert "2 of 3 unconsumed outputs run and are not fetched; choose others with outputs" in text
    assert "2 gradients, 1.00 KiB, such as gradients/" in text


@pytest.mark.parametrize(
    ("count", "words", "verbs"),
    [(1, "1 summary", "runs and is not"), (2, "2 summaries", "run and are not")],
)
def test_what_is_left_over_agrees_with_its_number(count, words, verbs):
    """One is one, in its noun and its verb."""
    row = LeftOverSinks(reason="summary", count=count, bytes=None, examples=("s",))
    assert row.words() == words
    assert left_over_verbs(count).startswith(verbs)


REAL = {
    "graphs/tf-mlir-graphdef/prune_unused_nodes.pbtxt": ["Add"],
    "graphs/zoo-resnet50_train_adam_b32/graph.pb": ["loss"],
    "graphs/zoo-dlrm_multihot_sharded_train/graph.pb": ["loss"],
    "graphs/zoo-gpt2_medium_infer_b8s1024/graph.pb": ["logits"],
    "graphs/dl4j-misc/tf_graphs/examples/rnn/bstack/d_b1_n3/frozen_model.pb": [
        "concat/concat", "concat_1", "concat_2",
    ],
    "graphs/dl4j-misc/tf_graphs/lenet_frozen.pb": ["output"],
}  # fmt: skip


@pytest.mark.skipif(DATA is None, reason="PLACER_TEST_DATA is not set")
@pytest.mark.parametrize("name", REAL)
def test_real_graphs_give_what_a_person_would_fetch(name):
    """Of up to 269 sinks."""
    assert [key for key, _ in load_program(Path(DATA) / name).outputs] == REAL[name]


@pytest.mark.skipif(DATA is None, reason="PLACER_TEST_DATA is not set")
@pytest.mark.parametrize(
    "name",
    [
        "basic-pitch",
        "tfnet-lstm-savedmodel",
        "zoo-sm_bilstm_while_v2_train_k3/saved_model",
        "serving-testdata/saved_model_half_plus_two_gpu_trt/00000123",
    ],
)
def test_graphs_of_saved_models_give_the_outputs_of_their_signatures(name):
    """The main graph alone, without its signatures, which say what was meant."""
    (meta_graph,) = read_source(Path(DATA) / "graphs" / name).meta_graphs
    signed = {
        info.name
        for key, signature in meta_graph.signature_def.items()
        if key != "__saved_model_init_op"
        for info in signature.outputs.values()
    }
    raw = read_graph_def(meta_graph.graph_def, None)
    kept = {key for key, _ in flatten(raw).outputs}
    assert {tensor for key, tensor in raw.outputs if key in kept} == signed
