"""Verifications of files: without a plan, for some outputs, of real models, and what goes wrong."""

import numpy as np
import pytest
import tensorflow as tf
from fuzzing.warm_children import run_python
from placements import cut_placement, plan_for

from placer import apply, verify
from placer.application.placing.placed_programs import clear
from placer.application.running.program_runs import RunRequest
from placer.application.verifying import verification_process
from placer.application.verifying.difference_codes import compare_outputs
from placer.application.verifying.judgement import sums_in_one_order
from placer.application.verifying.model_files import seed_random_ops
from placer.application.verifying.verification_process import run_in_child
from placer.errors import ModelError, TimeLimitError, UsageError, VerificationError
from placer.extraction.reading.loading import load_program
from placer.processes import Ending, Outcome

v1 = tf.compat.v1
HOST = "/job:localhost/replica:0/task:0/device:CPU:0"


def write_graph(path, build):
    with tf.Graph().as_default() as graph:
        build()
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return path


def two_devices():
    """y = relu(x + v) where the read of v asks for another device than v."""
    x = v1.placeholder(tf.float32, [None, 2], "x")
    with tf.device("/device:GPU:0"):
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2], shared_name="v", name="v")
    with tf.device("/device:GPU:1"):
        read = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32, name="read")
        tf.nn.relu(tf.add(x, read, name="sum"), name="y")


def test_without_a_plan_the_devices_in_the_file_are_the_request(tmp_path):
    """A read follows its handle, whatever it asks for: the row says so; transfers are listed."""
    found = verify(write_graph(tmp_path / "graph.pb", two_devices), inputs={"x": [[1.0, -9.0]]})
    rows = {row.op: row for row in found.ops}
    assert rows["read"].requested == "GPU:1"
    assert rows["read"].actual == "GPU:0"
    assert rows["read"].code == "colocated_with:v"
    assert rows["y"].actual == "GPU:1"
    assert rows["y"].code == ""
    assert not found.planned
    sent = {(row.tensor, row.source, row.target, row.kind) for row in found.transfers}
    assert sent == {
        ("x:0", "CPU:0", "GPU:1", "feed"),
        ("read:0", "GPU:0", "GPU:1", "data"),
        ("y:0", "GPU:1", "CPU:0", "fetch"),
    }
    assert "made-up values" in found.notes[0]
    found.raise_for_mismatch()


def test_a_session_with_nothing_to_run_is_as_planned(tmp_path):
    """What is fed and fetched at once never enters the graph."""
    path = write_graph(tmp_path / "graph.pb", lambda: v1.placeholder(tf.float32, [2], "x"))
    found = verify(path)
    assert [(row.output, row.equal) for row in found.outputs] == [("x", True)]
    assert found.counts["actual_transfers"] == 0
    found.raise_for_mismatch()


def test_cleared_files_ask_for_nothing(tmp_path):
    """clear removes every device string."""
    out = clear(write_graph(tmp_path / "graph.pb", two_devices), tmp_path / "clear.pb")
    assert {node.device for node in load_program(out).graph_def.node} == {""}


def test_a_plan_for_one_of_two_outputs_applies_to_the_whole_signature(tmp_path):
    """The signature keeps both outputs; transfers that only the other one needs are explained."""

    class Model(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, 4], name="x")])
        def serve(self, x):
            y = tf.nn.relu(x * 2.0)
            return {"a": y + 1.0, "b": tf.reduce_sum(tf.sigmoid(y))}

    model = Model()
    tf.saved_model.save(model, tmp_path / "model", signatures=model.serve)
    program = load_program(tmp_path / "model", outputs=["a"])
    plan = plan_for(program, cut_placement(program, ["GPU:0", "GPU:1"]), batch_size=2)
    plan.model["outputs"] = ["a"]
    out = apply(tmp_path / "model", plan, tmp_path / "placed")
    found = verify(out, plan).raise_for_mismatch()
    assert {row.output for row in found.outputs} == {"a", "b"}
    assert {row.code for row in found.transfers} <= {"", "returned", "not_planned"}


def test_a_model_that_does_not_run_at_all_is_told_apart_from_a_bad_placement(tmp_path):
    """The unplaced program fails first, with TensorFlow's words."""

    def build():
        x = v1.placeholder(tf.float32, [None, 2], "x")
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_sum(x) < 0, ["never"])]):
            tf.identity(x, name="y")

    path = write_graph(tmp_path / "graph.pb", build)
    program = load_program(path)
    plan = plan_for(program, cut_placement(program, ["GPU:0", "GPU:1"]))
    with pytest.raises(ModelError, match=r"(?s)even without a placement.*never"):
        verify(path, plan)


