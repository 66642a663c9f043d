"""Eight Keras models on three lists of devices: the choice of ``placer.auto`` trains as Keras does.

The devices are slow, so that small models are worth dividing.
"""

import itertools
import os
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from fuzzing.warm_children import run_python
from keras_models import BATCH, COUNT, MODELS, fresh
from long_tests import sometimes

import placer

SLOW = """
[[device]]
name = "GPU:{number}"
type = "GPU"
memory = "1GiB"
peak_flops = {flops}
memory_bandwidth = {bandwidth}
launch_seconds = 1e-6
"""


ALWAYS = {
    ("functional", "small"),
    ("own_train_step", "equal"),
    ("mixed", "equal"),
    ("normalised", "equal"),
    ("transformer", "equal"),
    ("two_inputs", "unlike"),
}
"""A model too large for its device, a step of its own, a loss scale, what is not divided, replicas,
and parts in proportion; the other pairs with PLACER_LONG_TESTS."""


@pytest.fixture(scope="module", autouse=True)
def unoptimised():
    """Graph optimisation fuses ops that share a device, which rounds otherwise: off, for bits."""
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    yield
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})


@pytest.fixture(scope="module")
def clusters(tmp_path_factory):
    """Files that describe two equal devices, and two of which one is three times as fast."""
    folder = tmp_path_factory.mktemp("clusters")
    for name, factors in (("equal", (1, 1)), ("unlike", (1, 3))):
        text = "".join(
            SLOW.format(number=n, flops=2e7 * factor, bandwidth=2e7 * factor)
            for n, factor in enumerate(factors)
        )
        (folder / f"{name}.toml").write_text(text)
    return folder


AIM = "throughput" if os.environ.get("PLACER_LONG_TESTS") else "latency"
AIMS = {"own_train_step": "throughput"}
ANSWERS = {}
"""Pipelines are built for one model, or with the long tests for all: none of them trains fastest
in one."""


def asked(name, model, x, y, devices, clusters):
    """What auto answers for one of the lists of devices; once for each."""
    if (name, devices) in ANSWERS:
        return ANSWERS[name, devices]
    data = (x, y) if not getattr(model, "inputs", None) else None
    settings = {"batch_size": BATCH, "data": data, "time_limit": 2, "for_": AIMS.get(name, AIM)}
    cluster = clusters / f"{devices}.toml"
    if devices == "small":
        whole = placer.auto(model, cluster := "1xT4", **settings)
        assert whole.changes_nothing
        settings["max_memory"] = {0: int(0.9 * whole.row.required_bytes["GPU:0"])}
    return ANSWERS.setdefault((name, devices), placer.auto(model, cluster, **settings))


def trained(model, x, y, calls):
    """The history of three epochs, with what Keras calls callbacks for."""
    record = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, _: calls.append(("epoch", epoch)),
        on_train_batch_end=lambda batch, logs: calls.append(("batch", batch, sorted(logs))),
        on_test_end=lambda logs: calls.append(("tested", sorted(logs))),
    )
    settings = {"batch_size": BATCH, "epochs": 3, "shuffle": False, "verbose": 0}
    return model.fit(x, y, validation_data=(x, y), callbacks=[record], **settings).history


@pytest.mark.parametrize(
    ("name", "devices"), sometimes(itertools.product(MODELS, ("small", "equal", "unlike")), ALWAYS)
)
def test_the_choice_trains_as_keras_does(name, devices, clusters, tmp_path):
    """Three epochs: history, callbacks and weights are those of plain Keras, and the file that
    is saved loads without placer.  A transformer goes to replicas on equal devices, with parts in
    proportion where it does so on unlike ones."""
    assert COUNT % BATCH  # the last batch is smaller
    plain, x, y = fresh(MODELS[name])
    expected_calls, calls = [], []
    expected = trained(plain, x, y, expected_calls)
    model, x, y = fresh(MODELS[name])
    auto = asked(name, model, x, y, devices, clusters)
    assert auto.row is not None, auto.summary()
    if devices == "unlike":
        assert not auto.changes_nothing, auto.summary()
    if (name, devices) == ("transformer", "equal"):
        assert auto.chosen == "replicas:2", auto.summary()
    if (devices, auto.chosen) == ("unlike", "replicas:2"):
        assert auto.division.speeds == pytest.approx((1 / 3, 1.0), rel=0.2)
    with auto.bind(model):
        found = trained(model, x, y, calls)
        model.save(tmp_path / "inside.keras")
    assert calls == expected_calls
    assert found.keys() == expected.keys()
    is_whole = auto.division is None
    for key, values in expected.items():
        assert found[key] == (values if is_whole else pytest.approx(values, rel=1e-4, abs=1e-4)), (
            key
        )
    for ours, theirs in zip(model.weights, plain.weights, strict=True):
        assert np.allclose(ours.numpy(), theirs.numpy(), rtol=1e-3, atol=1e-4), ours.path
    loaded = keras.models.load_model(tmp_path / "inside.keras")
    assert np.allclose(first(loaded.predict(x, verbose=0)), first(model.predict(x, verbose=0)))


