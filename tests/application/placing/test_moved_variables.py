"""Bound models: variables are where the plan has them and nowhere else, and come home."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import placer
from placer.application.placing import moved_variables
from placer.errors import UsageError
from placer.extraction.reading.training_steps import keras_variables

layers = keras.layers
X = np.random.default_rng(0).normal(size=(16, 12)).astype("float32")
Y = np.random.default_rng(1).normal(size=(16, 3)).astype("float32")
FIT = {"batch_size": 8, "verbose": 0, "shuffle": False}
HALVES = {"*first*": "GPU:0", "*second*": "GPU:1"}


class Scaled(layers.Layer):
    """Multiplies by a plain ``tf.Variable``, which Keras does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = tf.Module()
        self.inside.scale = tf.Variable(tf.ones([3]) * 2.0, name="scale")

    def call(self, values):
        """Scaled values; each call adds one to the scale."""
        self.inside.scale.assign_add(tf.ones([3]))
        return values * self.inside.scale


@pytest.fixture(scope="module", autouse=True)
def unoptimised():
    """Graph optimisation fuses ops that share a device, which rounds otherwise: off, for bits."""
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    yield
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})


def built(*extra):
    keras.utils.clear_session()
    keras.utils.set_random_seed(1)
    parts = [layers.Dense(64, "relu", name="first"), layers.Dense(3, name="second"), *extra]
    model = keras.Sequential([keras.Input((12,)), *parts])
    model.compile("adam", "mse", jit_compile=False)
    return model


def planned(model):
    step = placer.training_step(model, (X, Y))
    return placer.place(step, "2xGPU:1GiB", batch_size=8, pins=HALVES, time_limit=1)


@pytest.fixture(scope="module")
def plan():
    return planned(built())


def live_variables() -> list[Any]:
    gc.collect()
    return [thing for thing in gc.get_objects() if issubclass(type(thing), tf.Variable)]


def on_device(name: str, but: Iterable[Any]) -> int:
    """Bytes that live variables hold on a device, but for some."""
    apart = {id(variable) for variable in but}
    kept = {}
    for thing in live_variables():
        if id(thing) not in apart and thing.device.endswith(name):
            kept[id(thing.handle)] = thing.read_value().numpy().nbytes
    return sum(kept.values())


def test_tracing_a_step_makes_no_slots():
    """After training_step the optimizer is as it was; the step has slots of its own, on the host,
    and runs."""
    model = built()
    step = placer.training_step(model, (X, Y))
    assert not model.optimizer.built
    assert len(model.optimizer.variables) == 2
    slots = [v for v in step.optimizer.variables if len(v.shape)]
    assert len(slots) == 8
    assert {v.value.device[-5:] for v in slots} == {"CPU:0"}
    before = model.layers[0].kernel.numpy()
    step((tf.constant(X[:8]), tf.constant(Y[:8])))
    assert not np.array_equal(before, model.layers[0].kernel.numpy())


def test_an_optimizer_that_the_step_has_from_elsewhere_is_found():
    """A train_step with the optimizer from a global is traced with the slots that it made."""
    optimizer = keras.optimizers.Adam()

    class Model(keras.Sequential):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = self.compute_loss(x, y, self(x, training=True))
            gradients = tape.gradient(loss, self.trainable_variables)
            optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
            return {"loss": loss}

    model = Model([keras.Input((12,)), layers.Dense(3)])
    model.compile(optimizer, "mse", jit_compile=False)
    step = placer.training_step(model, (X, Y))
    assert optimizer.built
    batch = tf.constant(X[:8]), tf.constant(Y[:8])
    assert float(step(batch)["loss"]) > float(step(batch)["loss"])


