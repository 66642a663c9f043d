"""Which sinks are results and which are left over, on graphs drawn here and on real ones."""

import os
from pathlib import Path

import pytest
import tensorflow as tf

from placer import report
from placer.extraction.files.sources import read_source
from placer.extraction.reading.bare_graphs import read_graph_def
from placer.extraction.reading.loading import flatten, load_program

v1 = tf.compat.v1

DATA = os.environ.get("PLACER_TEST_DATA")


def weight(*shape):
    """The value of a variable, which nobody has to hold."""
    number = len(v1.get_default_graph().get_operations())
    handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=shape, shared_name=f"v{number}")
    return tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)


def decoder(layers=3):
    """x -> attention -> attention -> ... -> logits, each layer with scores that nobody reads."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [8, 4], name="x")
        for number in range(layers):
            with tf.name_scope(f"layer_{number}"):
                scores = tf.nn.softmax(tf.matmul(x @ weight(4, 4), x, transpose_b=True))
                tf.identity(scores, name="scores")
                x = scores @ x
        tf.add(x @ weight(4, 16), 1.0, name="logits")
    return graph


def test_attention_scores_that_nobody_reads_are_not_fetched():
    """They run; logits are the output; naming them fetches them."""
    program = load_program(decoder())
    scores = [f"layer_{number}/scores" for number in range(3)]
    assert program.outputs == (("logits", "logits:0"),)
    assert program.left_over == {f"{name}:0": "inside" for name in scores}
    assert program.targets == tuple(scores)
    named = load_program(decoder(), outputs=["logits", *scores])
    assert [key for key, _ in named.outputs] == ["logits", *scores]
    assert (named.left_over, named.targets) == ({}, ())
    assert named.fingerprint == program.fingerprint


def test_what_is_made_of_inner_values_alone_is_left_over_and_a_head_is_not():
    """A mean of scores serves nobody; a branch with a weight of its own is a second result."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [8, 4], name="x")
        hidden = tf.tanh(x @ weight(4, 4), name="hidden")
        tf.reduce_mean(hidden, name="inner/mean")
        tf.identity(hidden @ weight(4, 2), name="head/boxes")
        logits = hidden @ weight(4, 3)
        tf.nn.softmax(logits, name="head/probabilities")
        tf.argmax(logits, axis=-1, name="head/classes")
        tf.identity(hidden, name="embedding")  # named in the outermost scope: somebody wants it
    program = load_program(graph)
    assert [key for key, _ in program.outputs] == [
        "head/boxes", "head/probabilities", "head/classes", "embedding",
    ]  # fmt: skip
    assert program.left_over == {"inner/mean:0": "inside"}


def test_a_training_graph_fetches_its_loss_and_its_metrics():
    """Gradients of inputs, summaries, regularisers and shapes run; the update is a target."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [8, 4], name="x")
        w = v1.get_variable("w", [4, 3], use_resource=True)
        logits = x @ w
        tf.nn.l2_loss(w, name="regulariser")
        tf.raw_ops.Shape(input=logits, name="size")
        v1.summary.histogram("seen", logits)
        tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, -1), 1), tf.float32), name="accuracy")
        loss = tf.reduce_mean(tf.square(logits - 1.0))
        tf.gradients(loss, x)
        v1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
        tf.identity(loss, name="metrics/loss")
    program = load_program(graph)
    assert [key for key, _ in program.outputs] == ["accuracy", "metrics/loss"]
    assert "train" in program.targets
    reasons = {tensor.split("/")[0]: reason for tensor, reason in program.left_over.items()}
    assert reasons == {
        **{"regulariser:0": "unfed", "size:0": "unfed", "seen:0": "debug"},
        **{"gradients": "gradient", "gradients_1": "gradient"},
    }


def test_of_a_function_its_results_are_fetched_and_no_more():
    """The graph of a tf.function says by its names what it returns."""

    @tf.function(input_signature=[tf.TensorSpec([2, 2], name="x")])
    def function(x):
        tf.matmul(x, tf.ones([2, 2]), name="unused")
        return x * 2.0, x + 1.0

    program = load_program(function.get_concrete_function().graph.as_graph_def())
    assert [key for key, _ in program.outputs] == ["Identity", "Identity_1"]
    assert set(program.left_over.values()) == {"unreturned"}


def test_further_results_of_a_loop_are_left_over():
    """The counter of a loop whose sum is used; where no result is used, all are results."""

    def graph(reads):
        with tf.Graph().as_default() as found:
            x = v1.placeholder(tf.float32, [], name="x")
            count, total = tf.while_loop(
                lambda i, _: i < 3.0 + x, lambda i, a: (i + 1.0, a + x), [x, x]
            )
            tf.identity(count, name="loop/count")
            tf.identity(total, name="loop/total")
            if reads:
                tf.sqrt(total, name="y")
        return found

    read = load_program(graph(reads=True))
    assert read.left_over["loop/count:0"] == "further"
    assert "y" in dict(read.outputs)
    assert load_program(graph(reads=False)).left_over == {}


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
    found = report(decoder())
    assert (found.model.outputs, found.model.output_bytes) == (("logits",), 8 * 16 * 4)
    (row,) = found.model.left_over
    assert (row.reason, row.count, row.bytes) == ("inside", 3, 3 * 8 * 8 * 4)
    text = found.summary(width=120)
    assert "3 of 4 sinks, which only run; --outputs says better" in text
    assert "3 values that the model goes on computing with, 768 B, such as layer_0/scores:0" in text


REAL = {
    "graphs/openpose-mobilenet/mobilenet_thin/graph.pb": ["Openpose/concat_stage7"],
    "graphs/zoo-resnet50_train_adam_b32/graph.pb": ["loss"],
    "graphs/zoo-dlrm_multihot_sharded_train/graph.pb": ["loss"],
    "graphs/zoo-bert_base_infer_dynamic/graph.pb": [
        "tf_bert_model/bert_1/pooler/dense/Tanh", "encoded",
    ],
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
    ["basic-pitch", "tfnet-lstm-savedmodel", "zoo-sm_bilstm_while_v2_train_k3/saved_model"]
    + [
        f"serving-testdata/saved_model_half_plus_two_{kind}/00000123" for kind in ("mkl", "gpu_trt")
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
