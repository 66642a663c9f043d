"""Steps of a graph under TensorFlow's BFC allocator, in processes that are forked for each try.

oneDNN has to be off before TensorFlow is loaded.  Every try is a process of its own, since the
order of a step differs from process to process and the limit is read once; they are forked from one
that has loaded TensorFlow and read the graph, but has used no device yet.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ |= {
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "CUDA_VISIBLE_DEVICES": "-1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1

STEPS = 3
ONE_REGION = "one_region"
"""The allocator takes all its memory at once, as cards do by default; else bit by bit."""

LARGEST_NUMBER = 10
"""Fed integers are below it: class labels, and rows of every table."""

_NO_CONSTANT = "Cannot parse tensor from proto"

Tried = dict[str, Any]


def attempts(path: Path) -> Callable[[int, str], Tried]:
    """What tries some steps of the graph under a limit in MiB, in a mode of the allocator."""
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(v1.GraphDef.FromString(path.read_bytes()), name="")
        feeds = {op.outputs[0]: fed_value(op) for op in ops_of(graph, "Placeholder")}
        outputs = json.loads(path.with_suffix(".json").read_text())["outputs"]
        fetches = [graph.as_graph_element(name) for name in outputs]
        starts = [first_value(handle) for handle in ops_of(graph, "VarHandleOp")]
    config = v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1

    def steps() -> Tried:
        with v1.Session(graph=graph, config=config) as session:
            return run(session, starts, fetches, feeds)

    return lambda limit_mib, mode: tried(limit_mib, mode, steps)


def tried(limit_mib: int, mode: str, steps: Callable[[], Tried]) -> Tried:
    """What a process with that limit says: whether it served, held and peak bytes, by step."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reading)
        os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "true"
        os.environ["TF_CPU_BFC_MEM_LIMIT_IN_MB"] = str(limit_mib)
        if mode == ONE_REGION:
            take_one_region(limit_mib)
        found = steps()
        with os.fdopen(writing, "w") as file:
            file.write(json.dumps(found))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        content = file.read()
    os.waitpid(pid, 0)
    return {"limit_mib": limit_mib, **(json.loads(content) if content else {"served": False})}


def run(session: Any, starts: list, fetches: list, feeds: dict) -> Tried:
    """The steps in this process; bytes held before and after them, and the peak of each."""
    memory = tf.config.experimental
    held, peaks = [], []
    try:
        session.run(starts)
        held.append(memory.get_memory_info("CPU:0")["current"])
        for _ in range(STEPS):
            memory.reset_memory_stats("CPU:0")
            session.run(fetches, feeds)
            found = memory.get_memory_info("CPU:0")
            held.append(found["current"])
            peaks.append(found["peak"])
    except (tf.errors.ResourceExhaustedError, tf.errors.InvalidArgumentError) as error:
        if not ran_out(error):
            raise
        op = str(error.op and error.op.name)
        return {"served": False, "held": held, "peaks": peaks, "op": op}
    return {"served": True, "held": held, "peaks": peaks, "peak_bytes": max(peaks)}


def ran_out(error: tf.errors.OpError) -> bool:
    """Whether it is for lack of memory: a constant that gets none "cannot be parsed"."""
    return isinstance(error, tf.errors.ResourceExhaustedError) or _NO_CONSTANT in error.message


def take_one_region(limit_mib: int) -> None:
    """Makes the allocator take all that it may hand out as one region but for 2 MiB, which the
    shape that is asked for here may be in; nothing is written to it."""
    tf.raw_ops.Empty(shape=[256 * limit_mib - 512, 2**12], dtype=tf.uint8)


def ops_of(graph: Any, op_type: str) -> list:
    return [op for op in graph.get_operations() if op.type == op_type]


def fed_value(op: Any) -> Any:
    rng = np.random.default_rng(0)
    shape, dtype = op.outputs[0].shape, op.outputs[0].dtype
    if dtype.is_floating:
        return rng.uniform(0, 1, shape).astype(dtype.as_numpy_dtype)
    return rng.integers(0, LARGEST_NUMBER, shape).astype(dtype.as_numpy_dtype)


def first_value(handle: Any) -> Any:
    """The op that gives the variable small numbers, made where the variable is.

    They are drawn: of those that are known, graph optimisation makes one constant for all variables
    of a shape, which have no memory of their own then until the first step changes them.
    """
    dtype = tf.as_dtype(handle.get_attr("dtype"))
    shape = [side.size for side in handle.get_attr("shape").dim]
    value = tf.fill(shape, tf.cast(tf.random.uniform([], 0.0, 0.01), dtype))
    return tf.raw_ops.AssignVariableOp(resource=handle.outputs[0], value=value)
