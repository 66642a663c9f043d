"""NodeDefs rewritten and made what they were."""

import pytest
import tensorflow as tf

from placer.extraction.graph_defs.op_definitions import OpDefinitions
from placer.extraction.graph_defs.rewritten_nodes import (
    is_rewritten,
    remove_rewriting,
    rewrite_nodes,
)
from placer.graph.rewriting import Clone, Rewriting, Swap


def step():
    """Two activations; their gradients are joined twice before they are used."""
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [4], "x")
        a = tf.tanh(x, "a")
        b = tf.nn.relu(a, "b")
        loss = tf.negative(b, "loss")
        db = tf.raw_ops.ReluGrad(gradients=loss, features=b, name="db")
        da = tf.raw_ops.TanhGrad(y=a, dy=db, name="da")
        inner = tf.raw_ops.IdentityN(input=[da, db], name="inner")
        outer = tf.raw_ops.IdentityN(input=[inner[1], inner[0]], name="outer")
        tf.add(outer[0], outer[1], "update")
    return graph.as_graph_def()


ALL = Rewriting(
    clones=(Clone(op="b", reads=("a",), after=("loss",)),),
    swaps=(Swap(tensor="a:0", after=("loss",)),),
    late_readers={"db": ("b",), "da": ("a",)},
    released=("inner", "outer"),
)


def rewritten(rewriting=ALL, kept=()):
    graph_def = step()
    found = type(graph_def)(versions=graph_def.versions)
    found.node.extend(rewrite_nodes(graph_def.node, rewriting, kept, OpDefinitions()))
    return found


def inputs_of(graph_def):
    return {node.name: list(node.input) for node in graph_def.node}


def test_ops_are_added_and_read():
    """A clone that reads what was on the host; joins of joins go, and all of it runs."""
    found = rewritten()
    inputs = inputs_of(found)
    assert inputs["a/arrived"] == ["a"]
    assert inputs["a/swapped"] == ["a/arrived", "^loss"]
    assert inputs["b/recomputed"] == ["a/swapped", "^loss"]
    assert inputs["db"] == ["loss", "b/recomputed"]
    assert inputs["da"] == ["a/swapped", "db"]
    assert inputs["update"] == ["db", "da"]
    assert {"inner", "outer"}.isdisjoint(inputs)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.import_graph_def(found, name="new")
        tf.import_graph_def(step(), name="old")
        feeds = {name: [-1.0, 0.0, 0.5, 2.0] for name in ("new/x:0", "old/x:0")}
        new, old = session.run(["new/update:0", "old/update:0"], feeds)
        assert new.tolist() == old.tolist()


def test_what_was_rewritten_is_made_what_it_was():
    """Node by node, whatever their order; nothing of it is left."""
    found = rewritten()
    assert is_rewritten(found)
    remove_rewriting(found)
    assert not is_rewritten(found)
    assert {node.name: node for node in found.node} == {node.name: node for node in step().node}


@pytest.mark.parametrize("kept", ["outer", "inner"])
def test_a_join_that_is_fetched_stays(kept):
    """It is read by nobody, and what it reads is what it read."""
    assert inputs_of(rewritten(kept=(kept,)))[kept] in (["da", "db"], ["db", "da"])
