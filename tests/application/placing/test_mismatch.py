"""A plan of another program is refused with what differs."""

from __future__ import annotations

from dataclasses import replace

import numpy
import pytest

keras = pytest.importorskip("keras")

import placer  # noqa: E402
from placer.application.placing.graph_placement import describe_mismatch  # noqa: E402
from placer.errors import UsageError  # noqa: E402
from placer.extraction.reading.loading import load_program  # noqa: E402

X, Y = numpy.ones([32, 8], "float32"), numpy.ones([32, 1], "float32")


def build(optimizer="sgd", activation="relu"):
    keras.utils.clear_session()
    layers = [keras.Input([8]), keras.layers.Dense(4, activation=activation, name="a")]
    model = keras.Sequential([*layers, keras.layers.Dense(1, name="b")])
    model.compile(optimizer, "mse")
    return model


@pytest.fixture(scope="module")
def plan():
    """Of a training step; as on a machine with two devices."""
    return placer.place(placer.training_step(build(), (X, Y)), "GPU:8MiB", batch_size=16)


def test_the_telling_difference_comes_first(plan):
    """No training step, more inputs, another op: what a person would look for."""
    model = build()
    inference = describe_mismatch(load_program(model), plan)
    assert inference == (
        "the plan is for training, this one is not; use it with: with plan.bind(model): "
        "model.fit(...)"
    )
    step = placer.training_step(model, (X, Y))
    back = placer.place(model, "GPU:8MiB", batch_size=16)
    assert describe_mismatch(load_program(step), back).startswith(
        "the plan is not for training, this one is; make a plan of this program"
    )
    weighted = placer.training_step(build(), (X, Y, numpy.ones(32)))
    found = describe_mismatch(load_program(weighted), plan)
    assert found.startswith(
        "the program has 3 inputs (data, data_1, data_2), the plan's has 2 inputs"
    )
    other = describe_mismatch(
        load_program(placer.training_step(build("sgd", "tanh"), (X, Y))), plan
    )
    assert "ops, such as sequential_1/a_1/Tanh (Tanh)" in other
    assert "Relu" not in other  # one difference is enough
    renamed = replace(load_program(placer.training_step(build(), (X, Y))), fingerprint="other")
    assert "ops have the planned names, but other inputs" in describe_mismatch(renamed, plan)


def test_apply_says_it_without_fingerprints(plan):
    with pytest.raises(
        UsageError, match="made for another program: the plan is for training, this one is not"
    ) as e:
        placer.apply(build(), plan)
    assert plan.model["fingerprint"] not in str(e.value)
