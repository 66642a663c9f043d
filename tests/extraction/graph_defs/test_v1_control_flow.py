"""Frames and branches of v1 control flow."""

from __future__ import annotations

import pytest
import tensorflow as tf

from placer.errors import ModelError
from placer.extraction.graph_defs.v1_control_flow import find_contexts


def v1_conditional() -> tf.compat.v1.GraphDef:
    with tf.Graph().as_default() as graph:
        value = tf.compat.v1.placeholder(tf.float32, [2], name="value")
        switch = tf.raw_ops.Switch(data=value, pred=value[0] > 0.0, name="cond/Switch")
        sine = tf.sin(switch.output_true, name="cond/Sin")
        cosine = tf.cos(switch.output_false, name="cond/Cos")
        merged = tf.raw_ops.Merge(inputs=[cosine, sine], name="cond/Merge")
        tf.identity(merged.output, name="chosen")
    return graph.as_graph_def()


def test_ops_of_a_branch_know_which_one_and_what_follows_the_merge_does_not() -> None:
    contexts = find_contexts(v1_conditional().node)
    taken = {name: contexts[name].branches for name in ("cond/Sin", "cond/Cos", "chosen")}
    assert [index for _, index in taken["cond/Sin"]] == [1]
    assert [index for _, index in taken["cond/Cos"]] == [0]
    assert not taken["chosen"]


def test_an_output_that_a_switch_does_not_have_is_refused() -> None:
    """A file may say anything; a reader of ``Switch:7`` is named by what it reads."""
    graph_def = v1_conditional()
    reader = next(node for node in graph_def.node if node.name == "cond/Sin")
    reader.input[0] = reader.input[0].partition(":")[0] + ":7"
    with pytest.raises(ModelError, match="s is a Switch without a predicate"):
        find_contexts([tf.compat.v1.NodeDef(name="s", op="Switch", input=["x"])])
    with pytest.raises(ModelError, match=r"Switch:7 is read, but a Switch has the outputs 0 and 1"):
        find_contexts(graph_def.node)