def test_nothing_stays_at_home_and_all_comes_back(plan):
    """While bound each device has what the plan says, weights and slots; what is saved inside of
    the block is the trained model; losses are those of plain Keras."""
    plain = built()
    expected = plain.fit(X, Y, epochs=3, **FIT).history["loss"]
    before = live_variables()  # what tests before have left may still move
    model = built()
    originals = [variable.value for variable in model.weights]
    handles = [variable.handle for variable in originals]
    with plan.bind(model) as bound:
        assert model.fit(X, Y, epochs=3, **FIT).history["loss"] == expected
        found = {
            v.path: bound._variables.mapping.planned(v.value.device) for v in keras_variables(model)
        }
        assert {name: found[name] for name in plan.variables} == plan.variables
        resident = {row.name: row.resident_bytes for row in plan.devices}
        for stand_in, name in (("CPU:1", "GPU:0"), ("CPU:2", "GPU:1")):
            there = [v for v in keras_variables(model) if plan.variables.get(v.path) == name]
            held = on_device(stand_in, but=before)
            assert held == sum(v.numpy().nbytes for v in there)
            # The plan counts constants as well, which a search may put here or there
            assert resident[name] - 256 <= held <= resident[name]
        del before
        inside = model.get_weights()
    assert [variable.value for variable in model.weights] == originals
    assert all(v.handle is handle for v, handle in zip(originals, handles, strict=True))
    for ours, theirs in zip(keras_variables(model), keras_variables(plain), strict=True):
        assert np.array_equal(ours.numpy(), theirs.numpy()), ours.path
    for value, kept in zip(model.get_weights(), inside, strict=True):
        assert np.array_equal(value, kept)
    home = {v.value.device for v in model.weights}
    assert {v.value.device for v in model.optimizer.variables} == home
    assert model.fit(X, Y, **FIT).history == plain.fit(X, Y, **FIT).history


def test_functions_traced_before_are_traced_again_or_refuse(plan):
    """A tf.function follows the variables in and out of the block; a ConcreteFunction, which
    cannot, says so."""
    model = built()
    batch = tf.constant(X)
    outputs = tf.function(lambda x: model(x, training=False))
    held = outputs.get_concrete_function(batch)
    outputs(batch)
    with plan.bind(model):
        model.fit(X, Y, **FIT)
        inside = outputs(batch).numpy()
        assert np.array_equal(inside, model(batch, training=False).numpy())
        with pytest.raises(UsageError, match="traced before the model was bound"):
            held(batch)
        later = outputs.get_concrete_function(batch)
    assert np.allclose(held(batch).numpy(), inside, rtol=1e-6)
    assert np.allclose(outputs(batch).numpy(), inside, rtol=1e-6)
    with pytest.raises(UsageError, match="traced while the model was bound"):
        later(batch)


def test_an_error_in_the_block_loses_nothing(plan):
    """Variables come back with what was trained until then."""
    model = built()
    inside = []

    def train_and_fail():
        with plan.bind(model):
            model.fit(X, Y, **FIT)
            inside.extend(model.get_weights())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train_and_fail()
    for value, kept in zip(model.get_weights(), inside, strict=True):
        assert np.array_equal(value, kept)
    assert model.optimizer.iterations == 2


def test_variables_without_a_way_home_stay_on_the_host(plan, monkeypatch, caplog):
    """Where a value finds no room at home it is on the host, with a warning, and not lost."""
    with tf.device("CPU:1"):
        model = built()
    assign = tf.raw_ops.AssignVariableOp

    def full(*, resource, value, **settings):
        if value.shape == (64, 3):
            raise tf.errors.ResourceExhaustedError(None, None, "no room")
        return assign(resource=resource, value=value, **settings)

    with plan.bind(model):
        model.fit(X, Y, **FIT)
        inside = model.get_weights()
        monkeypatch.setattr(moved_variables.tf.raw_ops, "AssignVariableOp", full)
    monkeypatch.undo()
    assert "on the host now" in caplog.text
    assert model.layers[1].kernel.value.device.endswith("CPU:0")
    for value, kept in zip(model.get_weights(), inside, strict=True):
        assert np.array_equal(value, kept)


def test_variables_that_keras_does_not_know_move_too():
    """A tf.Variable of a layer is on its planned device; who holds it sees what the step wrote."""
    model = built(Scaled())
    plan = placer.place(
        placer.training_step(model, (X, Y)),
        "2xGPU:1GiB",
        batch_size=8,
        pins={**HALVES, "*scale*": "GPU:1"},
        time_limit=1,
    )
    plain = built(Scaled())
    expected = plain.fit(X, Y, **FIT).history
    model = built(Scaled())
    scale = model.layers[2].inside.scale
    with plan.bind(model):
        assert model.fit(X, Y, **FIT).history == expected
        assert scale.device.endswith("CPU:2")
        assert scale.numpy().tolist() == [4.0, 4.0, 4.0]
    assert scale.device.endswith("CPU:0")
    assert scale.numpy().tolist() == [4.0, 4.0, 4.0]