def first(outputs):
    """One of several outputs."""
    return tf.nest.flatten(outputs)[0]


def deep():
    """Layers whose activations are most of a step's memory; statistics of the batch, of which parts
    would have others."""
    inputs = x = keras.Input((16,))
    x = keras.layers.BatchNormalization()(x)
    for _ in range(6):
        x = keras.layers.Dense(32, activation="tanh")(x)
    model = keras.Model(inputs, keras.layers.Dense(1)(x))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    rng = np.random.default_rng(3)
    return model, rng.random((1280, 16), np.float32), rng.random((1280, 1), np.float32)


def test_a_rewritten_step_trains_bit_for_bit():
    """Under a cap that no order meets the step is rewritten: tensors are computed again or wait on
    the host; `fit` gives what Keras gives."""
    settings = {"batch_size": 512, "epochs": 2, "shuffle": False, "verbose": 0}
    plain, x, y = fresh(deep)
    expected = plain.fit(x, y, **settings).history
    model, x, y = fresh(deep)
    asked = {"batch_size": 512, "for_": "memory", "offload": "never"}
    need = placer.auto(model, "1xT4", **asked).row.required_bytes["GPU:0"]
    auto = placer.auto(model, "1xT4", max_memory={0: int(0.8 * need)}, **asked)
    assert auto.chosen == "recompute", auto.summary()
    assert auto.plan.rewriting.late_values
    assert [row.fits for row in auto.rows[:3]] == [False, False, True]
    with auto.bind(model) as bound:
        found = model.fit(x, y, **settings).history
        ran = {
            op.name for op in bound.functions["train_step"].concrete_function.graph.get_operations()
        }
    assert auto.plan.rewriting.sources.keys() <= ran
    assert found == expected
    for ours, theirs in zip(model.weights, plain.weights, strict=True):
        assert np.array_equal(ours.numpy(), theirs.numpy()), ours.path


def test_a_saved_result_trains_in_another_process(clusters, tmp_path):
    """Saved with its plan and bound there: the losses are those of the block here; so are those of
    its plan alone."""
    settings = {"batch_size": BATCH, "shuffle": False, "verbose": 0}
    model, x, y = fresh(MODELS["transformer"])
    auto = asked("transformer", model, x, y, "equal", clusters)
    assert auto.division is not None, auto.summary()
    with auto.bind(model):
        expected = model.fit(x, y, **settings).history["loss"]
    auto.save(tmp_path / "auto.json")
    auto.plan.save(tmp_path / "plan.json")
    assert placer.AutoResult.load(tmp_path / "auto.json").rows == auto.rows
    model, x, y = fresh(MODELS["transformer"])
    with placer.Plan.load(tmp_path / "plan.json").bind(model):
        assert model.fit(x, y, **settings).history["loss"] == expected
    code = f"""
import sys
sys.path = {sys.path!r}
import placer
placer.cpu_devices(2)
import tensorflow as tf
tf.config.optimizer.set_experimental_options({{"disable_meta_optimizer": True}})
from keras_models import MODELS, fresh
model, x, y = fresh(MODELS["transformer"])
with placer.AutoResult.load("auto.json").bind(model):
    print(model.fit(x, y, **{settings!r}).history["loss"])
"""
    done = run_python(["-c", code], tmp_path)
    assert done.stdout.strip() == str(expected), done.stderr


def test_a_model_of_a_few_layers_is_told_to_change_nothing():
    """Its ops take less than Keras takes for a step beside them, wherever they are; at the word of
    the predictions they would be moved."""
    model = keras.Sequential([keras.layers.Input([784]), keras.layers.Dense(10)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    found = placer.auto(model, "2xA100-40GB", batch_size=32, time_limit=1, for_="latency")
    assert found.changes_nothing, found.summary()
    told = " ".join(found.summary(width=120).split())
    assert "compile it with jit_compile=False" in told
    assert "Keras is assumed to take 500 µs more for each step (keras_seconds of CPU:0" in told
    assert found.rows[1].least_seconds < found.row.step_seconds / 1.2