def test_a_run_that_fails_says_which_shapes_were_guessed(tmp_path):
    """x is given, the length of the mask is not: made-up values of two lengths do not fit."""

    def build():
        x = v1.placeholder(tf.float32, [None, None], "x")
        mask = v1.placeholder(tf.float32, [None, None], "mask")
        tf.add(x, mask, "y")

    path = write_graph(tmp_path / "graph.pb", build)
    with pytest.raises(ModelError, match=r"made up \(mask as \[1, 8\]\): give them"):
        verify(path, inputs={"x": [[1.0, 2.0, 3.0]]})


def test_random_ops_without_a_seed_compare_equal(tmp_path):
    """They start from the clock; both runs get the same seeds, different ones for each op."""

    def build():
        x = v1.placeholder(tf.float32, [4], "x")
        tf.add(x, tf.raw_ops.RandomUniform(shape=[4], dtype=tf.float32, name="a"), name="y")
        tf.raw_ops.RandomUniform(shape=[4], dtype=tf.float32, name="b")
        tf.raw_ops.RandomUniform(shape=[4], dtype=tf.float32, seed=7, name="seeded")

    path = write_graph(tmp_path / "graph.pb", build)
    program = load_program(path)
    plan = plan_for(program, cut_placement(program, ["GPU:0", "GPU:1"]))
    found = verify(path, plan).raise_for_mismatch()
    assert "2 random ops have no seed" in found.notes[0]
    graph_def = program.graph_def
    assert seed_random_ops(graph_def) == 2
    assert len({node.attr["seed2"].i for node in graph_def.node if node.op == "RandomUniform"}) == 3
    assert seed_random_ops(graph_def) == 0


def test_a_program_that_never_ends_is_stopped_with_the_reason(tmp_path):
    """An empty queue blocks the unplaced program, so it is no fault of the placement."""

    def build():
        queue = tf.raw_ops.FIFOQueueV2(component_types=[tf.float32], name="queue")
        value = tf.raw_ops.QueueDequeueV2(
            handle=queue, component_types=[tf.float32], name="queue_dequeue"
        )
        tf.identity(value[0], name="y")

    path = write_graph(tmp_path / "graph.pb", build)
    told = (
        r"did not run to its end within 6 s even without.*\(at queue_dequeue \(QueueDequeueV2\)\)"
    )
    with pytest.raises(TimeLimitError, match=told):
        verify(path, time_limit_seconds=6)


def test_a_placed_program_that_does_not_end_is_a_mismatch(monkeypatch):
    """The unplaced one had run when the time was over."""
    told = verification_process._UNPLACED_RAN
    late = Outcome(ending=Ending.LATE, answer=told, reason="it took more than 6 seconds")
    monkeypatch.setattr(verification_process, "run_task", lambda *_: late)
    with pytest.raises(VerificationError, match="ran without the placement, but with it"):
        run_in_child(RunRequest(kind="graph", programs=("", "")))


def test_wrong_inputs_and_plans_are_usage_errors(tmp_path):
    """An unknown input key, too few values, and a plan of another graph."""
    path = write_graph(tmp_path / "graph.pb", two_devices)
    program = load_program(path)
    plan = plan_for(program, cut_placement(program, ["GPU:0", "GPU:1"]))
    with pytest.raises(UsageError, match="no input 'z'; the inputs are x"):
        verify(path, plan, {"z": [1.0]})
    with pytest.raises(UsageError, match=r"the model takes 1 input .*got 2 values"):
        verify(path, plan, [[1.0], [2.0]])
    plan.model["fingerprint"] = "other"
    with pytest.raises(UsageError, match=r"made for another program: .* have the planned names"):
        verify(path, plan)
    with pytest.raises(UsageError, match="on_hardware=True"):
        verify(path, on_hardware=True)


def test_outputs_are_compared_bit_by_bit_unless_told_otherwise():
    """NaN equals NaN, strings have no distance, a tolerance is for accelerators only."""
    placed = {"a": np.float32([1.0, np.nan]), "s": np.array([b"x"], object), "t": np.ones(2)}
    unplaced = {"a": np.float32([1.0001, np.nan]), "s": np.array([b"x"], object), "t": np.ones(3)}
    a, s, t = compare_outputs(placed, unplaced)
    assert not a.equal
    assert a.max_absolute_difference == pytest.approx(1e-4, rel=1e-2)
    assert s.equal
    assert s.max_absolute_difference is None
    assert not t.equal
    assert compare_outputs({"a": np.float32([1.0])}, {"a": np.float32([1.0001])}, 1e-3)[0].equal


def test_sums_of_three_may_be_added_in_another_order():
    """``AddN`` of two adds the same two either way; in a function's body as well."""
    graph_def = tf.compat.v1.GraphDef()
    assert sums_in_one_order(graph_def)
    graph_def.node.add(name="sum", op="AddN", input=["a", "b", "^c"])
    assert sums_in_one_order(graph_def)
    inside = tf.compat.v1.GraphDef()
    inside.library.function.add().node_def.add(name="sum", op="AddN", input=["a", "b", "c"])
    assert not sums_in_one_order(inside)
    graph_def.node.add(name="more", op="AddN", input=["a", "b", "c"])
    assert not sums_in_one_order(graph_def)


