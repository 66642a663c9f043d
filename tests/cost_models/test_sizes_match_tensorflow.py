"""Bytes of tensors beside what TensorFlow's allocator was asked for, for every dtype.

A tensor of each dtype is stacked from two halves, by a kernel that only moves bytes, or else cast
from a type that has such a kernel.
"""

import json
import sys

import pytest
from fuzzing.warm_children import run_python

from cost_models.op_info import TensorProperties
from cost_models.tensor_size import element_bytes, tensor_bytes

SHAPE = (2, 3, 5)
UNSIZED = {"string", "variant", "resource"}


def _record():
    """Writes dtype -> bytes that were requested for a tensor of ``SHAPE``, as JSON; ``null`` where
    no kernel of this TensorFlow makes such a tensor."""
    import tensorflow as tf
    from tensorflow.python.framework import dtypes

    def stacked(dtype):
        half = np.zeros(SHAPE[1:], dtype.as_numpy_dtype)
        fed = tf.compat.v1.placeholder(dtype, half.shape)
        return tf.raw_ops.Pack(values=[fed, fed]), {fed: half}

    def cast(dtype):
        return tf.raw_ops.Cast(x=tf.zeros(SHAPE, tf.int8), DstT=dtype), {}

    import numpy as np

    names = {dtypes.as_dtype(name).base_dtype.name for name in dtypes._TYPE_TO_STRING}
    sizes = {
        name: next(
            filter(None, (_requested_bytes(tf, name, make) for make in (stacked, cast))), None
        )
        for name in sorted(names - UNSIZED)
    }
    json.dump(sizes, sys.stdout)


def _requested_bytes(tf, name, make):
    """What the op that ``make`` adds allocated for its output, ``None`` if it cannot run."""
    v1 = tf.compat.v1
    config = v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    metadata = v1.RunMetadata()
    options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
    with tf.Graph().as_default(), v1.Session(config=config) as session:
        try:
            made, feeds = make(tf.as_dtype(name))
            session.run(made.op, feeds, options=options, run_metadata=metadata)
        except (tf.errors.OpError, TypeError, ValueError, KeyError):
            return None
    nodes = [node for device in metadata.step_stats.dev_stats for node in device.node_stats]
    (stats,) = [node for node in nodes if node.node_name == made.op.name]
    return stats.output[0].tensor_description.allocation_description.requested_bytes


@pytest.fixture(scope="module")
def requested():
    pytest.importorskip("tensorflow")
    ran = run_python([__file__])
    assert ran.returncode == 0, ran.stderr[-2000:]
    return json.loads(ran.stdout.splitlines()[-1])


def test_every_dtype_has_the_size_that_was_allocated(requested):
    """Half, bfloat16, float8, complex, bool, quantised and sub-byte types included."""
    sized = {name: size for name, size in requested.items() if size is not None}
    assert len(sized) >= 24
    for name, size in sized.items():
        assert tensor_bytes(TensorProperties(dtype=name, shape=SHAPE)) == size, name


def test_every_dtype_of_tensorflow_is_known(requested):
    """Each dtype that TensorFlow lists has a size, or is one of the three without."""
    assert all(element_bytes(name) for name in requested)
    assert all(element_bytes(name) is None for name in UNSIZED)


if __name__ == "__main__":
    _record()
