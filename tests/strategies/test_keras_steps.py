"""A Keras training step in parts: the same as the whole, or refused before anything is updated."""

import logging
from functools import partial

import keras
import keras_models
import numpy as np
import pytest
import tensorflow as tf
from keras_models import BATCH, fresh

import placer
from placer.application.binding.model_binding import BoundStep, bind_model
from placer.errors import UsageError
from placer.extraction.reading.loading import load_program
from placer.extraction.reading.training_steps import batch_specs, model_specs, trace_step
from placer.strategies.batches import sizes_by
from placer.strategies.keras_replicas import divided_train_step
from placer.strategies.keras_steps import written_state
from placer.strategies.requests import TrainingDivision
from placer.strategies.same_training import check_parts

layers = keras.layers
UNEVEN = TrainingDivision(replicas=(("GPU:0",), ("GPU:1",)), speeds=(1.0, 3.0))
PIECES = TrainingDivision(pieces=3)


def bound(model, data, division):
    """The block in which the model trains in parts."""
    method = partial(divided_train_step, division=division)
    step = trace_step(model, batch_specs(data), "train_step", method(model))
    plan = placer.place(step, "2xT4", batch_size=BATCH, time_limit=1)
    check = partial(check_parts, parts=division.parts)
    bound_step = BoundStep(method=method, parts=division.parts, check=check, adapts=True)
    return bind_model(plan, model, step=bound_step)


def classes():
    """A model of classes, its metric weighted too."""
    model = keras.Sequential([keras.Input((24,)), layers.Dense(16), layers.Dense(5)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, weighted_metrics=["accuracy"], steps_per_execution=2)
    return model, *keras_models.functional()[1:]


@pytest.mark.parametrize("division", [UNEVEN, PIECES], ids=["uneven", "pieces"])
def test_weights_of_samples_and_classes_and_several_steps_at_once(division, caplog):
    """As Keras has them, although the plan was made for batches without weights."""
    found = []
    for is_bound in (False, True):
        model, x, y = fresh(classes)
        weights = np.linspace(0.1, 2.0, len(x))
        settings = {"batch_size": BATCH, "verbose": 0, "shuffle": False}
        run = partial(model.fit, x, y, **settings)
        if not is_bound:
            found.append((run(sample_weight=weights).history, run(class_weight={0: 5.0}).history))
            continue
        with caplog.at_level(logging.WARNING), bound(model, (x, y), division):
            found.append((run(sample_weight=weights).history, run(class_weight={0: 5.0}).history))
        assert "ops are not in the plan, and run on the devices of what they read" in caplog.text
    for plain, divided in zip(*found, strict=True):
        for name, values in plain.items():
            assert divided[name] == pytest.approx(values, rel=1e-4), name


def test_means_of_ones_own_and_of_several_losses_are_those_of_the_batch():
    """Keras tells them one number a batch, however its parts differ in size."""
    found = []
    for is_bound in (False, True):
        model, x, y = fresh(keras_models.two_inputs)
        fit = partial(model.fit, x, y, batch_size=BATCH, verbose=0, shuffle=False)
        if is_bound:
            with bound(model, (x, y), UNEVEN):
                found.append(fit().history)
        else:
            found.append(fit().history)
    assert found[0].keys() == found[1].keys() >= {"a_loss", "b_loss", "loss"}
    for name, values in found[0].items():
        assert found[1][name] == pytest.approx(values, rel=1e-5), name


def test_a_batch_of_fewer_examples_than_parts_runs_whole():
    """Of 33 examples the last batch has one."""
    model, x, y = fresh(keras_models.functional)
    plain, _, _ = fresh(keras_models.functional)
    fit = {"batch_size": BATCH, "verbose": 0, "shuffle": False}
    expected = plain.fit(x[:33], y[:33], **fit).history
    model, _, _ = fresh(keras_models.functional)
    with bound(model, (x, y), UNEVEN):
        found = model.fit(x[:33], y[:33], **fit).history
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-5)


