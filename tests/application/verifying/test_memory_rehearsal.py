"""Every device a process, its cap the hard limit of TensorFlow's allocator."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf
from jsonschema import Draft202012Validator

import placer
from placer.application.running.program_runs import RunOptions
from placer.application.verifying.memory_rehearsal import rehearse_memory
from placer.errors import UsageError, VerificationError
from placer.extraction.reading.loading import load_program
from placer.plan.schemas import load_schema
from placer.rendering.json_text import to_json

v1 = tf.compat.v1
MIB = 2**20
SIDE = 1024
MATRIX = SIDE * SIDE * 4
ROUNDING = 256
"""BFC hands out multiples of that."""


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A graph file and its plan, with the weights (4 MiB) on GPU:0; on GPU:1 the product y eight
    times below each other (32 MiB), and that doubled."""
    path = tmp_path_factory.mktemp("wide") / "graph.pb"
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [SIDE, SIDE], "x")
        weights = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[SIDE, SIDE], name="weights")
        read = tf.raw_ops.ReadVariableOp(resource=weights, dtype=tf.float32, name="read")
        y = tf.matmul(x, read, name="y")
        wide = tf.concat([y] * 8, 0, name="wide")
        doubled = tf.add(wide, wide, name="doubled")
        tf.reduce_sum(doubled, name="total")
    path.write_bytes(graph.as_graph_def().SerializeToString())
    pins = {"weights": "GPU:0", "y": "GPU:0", "wide": "GPU:1", "doubled": "GPU:1"}
    plan = placer.place(path, "2xGPU:1GiB", pins=pins, time_limit=10.0)
    assert plan.placement["wide"] == "GPU:1"
    return path, plan


def capped(plan, name, cap_mib):
    """The plan with another cap of one device."""
    cap = cap_mib * MIB
    rows = [
        replace(row, memory_limit_bytes=cap) if row.name == name else row for row in plan.devices
    ]
    return replace(plan, devices=tuple(rows))


def test_what_allocators_hand_out_is_what_tensors_take(wide):
    """Held: the variable where it is.  At most: concat and sum of 32 MiB (the sum overwrites
    nothing, as its input is read twice) and the 4 MiB that arrived."""
    path, plan = wide
    found = placer.verify(path, capped(plan, "GPU:1", 900), memory=True).raise_for_mismatch().memory
    assert found.out_of_memory is None
    assert found.steps == 3
    used = {row.device: row for row in found.devices}
    assert used["GPU:0"].held_bytes == pytest.approx(MATRIX, abs=16 * ROUNDING)
    assert used["GPU:1"].held_bytes <= 16 * ROUNDING
    assert used["GPU:0"].peak_bytes == pytest.approx(3 * MATRIX, abs=16 * ROUNDING)
    assert used["GPU:1"].limit_bytes == 900 * MIB


def test_a_cap_that_is_too_small_names_the_device_and_the_op(wide):
    """36 MiB arrive and are joined; the sum does not fit in what is left of 48."""
    path, plan = wide
    found = placer.verify(path, capped(plan, "GPU:1", 48), memory=True)
    Draft202012Validator(load_schema("verification")).validate(json.loads(to_json(found)))
    assert found.memory.out_of_memory.device == "GPU:1"
    assert found.memory.out_of_memory.op == "doubled"
    assert found.memory.steps == 0
    with pytest.raises(VerificationError, match="GPU:1 ran out of memory at op doubled"):
        found.raise_for_mismatch()


def test_weights_that_do_not_fit_are_named(wide):
    """The variable of 4 MiB is on a device of 2 MiB: there is no first step."""
    path, plan = wide
    found = placer.verify(path, capped(plan, "GPU:0", 2), memory=True).memory
    assert found.out_of_memory.device == "GPU:0"
    assert found.out_of_memory.op == "initial/weights"
    assert found.steps == 0


