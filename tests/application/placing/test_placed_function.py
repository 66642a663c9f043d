import gc

import numpy as np
import pytest
import tensorflow as tf
from placements import cut_placement, plan_for

from placer import apply, verify
from placer.errors import UsageError, VerificationError
from placer.extraction.reading.loading import load_program

DEVICES = ["GPU:0", "GPU:1"]


class Trainer(tf.Module):
    """A training step with state of several kinds, control flow, a table and dropout."""

    def __init__(self):
        super().__init__()
        self.w = tf.Variable(tf.random.stateless_normal([4, 4], [1, 2]), name="w")
        self.v = tf.Variable(tf.random.stateless_normal([4, 4], [3, 4]), name="v")
        self.steps = tf.Variable(0, dtype=tf.int64, name="steps")
        self.label = tf.Variable("none", name="label")
        pairs = tf.lookup.KeyValueTensorInitializer(["a", "b"], [1.0, 2.0])
        self.table = tf.lookup.StaticHashTable(pairs, 0.5)
        self.scale = tf.constant([1.0, 0.5, 0.25, 2.0])

    @tf.function
    def layer(self, x, weight):
        return tf.nn.relu(x @ weight) * self.scale

    @tf.function(
        input_signature=[
            {"x": tf.TensorSpec([None, 4]), "key": tf.TensorSpec([None], tf.string)},
        ]
    )
    def step(self, batch):
        with tf.GradientTape() as tape:
            y = self.layer(self.layer(batch["x"], self.w), self.v)
            _, y = tf.while_loop(
                lambda i, _: i < 2, lambda i, a: (i + 1, tf.tanh(a @ self.v)), [0, y]
            )
            y = tf.nn.experimental.stateless_dropout(y, 0.3, [7, tf.cast(self.steps, tf.int32)])
            y = tf.cond(self.steps > 1, lambda: y + self.w[0], lambda: y)
            weight = self.table.lookup(batch["key"])
            loss = tf.reduce_mean(tf.reduce_sum(y * y, axis=1) * weight)
        gradients = tape.gradient(loss, [self.w, self.v])
        for variable, gradient in zip([self.w, self.v], gradients, strict=True):
            variable.assign_sub(0.1 * gradient)
        self.steps.assign_add(1)
        self.label.assign("trained")
        return {"loss": loss, "out": (y, None)}


def batch(seed):
    x = np.random.default_rng(seed).random([5, 4], np.float32)
    return {"x": tf.constant(x), "key": tf.constant(["a", "b", "c", "a", "b"])}


@pytest.fixture
def trainer():
    return Trainer()


@pytest.fixture
def function(trainer):
    return trainer.step.get_concrete_function()


@pytest.fixture
def plan(function):
    program = load_program(function)
    return plan_for(program, cut_placement(program, DEVICES), batch_size=5)


def test_three_training_steps_are_the_same_bit_for_bit(trainer, function, plan):
    """Same structure, same losses, same variables; the originals stay as they were."""
    placed = apply(function, plan)
    before = [variable.numpy() for variable in trainer.variables]
    copies = {variable.name: variable.copy for variable in placed.moved}
    results = [placed(batch(seed)) for seed in range(3)]
    for variable, value in zip(trainer.variables, before, strict=True):
        assert np.array_equal(variable.numpy(), value)
    for seed, result in enumerate(results):
        expected = function(batch(seed))
        tf.nest.assert_same_structure(result, expected)
        assert result["loss"].numpy() == expected["loss"].numpy()
        assert np.array_equal(result["out"][0].numpy(), expected["out"][0].numpy())
    for name in ("w", "v", "steps", "label"):
        assert np.array_equal(copies[name].numpy(), getattr(trainer, name).numpy())


def test_variables_live_where_the_plan_says_and_can_be_copied_back(trainer, function, plan):
    """Each copy is on the stand-in of its planned device; copy_back brings the values home."""
    placed = apply(function, plan)
    found = {v.name: placed.mapping.planned(v.copy.device) for v in placed.moved}
    assert found == {name: plan.variables[name] for name in found}
    assert set(found) == {"w", "v", "steps", "label"}
    placed(batch(0))
    assert trainer.steps.numpy() == 0
    placed.copy_back()
    assert trainer.steps.numpy() == 1
    assert trainer.label.numpy() == b"trained"


def test_it_runs_as_planned_in_this_process_and_leaves_the_variables_alone(trainer, function, plan):
    """Every op and transfer is where the plan says; two verifications give the same result."""
    placed = apply(function, plan)
    placed(batch(0))
    for _ in range(2):
        found = verify(placed, plan)
        assert not found.raise_for_mismatch().applied
        assert not [row for row in found.ops if row.code and row.code != "fed"]
        assert {row.code for row in found.transfers} <= {"", "returned"}
        assert all(row.equal for row in found.outputs)
    assert trainer.steps.numpy() == 0
    assert [v.copy.numpy() for v in placed.moved if v.name == "steps"] == [1]