class Twice(keras_models.Own):
    """Applies gradients two times."""

    def train_step(self, data):
        super().train_step(data)
        return super().train_step(data)


class WithTwo(keras_models.Own):
    """Has an optimizer besides the compiled one."""

    def __init__(self):
        super().__init__(name="two")
        self.other = keras.optimizers.SGD()


def compiled(kind):
    """A subclass, built and compiled."""
    model = kind()
    model.build((None, 24))
    model.compile("sgd", "mse")
    return model


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (partial(compiled, Twice), "applies gradients 2 times"),
        (partial(compiled, WithTwo), "optimizer of its own"),
    ],
    ids=["twice", "two-optimizers"],
)
def test_what_parts_cannot_do_is_refused_when_the_step_is_traced(build, told):
    """Nothing has run by then."""
    model = fresh(build)
    specs = tuple(tf.TensorSpec([None, size]) for size in (24, 1))
    with pytest.raises(UsageError, match=told):
        trace_step(model, specs, "train_step", divided_train_step(model, PIECES))


class Summing(keras_models.Own):
    """Its loss is a sum of its own making, which nobody is told."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(self(x, training=True) - y))
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"loss": loss}


def test_a_loss_of_ones_own_that_is_no_mean_is_refused_before_the_first_update():
    """The graph of its loss says so."""
    model = fresh(partial(compiled, Summing))
    _, x, y = keras_models.own_train_step()
    before = [weight.numpy() for weight in model.weights]
    with (
        pytest.raises(UsageError, match="not a mean over the examples"),
        bound(model, (x, y), PIECES),
    ):
        model.fit(x, y, batch_size=BATCH, verbose=0)
    assert all(np.array_equal(old, new) for old, new in zip(before, model.weights, strict=True))


def test_statistics_of_the_batch_are_found_and_random_states_are_none():
    """Moving averages change beside what the optimizer does."""
    model, x, y = fresh(keras_models.normalised)
    program = load_program(trace_step(model, batch_specs((x, y)), "train_step"))
    names = {path.rpartition("/")[2] for path in written_state(model, program)}
    assert names == {"moving_mean", "moving_variance"}
    model, x, y = fresh(keras_models.mixed)
    program = load_program(trace_step(model, batch_specs((x, y)), "train_step"))
    assert written_state(model, program) == []


def test_a_model_says_what_its_batches_look_like():
    """Whole numbers for sparse losses, else labels like the outputs; a subclass does once it was
    called, unless its training step is its own."""
    for build in (keras_models.functional, keras_models.two_inputs, keras_models.transformer):
        model, x, y = fresh(build)
        assert str(model_specs(model)) == str(batch_specs((x, y)))
    model, _, _ = fresh(keras_models.own_train_step)
    with pytest.raises(UsageError, match=r"data=\(x, y\)"):
        placer.auto(model, "2xT4", batch_size=8)

    class Called(keras_models.Own):
        train_step = keras.Model.train_step

    model, (_, x, y) = Called(), fresh(keras_models.own_train_step)
    model.compile("sgd", "mse")
    with pytest.raises(UsageError, match=r"data=\(x, y\)"):
        model_specs(model)
    model(x[:3])
    assert str(model_specs(model)) == str(batch_specs((x, y)))


@pytest.mark.parametrize("examples", [2, 7, 33, 64])
def test_parts_follow_the_speeds(examples):
    """Known and unknown sizes alike: in proportion to the nearest example, one each at least."""
    for speeds in ((1.0, 3.0), (1.0, 1.0), (100.0, 1.0)):
        sizes = sizes_by(examples, speeds)
        assert sum(sizes) == examples
        ideal = examples * speeds[0] / sum(speeds)
        assert sizes[0] == pytest.approx(min(max(ideal, 1), examples - 1), abs=0.51)
        traced = tf.function(lambda n, s=speeds: sizes_by(n, s))
        assert [int(size) for size in traced(tf.constant(examples))] == sizes
