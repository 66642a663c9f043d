"""What TensorFlow allocates in a step of each graph, from its own allocation records.

    python record.py NUMBER GRAPH.pb ...

writes ``GRAPH.NUMBER.record.json`` beside each graph, if it is not there.  A program of its own:
oneDNN has to be off before TensorFlow is loaded, and the order of a step differs from process to
process.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

os.environ |= {
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "CUDA_VISIBLE_DEVICES": "",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
STEPS = 2
LARGEST_NUMBER = 10
"""Fed integers are below it: class labels, and rows of every table."""


def main() -> None:
    number, *paths = sys.argv[1:]
    for path in map(Path, paths):
        target = path.with_suffix(f".{number}.record.json")
        if not target.exists():
            target.write_text(json.dumps(record(path)))
            print(target, flush=True)


def record(path: Path) -> dict:
    """The peak and the ops in order of one step, those of a loop once per iteration; the bytes of
    the variables."""
    graph_def = v1.GraphDef.FromString(path.read_bytes())
    outputs = json.loads(path.with_suffix(".json").read_text())["outputs"]
    metadata, variable_bytes = run(graph_def, outputs)
    started = sorted(
        (node.all_start_nanos, node.node_name)
        for device in metadata.step_stats.dev_stats
        for node in device.node_stats
    )
    return {
        "peak_bytes": peak_bytes(metadata),
        "variable_bytes": variable_bytes,
        "started": [name for _, name in started],
    }


def run(graph_def, outputs):
    """The metadata of the last step, and the bytes of all variables."""
    config = v1.ConfigProto(inter_op_parallelism_threads=1, intra_op_parallelism_threads=2)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
    with tf.Graph().as_default() as graph, v1.Session(graph=graph, config=config) as session:
        tf.import_graph_def(graph_def, name="")
        feeds = {op.outputs[0]: fed_value(op) for op in ops_of(graph, "Placeholder")}
        variable_bytes = initialise(session, ops_of(graph, "VarHandleOp"))
        fetches = [graph.as_graph_element(name) for name in outputs]
        for _ in range(STEPS):
            metadata = v1.RunMetadata()
            session.run(fetches, feeds, options=options, run_metadata=metadata)
    return metadata, variable_bytes


def ops_of(graph, op_type: str):
    return [op for op in graph.get_operations() if op.type == op_type]


def fed_value(op):
    rng = np.random.default_rng(0)
    shape, dtype = op.outputs[0].shape, op.outputs[0].dtype
    if dtype.is_floating:
        return rng.uniform(0, 1, shape).astype(dtype.as_numpy_dtype)
    return rng.integers(0, LARGEST_NUMBER, shape).astype(dtype.as_numpy_dtype)


def initialise(session, handles) -> int:
    """The bytes of all variables, which then hold small numbers."""
    values, assigns = {}, []
    for handle in handles:
        dtype, shape = tf.as_dtype(handle.get_attr("dtype")), handle.get_attr("shape")
        value = np.full([side.size for side in shape.dim], 0.01).astype(dtype.as_numpy_dtype)
        fed = v1.placeholder(dtype, value.shape)
        assigns.append(tf.raw_ops.AssignVariableOp(resource=handle.outputs[0], value=fed))
        values[fed] = value
    session.run(assigns, values)
    return sum(value.nbytes for value in values.values())


def peak_bytes(metadata) -> int:
    """The most bytes allocated at once; feeds, constants and variables are not in the records."""
    changes = sorted(
        (record.alloc_micros, record.alloc_bytes)
        for device in metadata.step_stats.dev_stats
        for node in device.node_stats
        for memory in node.memory
        for record in memory.allocation_records
    )
    peak = in_use = 0
    for _, size in changes:
        in_use += size
        peak = max(peak, in_use)
    return peak


if __name__ == "__main__":
    main()