def test_a_program_may_read_what_is_in_its_folder(tmp_path):
    """The file beside the graph is read in the rehearsal, too, whose own folder is another one."""
    path, words = tmp_path / "graph.pb", tmp_path / "words.txt"
    words.write_text("three")
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.int32, [8], "x")
        tf.add(x, tf.strings.length(tf.io.read_file(str(words))), name="y")
    path.write_bytes(graph.as_graph_def().SerializeToString())
    plan = placer.place(path, "1xGPU:1GiB", time_limit=2.0)
    assert placer.verify(path, plan, memory=True).raise_for_mismatch().memory.steps == 3


def test_functions_bring_their_variables(tmp_path):
    """A training step of a live function: captured variables are rebuilt with made-up values."""
    weights = tf.Variable(tf.ones([SIDE, SIDE]), name="weights")

    @tf.function(input_signature=[tf.TensorSpec([8, SIDE])], jit_compile=False)
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.matmul(x, weights) ** 2)
        weights.assign_sub(1e-6 * tape.gradient(loss, weights))
        return loss

    plan = placer.place(step, "1xGPU:1GiB", time_limit=10.0)
    found = placer.verify(step, plan, memory=True).raise_for_mismatch().memory
    used = {row.device: row for row in found.devices}
    assert used["GPU:0"].held_bytes == pytest.approx(MATRIX, abs=16 * ROUNDING)
    assert float(tf.reduce_sum(weights)) == SIDE * SIDE


def test_tables_get_a_row(tmp_path):
    """A lookup runs: it would fail in a table that nobody has filled."""
    with tf.Graph().as_default() as graph:
        ids = v1.placeholder(tf.string, [4], "ids")
        table = tf.raw_ops.HashTableV2(key_dtype=tf.string, value_dtype=tf.int64, name="table")
        found = tf.raw_ops.LookupTableFindV2(
            table_handle=table, keys=ids, default_value=tf.constant(7, tf.int64)
        )
        tf.identity(found, name="found")
    path = tmp_path / "graph.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    plan = placer.place(path, "1xGPU:64MiB", time_limit=10.0)
    words = {"ids": np.array([b"a", b"b", b"c", b"d"], object)}
    memory = rehearse_memory(load_program(path), plan, words, RunOptions())
    assert memory.out_of_memory is None
    assert memory.steps == 3


def test_without_a_plan_there_are_no_caps(wide):
    """The caps of a plan are the limits."""
    with pytest.raises(UsageError, match="give the plan"):
        placer.verify(wide[0], memory=True)


def test_what_was_sent_is_not_kept(tmp_path):
    """Ten products in a row, each read by GPU:1 alone besides the next: not more than three of
    them, and what is on its way, are on GPU:0 at once.  On a busy machine more may be on its way,
    so one rehearsal of three is enough; where what was sent is kept, eleven are there each time."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [], "x")
        weights = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[SIDE, SIDE], name="weights")
        read = tf.raw_ops.ReadVariableOp(resource=weights, dtype=tf.float32, name="read")
        products = [tf.matmul(read, read, name="product_0")]
        for number in range(1, 10):
            products.append(tf.matmul(products[-1], read, name=f"product_{number}"))
        sums = [tf.reduce_sum(y, name=f"sum_{n}") for n, y in enumerate(products)]
        tf.add(tf.add_n(sums), x, name="total")
    path = tmp_path / "graph.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    pins = {"weights": "GPU:0"}
    pins |= {y.op.name: "GPU:0" for y in products} | {y.op.name: "GPU:1" for y in sums}
    plan = placer.place(path, "2xGPU:1GiB", pins=pins, time_limit=10.0)
    peaks: list[int] = []
    while len(peaks) < 3 and min(peaks, default=math.inf) > 7 * MATRIX:
        found = placer.verify(path, plan, memory=True).raise_for_mismatch().memory
        peaks += [row.peak_bytes for row in found.devices if row.device == "GPU:0"]
    assert min(peaks) <= 7 * MATRIX, peaks