def test_another_process_rebuilds_a_function_that_needs_more_devices():
    """Five GPUs are more than this process has: the same function runs in a fresh one."""
    weight = tf.Variable(tf.eye(4) * 0.5)

    @tf.function(input_signature=[tf.TensorSpec([None, 4], name="x")])
    def function(x):
        for _ in range(4):
            x = tf.nn.relu(x @ weight + 1.0)
        return x

    program = load_program(function)
    plan = plan_for(program, cut_placement(program, [f"GPU:{i}" for i in range(5)]), batch_size=2)
    found = verify(function, plan).raise_for_mismatch()
    assert found.rehearsed
    assert found.applied
    assert {row.actual for row in found.ops} >= {"GPU:0", "GPU:4"}
    assert all(row.equal for row in found.outputs)


def test_a_rehearsal_leaves_a_process_in_which_onednn_merges_ops(monkeypatch):
    """With oneDNN on, a placed function is rebuilt elsewhere, from the values it has by now."""
    monkeypatch.setattr("placer.application.verifying.live_verification.merges_ops", lambda: True)
    counter = tf.Variable(1.0)

    @tf.function(input_signature=[tf.TensorSpec([2], name="x")])
    def function(x):
        return x * counter.assign_add(1.0)

    program = load_program(function)
    plan = plan_for(program, cut_placement(program, DEVICES))
    placed = apply(function, plan)
    placed(tf.ones([2]))
    placed(tf.ones([2]))
    found = verify(placed, plan, [[1.0, 2.0]]).raise_for_mismatch()
    assert found.variables[0].actual == plan.variables[found.variables[0].variable]
    assert placed.variables[0].numpy() == 3.0


def test_resources_that_cannot_leave_the_process_are_said_with_the_next_step(function):
    """The lookup table exists only here; five GPUs are too many for this process."""
    program = load_program(function)
    plan = plan_for(program, cut_placement(program, [f"GPU:{i}" for i in range(5)]))
    with pytest.raises(UsageError, match=r"cpu_devices\(5\)"):
        verify(function, plan)


def test_gradients_flow_through_a_placed_function():
    """A tape watches the copied variable, and the gradient is the original's."""
    weight = tf.Variable([[2.0, 1.0], [0.0, 3.0]])

    @tf.function(input_signature=[tf.TensorSpec([2, 2])])
    def function(x):
        return tf.reduce_sum(tf.sigmoid(x @ weight))

    program = load_program(function)
    placed = apply(function, plan_for(program, cut_placement(program, DEVICES)))
    x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    with tf.GradientTape(persistent=True) as tape:
        expected, result = function(x), placed(x)
    wanted = tape.gradient(expected, weight)
    (copy,) = placed.variables
    assert np.array_equal(tape.gradient(result, copy).numpy(), wanted.numpy())


def test_jit_compiled_functions_are_refused():
    """XLA would erase the placement; the message says what to do."""

    @tf.function(jit_compile=True, input_signature=[tf.TensorSpec([2])])
    def function(x):
        return x + 1.0

    program = load_program(function)
    with pytest.raises(UsageError, match="jit_compile=False"):
        apply(function, plan_for(program, cut_placement(program, DEVICES)))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"out": "placed"}, "writes no file: leave out 'placed'"),
        ({"rehearse": True}, "for files"),
        ({"force": True}, "no file is written"),
        ({"drop_unused": True}, "is for SavedModels"),
    ],
)
def test_what_has_no_effect_on_a_function_is_refused(function, plan, settings, told):
    """A file of it would have been written, somebody thought."""
    with pytest.raises(UsageError, match=told):
        apply(function, plan, **settings)


def test_strict_switches_soft_placement_off_for_the_call_only():
    """Inside a strict call it is off, afterwards it is what it was."""
    seen = []

    @tf.function(input_signature=[tf.TensorSpec([2])])
    def function(x):
        return x + 1.0

    program = load_program(function)
    plan = plan_for(program, cut_placement(program, DEVICES))
    placed = apply(function, plan, strict=True)
    inner = placed.concrete_function
    placed.concrete_function = lambda x: (
        seen.append(tf.config.get_soft_device_placement()),
        inner(x),
    )
    placed(tf.constant([1.0, 2.0]))
    assert seen == [False]
    assert tf.config.get_soft_device_placement()


def test_an_op_on_the_wrong_device_is_a_mismatch():
    """A plan that was tampered with after it was applied does not pass."""

    @tf.function(input_signature=[tf.TensorSpec([2], name="x")])
    def function(x):
        return tf.nn.relu(x * 2.0)

    program = load_program(function)
    placement = cut_placement(program, DEVICES)
    placed = apply(function, plan_for(program, placement))
    swapped = {"GPU:0": "GPU:1", "GPU:1": "GPU:0", "CPU:0": "CPU:0"}
    other = plan_for(program, {op: swapped[device] for op, device in placement.items()})
    found = verify(placed, other)
    assert found.counts["off_device"]["unexplained"] > 0
    with pytest.raises(VerificationError, match="asked to run on GPU"):
        found.raise_for_mismatch()


def test_a_forgotten_placed_function_leaves_no_functions_behind(function, plan):
    """Bodies are registered in TensorFlow's context only as long as the function lives."""
    from tensorflow.python.eager import context

    placed = apply(function, plan)
    names = [
        f.signature.name for f in placed.concrete_function.graph.as_graph_def().library.function
    ]
    registered = [name for name in names if "_placed_" in name]
    assert registered
    assert all(context.context().has_function(name) for name in registered)
    del placed
    gc.collect()
    assert not any(context.context().has_function(name) for name in registered)