def test_what_has_no_distance_is_told_and_can_be_written():
    """NaN equals NaN at no distance; a number beside NaN or infinity is unequal without one."""
    nan, infinity = float("nan"), float("inf")
    other, same, tall = compare_outputs(
        {"same": np.array([1.0, nan]), "other": np.array([1.0]), "tall": np.array([infinity])},
        {"same": np.array([1.0, nan]), "other": np.array([nan]), "tall": np.array([2.0])},
    )
    assert (same.equal, same.max_absolute_difference, same.max_relative_difference) == (True, 0, 0)
    for row in (other, tall):
        assert not row.equal
        assert row.max_absolute_difference is None
        assert row.max_relative_difference is None


@pytest.mark.parametrize(
    "model", ["basic-pitch", "guesslang", "tfnet-lstm-savedmodel"], ids=lambda name: name
)
def test_real_models_run_as_predicted_on_three_devices(test_data, model, tmp_path):
    """Applied and run: ops and variables in place, transfers as the definition says, equal."""
    source = test_data / "graphs" / model
    program = load_program(source)
    plan = plan_for(program, cut_placement(program, ["GPU:0", "GPU:1", "GPU:2"]), batch_size=2)
    found = verify(apply(source, plan, tmp_path / "placed"), plan).raise_for_mismatch()
    assert {row.code for row in found.ops} == {""}
    assert {row.code for row in found.transfers} <= {"", "returned"}
    assert found.counts["matched_variables"] == len(program.variables) > 0
    assert all(row.equal and row.all_finite for row in found.outputs)


def test_live_functions_that_draw_numbers_are_verified():
    """Ops without a seed get the same one in both runs, as those of files do."""

    @tf.function(input_signature=[tf.TensorSpec([4, 3], tf.float32, "x")])
    def noisy(x):
        return x + tf.raw_ops.RandomStandardNormal(shape=[4, 3], dtype=tf.float32)

    program = load_program(noisy)
    found = verify(noisy, plan_for(program, cut_placement(program, ["GPU:0", "GPU:1"])))
    found.raise_for_mismatch()
    assert any("1 random ops have no seed" in note for note in found.notes)


def test_values_of_placeholders_that_nothing_reads_are_left_out(tmp_path):
    """Labels that stayed in an inference graph are no input of it; other names are refused."""

    def build():
        x = v1.placeholder(tf.float32, [2], "x")
        v1.placeholder(tf.int32, [2], "labels")
        tf.identity(x, name="y")

    path = write_graph(tmp_path / "graph.pb", build)
    given = {"x": [1.0, 2.0], "labels": [0, 1]}
    verify(path, inputs=given).raise_for_mismatch()
    with pytest.raises(UsageError, match="no input 'label'"):
        verify(path, inputs={"label": [0, 1]})


FOREIGN_TYPE = """
import sys
import tensorflow as tf
from tensorflow.python.framework import composite_tensor, type_spec_registry


class Pair(composite_tensor.CompositeTensor):
    def __init__(self, value):
        self.value = value

    _type_spec = property(lambda self: PairSpec(self.value.shape, self.value.dtype))


@type_spec_registry.register("elsewhere.PairSpec")
class PairSpec(tf.TypeSpec):
    value_type = Pair
    _component_specs = property(lambda self: tf.TensorSpec(self.shape, self.dtype))

    def __init__(self, shape, dtype):
        self.shape, self.dtype = shape, dtype

    def _serialize(self):
        return self.shape, self.dtype

    def _to_components(self, value):
        return value.value

    def _from_components(self, value):
        return Pair(value)


model = tf.Module()
model.w = tf.Variable(tf.ones([4, 2]))
spec = tf.TensorSpec([None, 4], tf.float32, name="x")
model.pair = tf.function(lambda x: Pair(x @ model.w), input_signature=[spec])
model.pair.get_concrete_function()
act = tf.function(lambda x: {"action": x @ model.w}, input_signature=[spec])
tf.saved_model.save(model, sys.argv[1], signatures=act)
"""


def test_a_model_with_types_of_another_package_is_verified_by_its_graph(tmp_path):
    """``tf.saved_model.load`` refuses it, a session does not; the result says how it was run."""
    path = tmp_path / "policy"
    assert run_python(["-c", FOREIGN_TYPE, path]).returncode == 0
    program = load_program(path)
    plan = plan_for(program, cut_placement(program, ["GPU:0", "GPU:1"]), batch_size=3)
    found = verify(path, plan)
    found.raise_for_mismatch()
    assert any("lacks a type that the model's objects have" in note for note in found.notes)
    assert {row.op for row in found.ops} == set(plan.placement)
