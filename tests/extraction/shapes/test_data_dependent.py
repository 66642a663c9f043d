"""Outputs whose sizes only a run can tell, held against runs of TensorFlow."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture(scope="module")
def lookups():
    """A program that selects, deduplicates, parts and stitches, with every tensor of interest."""
    import tensorflow as tf

    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.int32, (6,), name="x")
        chosen = tf.where(x > 0, name="chosen")
        unique, _ = tf.unique(x, name="unique")
        parts = tf.dynamic_partition(x, x % 2, 2, name="parts")
        places = tf.dynamic_partition(tf.range(6), x % 2, 2, name="places")
        stitched = tf.dynamic_stitch(places, parts, name="stitched")
        tensors = [chosen, unique, *parts, stitched]
    return graph, tensors


def test_sizes_are_taken_at_their_largest(lookups):
    """No run needs more than the shapes that are assumed, and some run needs just that."""
    import tensorflow as tf

    from placer.extraction import extract

    graph, tensors = lookups
    names = [tensor.name for tensor in tensors]
    extraction = extract(graph, outputs=names)
    assumed = [extraction.graph.tensors[name].properties.shape for name in names]
    assert extraction.unknown == ()
    assert assumed == [(6, 1), (6,), (6,), (6,), (6,)]
    largest = np.zeros((len(names), 2), int)
    with tf.compat.v1.Session(graph=graph) as session:
        for fed in ([1, 2, 3, 4, 5, 6], [2] * 6, [1] * 6, [0, -1, 0, 7, 7, 7]):
            values = session.run(tensors, {"x:0": fed})
            for row, value in enumerate(values):
                largest[row, : value.ndim] = np.maximum(largest[row, : value.ndim], value.shape)
    assert [
        tuple(row[: len(shape)]) for row, shape in zip(largest, assumed, strict=True)
    ] == assumed


def test_what_is_assumed_is_said(lookups):
    """The ops are listed in a warning that names the option to say better."""
    from placer.extraction import extract

    graph, tensors = lookups
    warnings = extract(graph, outputs=[tensors[0].name]).warnings
    ((_, message, ops),) = [w for w in warnings if w[0] == "data_dependent_shape"]
    assert len(ops) == 1
    assert "--shape" in message
