"""Programs loaded and run on simulated GPUs that hand out the plan's caps."""

from __future__ import annotations

import importlib.util
import json

import pytest
import tensorflow as tf
from jsonschema import Draft202012Validator
from simulation.simulated_runs import require_simulation, with_caps

import placer
from placer.errors import UsageError, VerificationError
from placer.plan.schemas import load_schema
from placer.rendering.json_text import to_json
from placer.rendering.text.verification_text import render_verification
from placer.simulation import building

v1 = tf.compat.v1
MIB = 2**20
SIDE = 1024
MATRIX = SIDE * SIDE * 4
ROUNDING = 256
"""BFC hands out multiples of that."""


@pytest.fixture(scope="module", autouse=True)
def simulation():
    require_simulation()


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A graph file and its plan, with the weights (4 MiB) on GPU:0; on GPU:1 the product y eight
    times below each other (32 MiB), and that turned."""
    path = tmp_path_factory.mktemp("wide") / "graph.pb"
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [SIDE, SIDE], "x")
        weights = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[SIDE, SIDE], name="weights")
        read = tf.raw_ops.ReadVariableOp(resource=weights, dtype=tf.float32, name="read")
        y = tf.matmul(x, read, name="y")
        wide = tf.concat([y] * 8, 0, name="wide")
        turned = tf.transpose(wide, name="turned")
        tf.reduce_sum(turned, name="total")
    path.write_bytes(graph.as_graph_def().SerializeToString())
    pins = {"weights": "GPU:0", "y": "GPU:0", "wide": "GPU:1", "turned": "GPU:1"}
    plan = placer.place(path, "2xGPU:1GiB", pins=pins, time_limit=10.0)
    assert plan.placement["wide"] == "GPU:1"
    return path, plan


def test_what_allocators_hand_out_is_what_tensors_take(wide):
    """Held: the variable where it is.  At most: 32 MiB joined and as much turned.  Ten
    steps are run; JSON and text say who judged what."""
    path, plan = wide
    found = placer.verify(
        path, with_caps(plan, {"GPU:1": 900 * MIB}), memory=True
    ).raise_for_mismatch()
    assert found.memory.out_of_memory is None
    assert found.memory.steps == 10
    used = {row.device: row for row in found.memory.devices}
    assert list(used) == ["GPU:0", "GPU:1"]
    assert used["GPU:0"].held_bytes == pytest.approx(MATRIX, abs=16 * ROUNDING)
    assert used["GPU:1"].held_bytes <= 16 * ROUNDING
    assert 2 * MATRIX <= used["GPU:0"].peak_bytes <= 4 * MATRIX + 16 * ROUNDING
    assert used["GPU:1"].peak_bytes >= 16 * MATRIX
    assert used["GPU:1"].limit_bytes == 900 * MIB
    assert found.judges["memory"] == "simulated"
    assert found.judges["outputs"] == found.judges["ops"] == "cpu"
    assert json.loads(to_json(found))["judges"] == found.judges
    text = render_verification(found, "wide")
    told = "CPU devices: ops, transfers, variables, outputs; simulated GPUs: memory"
    assert told in " ".join(text.split())
    assert "The placed program was loaded and ran 10 steps on simulated GPUs." in " ".join(
        text.split()
    )


def test_a_cap_that_is_too_small_names_the_device_and_the_op(wide):
    """36 MiB arrive and are joined; what is turned does not fit in what is left of 48."""
    path, plan = wide
    found = placer.verify(path, with_caps(plan, {"GPU:1": 48 * MIB}), memory=True)
    Draft202012Validator(load_schema("verification")).validate(json.loads(to_json(found)))
    assert found.memory.out_of_memory.device == "GPU:1"
    assert found.memory.out_of_memory.op == "turned"
    assert found.memory.steps == 0
    with pytest.raises(VerificationError, match="GPU:1 ran out of memory at op turned"):
        found.raise_for_mismatch()


def test_weights_that_do_not_fit_are_named(wide):
    """The variable of 4 MiB is on a device of 2 MiB: there is no first step."""
    path, plan = wide
    found = placer.verify(path, with_caps(plan, {"GPU:0": 2 * MIB}), memory=True).memory
    assert found.out_of_memory.device == "GPU:0"
    assert found.steps == 0


def test_reference_variables_run_in_what_they_are_said_to_need(tmp_path):
    """Their first values are not copied: with the limit at the need, what is held is the variables
    and the kernels' own."""
    path = tmp_path / "graph.meta"
    with tf.Graph().as_default():
        y = v1.placeholder(tf.float32, [8, 256], "x")
        for number, width in enumerate((1500, 700, 1500, 256)):
            name = f"w{number}"
            y @= v1.get_variable(name, [y.shape[1], width], use_resource=False)
        v1.add_to_collection("train_op", tf.reduce_sum(y, name="total").op)
        v1.train.export_meta_graph(str(path))
    plan = placer.place(path, "1xT4", outputs=["total"], spill="never", time_limit=10.0)
    need = plan.required_bytes["GPU:0"]
    found = placer.verify(path, with_caps(plan, {"GPU:0": need}), memory=True)
    used = found.raise_for_mismatch().memory.devices[0]
    weights = 4 * (256 * 1500 + 1500 * 700 + 700 * 1500 + 1500 * 256)
    assert weights <= used.held_bytes <= weights + 16 * ROUNDING
    assert need < 2 * weights


