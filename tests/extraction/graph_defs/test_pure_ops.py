"""Which ops TensorFlow may compute while a model is read."""

import pytest
import tensorflow as tf

from placer.extraction import extract
from placer.extraction.graph_defs.op_definitions import OpDefinitions
from placer.extraction.graph_defs.pure_ops import (
    PURE_OPS,
    may_run,
)


def test_pure_ops_have_no_state_and_call_no_functions():
    """By TensorFlow's own definitions, and none names a file."""
    definitions = OpDefinitions()
    for op_type in PURE_OPS:
        definition = definitions.registered(op_type)
        if definition is None:
            continue  # of another version
        names = {item.name for item in (*definition.input_arg, *definition.attr)}
        assert not definition.is_stateful, op_type
        assert not {a.type for a in definition.attr} & {"func", "list(func)"}, op_type
        assert not any("file" in name or "path" in name or "url" in name for name in names)


@pytest.mark.parametrize(
    ("op_type", "allowed"),
    [("Reshape", True), ("ReadFile", False), ("MatchingFiles", False), ("MyOp", False)],
)
def test_what_is_not_listed_may_not_run(op_type, allowed):
    """An op type that nobody knows either."""
    assert may_run(op_type, OpDefinitions()) is allowed


def test_a_size_that_is_in_a_file_stays_unknown(tmp_path):
    """The file says 7, no report does; what is computed from constants is known as before."""
    (tmp_path / "secret").write_text("7")
    with tf.Graph().as_default() as graph:
        size = tf.strings.to_number(tf.io.read_file(str(tmp_path / "secret")), tf.int32)
        tf.zeros(tf.stack([size, 3]), name="from_file")
        text = tf.strings.to_number(tf.strings.join([tf.constant("1"), "2"]), tf.int32)
        tf.zeros(tf.stack([text, 3]), name="from_text")
    found = extract(graph.as_graph_def()).graph.ops
    assert found["from_file"].info.outputs[0].shape == (None, 3)
    assert found["from_text"].info.outputs[0].shape == (12, 3)
