"""Replicas with their own variables: the losses of MirroredStrategy, and equal variables."""

import re
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import keras
import keras_models
import numpy as np
import pytest
import tensorflow as tf
from fuzzing.warm_children import run_python
from keras_models import BATCH, fresh
from tensorflow.python.eager import context

import placer
from placer.application.binding.model_binding import BoundStep, bind_model
from placer.errors import UsageError
from placer.extraction.reading.training_steps import batch_specs, trace_step
from placer.graph.tensor_names import source_of
from placer.strategies.keras_replicas import divided_train_step
from placer.strategies.keras_steps import with_gradients
from placer.strategies.requests import TrainingDivision, read_strategy

layers = keras.layers
TWO = (("GPU:0",), ("GPU:1",))
EVEN = TrainingDivision(replicas=TWO, replicated=True)
UNEVEN = TrainingDivision(replicas=TWO, replicated=True, speeds=(1.0, 3.0))
FIT = {"batch_size": BATCH, "verbose": 0, "shuffle": False}


@cache
def planned(build, division=EVEN):
    """The plan of the step of such a model in replicated replicas, and how to run it."""
    model, x, y = fresh(build)
    method = partial(divided_train_step, division=division)
    step = trace_step(model, batch_specs((x, y)), "train_step", method(model))
    plan = placer.place(step, "2xT4", batch_size=BATCH, work_limit=2, time_limit=60)
    return plan, BoundStep(method=method, parts=division.parts, adapts=True)


def bound(model, build, division=EVEN):
    """The block in which the model, which ``build`` made, trains so."""
    plan, step = planned(build, division)
    return bind_model(plan, model, step=step)


def dense():
    """Two layers, and a frozen one between them; an optimizer with slots."""
    middle = layers.Dense(16, activation="tanh", trainable=False)
    model = keras.Sequential([keras.Input((24,)), layers.Dense(16), middle, layers.Dense(5)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-2), loss, jit_compile=False)
    return model, *keras_models.functional()[1:]


def gathered():
    """An optimizer that applies every second gradient, and averages the weights over steps."""
    model, x, y = keras_models.functional()
    kept = {"gradient_accumulation_steps": 2, "use_ema": True, "ema_overwrite_frequency": 3}
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-2, **kept), loss, jit_compile=False)
    return model, x, y


def replicas_of(block):
    """(name, value, value of the other replica) of every replicated variable."""
    return [
        (first.name, first.numpy(), other.numpy())
        for first, others in block._variables.replicas.pairs()
        for other in others
    ]


def require_alike(block):
    pairs = replicas_of(block)
    assert pairs
    for name, first, other in pairs:
        np.testing.assert_array_equal(first, other, err_msg=name)


def test_twenty_losses_are_those_of_mirrored_strategy():
    """The same model, batches and optimizer under TensorFlow's own data parallelism."""
    model, x, y = fresh(dense)
    x, y = x[:BATCH], y[:BATCH]
    with bound(model, dense) as block:
        ours = [float(model.train_on_batch(x, y)) for _ in range(20)]
        require_alike(block)
    weights = fresh(dense)[0].get_weights()

    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        mirrored = dense()[0]
    mirrored.set_weights(weights)
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH).repeat(20)
    losses = []
    keep = keras.callbacks.LambdaCallback(on_batch_end=lambda _, logs: losses.append(logs["loss"]))
    mirrored.fit(batches, epochs=1, verbose=0, shuffle=False, callbacks=[keep])
    means = np.cumsum(ours) / np.arange(1, 21)  # fit tells the mean of the epoch so far
    np.testing.assert_allclose(means, losses, rtol=1e-5)


@pytest.mark.parametrize(
    ("build", "division"),
    [(keras_models.functional, EVEN), (keras_models.functional, UNEVEN), (gathered, UNEVEN)],
    ids=["even", "uneven", "gathered"],
)
def test_training_is_that_of_keras_with_clipping_and_a_smaller_last_batch(build, division):
    """Gradients are weighted by examples before they are clipped by the norm of all of them; a last
    batch of one example, which cannot be divided, changes all replicas too; so does what the
    optimizer keeps of gradients and weights."""
    plain, x, y = fresh(build)
    expected = plain.fit(x[:65], y[:65], epochs=2, **FIT).history
    model, x, y = fresh(build)
    with bound(model, build, division) as block:
        found = model.fit(x[:65], y[:65], epochs=2, **FIT).history
        require_alike(block)
    for name, values in expected.items():
        assert found[name] == pytest.approx(values, rel=1e-4), name
    for ours, theirs in zip(model.weights, plain.weights, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-3, atol=1e-5)


def test_partition_graphs_show_collectives_and_no_weights():
    """What TensorFlow runs: one all-reduce per device, and no tensor of a weight's shape sent."""
    plan, step = planned(dense)
    model, x, y = fresh(dense)
    data = tf.constant(x[:BATCH]), tf.constant(y[:BATCH])
    with bind_model(plan, model, step=step) as block:
        function = block.placed("train_step", data)
        context.enable_run_metadata()
        try:
            function(data)
        finally:
            metadata = context.export_run_metadata()
            context.disable_run_metadata()
    graphs = [graph for found in metadata.function_graphs for graph in found.partition_graphs]
    nodes = [node for graph in graphs for node in graph.node]
    rings = [node for node in nodes if node.op == "CollectiveReduce"]
    assert len(rings) == len({node.device for node in rings}) == 2
    sent = {source_of(node.input[0]) for node in nodes if node.op == "_Send"}
    crossing = [row for row in plan.transfers if row.kind == "data"]
    assert sent == {source_of(row.tensor) for row in crossing}
    assert all(row.bytes == 4 for row in crossing if row.source != "CPU:0")  # metrics are shared
    # 2 (n - 1) / n of the gradients' bytes per device: here each sends them once
    trained = sum(int(np.prod(v.shape)) for v in model.trainable_variables)
    assert plan.metrics.collective_bytes == 2 * 4 * trained