def test_a_placed_saved_model_is_loaded(tmp_path):
    """Its own weights, on their devices: what the plan calls resident is held."""
    model = tf.Module()
    model.first = tf.Variable(tf.ones([SIDE, SIDE]), name="first")
    model.second = tf.Variable(tf.ones([SIDE, 2 * SIDE]), name="second")
    model.call = tf.function(
        lambda x: {"y": tf.matmul(tf.matmul(x, model.first), model.second)},
        input_signature=[tf.TensorSpec([8, SIDE], name="x")],
    )
    tf.saved_model.save(model, str(tmp_path / "model"), signatures=model.call)
    pins = {"*MatMul": "GPU:0", "*MatMul_1": "GPU:1"}
    plan = placer.place(tmp_path / "model", "2xGPU:100MiB", pins=pins, time_limit=10.0)
    placer.apply(tmp_path / "model", plan, out=tmp_path / "placed")
    found = placer.verify(tmp_path / "placed", plan, memory=True).raise_for_mismatch().memory
    assert found.program == "loaded"
    for row in plan.devices[:2]:
        held = next(used.held_bytes for used in found.devices if used.device == row.name)
        assert row.resident_bytes in (MATRIX, 2 * MATRIX)
        # what was sent last may be there still
        assert 0 <= held - row.resident_bytes <= 8 * SIDE * 4 + 16 * ROUNDING


def test_a_program_may_read_what_is_in_its_folder(tmp_path):
    """The file beside the graph is read in the rehearsal, too, whose own folder is another one."""
    path, words = tmp_path / "graph.pb", tmp_path / "words.txt"
    words.write_text("three")
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.int32, [8], "x")
        tf.add(x, tf.strings.length(tf.io.read_file(str(words))), name="y")
    path.write_bytes(graph.as_graph_def().SerializeToString())
    plan = placer.place(path, "1xGPU:1GiB", time_limit=2.0)
    assert placer.verify(path, plan, memory=True).raise_for_mismatch().memory.steps == 10


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
    assert found.program == "flat_graph"
    used = {row.device: row for row in found.devices}
    assert used["GPU:0"].held_bytes == pytest.approx(MATRIX, abs=MATRIX // 64)
    assert float(tf.reduce_sum(weights)) == SIDE * SIDE


def test_a_table_of_a_function_cannot_be_rebuilt():
    """What cannot be sent to another process is refused, with the command that runs the script."""
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 0.0)

    @tf.function(input_signature=[tf.TensorSpec([8], tf.int64)])
    def looked_up(ids):
        return table.lookup(ids) * 2.0

    plan = placer.place(looked_up, "1xGPU:64MiB", time_limit=10.0)
    with pytest.raises(UsageError, match="placer simulate"):
        placer.verify(looked_up, plan, memory=True)


def test_without_a_plan_there_are_no_caps(wide):
    """The caps of a plan are the limits."""
    with pytest.raises(UsageError, match="give the plan"):
        placer.verify(wide[0], memory=True)


def test_without_a_compiler_it_says_what_is_missing(wide, monkeypatch, tmp_path):
    """Before anything is run; with on_hardware simulated GPUs are forbidden."""
    path, plan = wide
    with pytest.raises(UsageError, match="on_hardware=True forbids"):
        placer.verify(path, plan, memory=True, on_hardware=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(building.importlib.util, "find_spec", _without_zig)
    with pytest.raises(UsageError, match="require a C compiler"):
        placer.verify(path, plan, memory=True)


def _without_zig(name, package=None, find=importlib.util.find_spec):
    return None if name == "ziglang" else find(name, package)