def test_what_is_assigned_from_outside_is_assigned_to_all(tmp_path):
    """Weights that are loaded, a learning rate that a callback changes, a checkpoint restored."""
    model, x, y = fresh(dense)
    with bound(model, dense) as block:
        model.fit(x, y, **FIT)
        model.save_weights(tmp_path / "early.weights.h5")
        prefix = tf.train.Checkpoint(model=model).save(tmp_path / "early")
        early = model.get_weights()
        model.optimizer.learning_rate = 0.5
        require_alike(block)
        model.fit(x, y, **FIT)
        require_alike(block)
        assert not np.allclose(early[0], model.get_weights()[0])
        model.load_weights(tmp_path / "early.weights.h5")
        require_alike(block)
        model.fit(x, y, **FIT)
        tf.train.Checkpoint(model=model).restore(prefix).expect_partial()
        np.testing.assert_array_equal(early[0], model.get_weights()[0])
        require_alike(block)
        model.fit(x, y, **FIT)
        require_alike(block)
        inside = model.get_weights()
    for ours, theirs in zip(model.get_weights(), inside, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert not any("assign" in vars(v._value) for v in model.variables)


def test_a_failure_in_one_replica_ends_the_step():
    """The other replica waits in the ring; it is told, and so is who goes on.  In a process of its
    own: TensorFlow closes the collectives of the whole process."""
    script = Path(__file__).with_name("failing_replica.py")
    ended = run_python([script])
    assert ended.returncode == 0, ended.stderr[-3000:]
    first, *others = ended.stdout.splitlines()[-3:]
    assert re.match("InvalidArgumentError.* the values", first)
    for told in others:
        assert re.match("PlacerError.* start again from the last checkpoint", told)


def test_sparse_gradients_are_refused():
    """With what to use instead, before any replica is built too; so is the strategy for a file."""
    model, x, y = fresh(keras_models.embedded)
    _, told = with_gradients(model, lambda: trace_step(model, batch_specs((x, y)), "train_step"))
    assert "is sparse" in told
    method = divided_train_step(model, EVEN)
    with pytest.raises(UsageError, match=r"is sparse.*use replicas"):
        trace_step(model, batch_specs((x, y)), "train_step", method)
    with pytest.raises(UsageError, match="a Keras training step"):
        read_strategy("all-reduce:2")


def test_two_replicas_on_one_device_are_refused():
    """They would wait for each other in the ring until it times out."""
    plan, step = planned(dense)
    model, x, y = fresh(dense)
    placement = {op: name.replace("GPU:1", "GPU:0") for op, name in plan.placement.items()}
    variables = {op: name.replace("GPU:1", "GPU:0") for op, name in plan.variables.items()}
    merged = replace(plan, placement=placement, variables=variables)
    with (
        bind_model(merged, model, step=step),
        pytest.raises(UsageError, match="a device of its own"),
    ):
        model.train_on_batch(x[:BATCH], y[:BATCH])


CLUSTER = """
[default_link]
bandwidth = 8e7
latency = 1e-5

[[device]]
name = "GPU:0"
type = "GPU"
memory = "1GiB"
peak_flops = 1e9
memory_bandwidth = 1e10
launch_seconds = 1e-6

[[device]]
name = "GPU:1"
type = "GPU"
memory = "1GiB"
peak_flops = 1e9
memory_bandwidth = 1e10
launch_seconds = 1e-6
"""


@pytest.mark.slow
def test_auto_takes_all_reduce_where_it_is_faster(tmp_path):
    """Slow links: weights there and gradients back take longer than one ring of the gradients."""
    (tmp_path / "slow.toml").write_text(CLUSTER)
    plain, x, y = fresh(wide)
    expected = plain.fit(x, y, epochs=2, **FIT).history
    model, x, y = fresh(wide)
    settings = {"batch_size": BATCH, "work_limit": 2, "time_limit": 60}
    auto = placer.auto(model, tmp_path / "slow.toml", for_="latency", **settings)
    assert auto.chosen == "all-reduce:2", auto.summary()
    steps = {row.name: row.step_seconds for row in auto.rows}
    assert steps["all-reduce:2"] < 0.9 * steps["replicas:2"]
    # every device has all weights, and the ring's time is in the step
    weights = 4 * sum(int(np.prod(v.shape)) for v in model.trainable_variables)
    assert all(auto.row.required_bytes[name] > weights for name in ("GPU:0", "GPU:1"))
    assert steps["all-reduce:2"] > weights / 8e7
    with auto.bind(model) as block:
        found = model.fit(x, y, epochs=2, **FIT).history
        require_alike(block)
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-4)


def wide():
    """More weights than a small batch makes work for."""
    hidden = [layers.Dense(256, activation="relu") for _ in range(5)]
    model = keras.Sequential([keras.Input((24,)), *hidden, layers.Dense(5)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(1e-2), loss, jit_compile=False)
    return model, *keras_models.functional()[1:]
