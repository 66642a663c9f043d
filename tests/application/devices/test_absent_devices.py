"""A plan for devices that this machine lacks: every way to run it says so once, or refuses."""

import logging
import re
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from fuzzing.warm_children import run_python

import placer
from placer import interactive
from placer.application.devices import device_mapping
from placer.errors import UsageError

ABSENT = re.compile(
    r"GPU:0 and GPU:1 are absent \(this machine has CPU:0\): "
    r"all ops run on CPU devices \(GPU:0 on CPU:1, GPU:1 on CPU:2\)"
)

TOO_LATE = """
import tensorflow as tf, placer
from placer.application.devices.device_mapping import running_mapping
tf.constant(1.0)
try:
    running_mapping(["GPU:0", "GPU:1"])
except placer.errors.PlacerError as error:
    print(error)
"""


@pytest.fixture(autouse=True)
def _no_gpus(monkeypatch):
    monkeypatch.setattr(device_mapping, "_physical_devices", lambda: {"CPU:0"})


@pytest.fixture(scope="module")
def model():
    """Two layers, compiled."""
    model = keras.Sequential(
        [
            keras.layers.Input([4]),
            keras.layers.Dense(4, name="first"),
            keras.layers.Dense(2, name="last"),
        ]
    )
    model.compile("sgd", "mse")
    return model


@pytest.fixture(scope="module")
def plan(model):
    """The training step, a layer on each of two GPUs."""
    step = placer.training_step(model, (np.zeros((8, 4), "float32"), np.zeros((8, 2), "float32")))
    pins = {"*first_1/MatMul": "GPU:0", "*last_1/MatMul": "GPU:1"}
    return placer.place(step, "2xGPU:1GiB", pins=pins, batch_size=8, time_limit=1)


@pytest.fixture(scope="module")
def function():
    """A function to place as it is."""
    weight = tf.Variable(tf.eye(4))

    @tf.function(input_signature=[tf.TensorSpec([8, 4], name="x")])
    def function(x):
        return tf.nn.relu(tf.nn.relu(x @ weight) @ weight)

    return function


@pytest.fixture(scope="module")
def function_plan(function):
    """One product on each of two GPUs."""
    pins = {"matmul": "GPU:0", "matmul_1": "GPU:1"}
    return placer.place(function, "2xGPU:1GiB", pins=pins, time_limit=1)


def fit(model, plan, **missing):
    """Trains, evaluates and predicts under the plan."""
    x, y = np.zeros((8, 4), "float32"), np.zeros((8, 2), "float32")
    with plan.bind(model, **missing):
        model.fit(x, y, batch_size=8, verbose=0)
        model.evaluate(x, y, batch_size=8, verbose=0)
        model.predict(x, batch_size=8, verbose=0)


def enter(block):
    """Enters and leaves a context."""
    with block:
        pass


@pytest.fixture
def ways(model, plan, function, function_plan, tmp_path):
    """What runs a plan here, by name; each takes ``missing``."""
    module = tf.Module()
    module.function, module.weights = function, function.get_concrete_function().variables
    tf.saved_model.save(module, tmp_path / "model", signatures={"serving_default": function})
    saved_plan = placer.place(
        tmp_path / "model",
        "2xGPU:1GiB",
        pins={"*matmul": "GPU:0", "*matmul_1": "GPU:1"},
        time_limit=1,
    )
    placed = placer.apply(tmp_path / "model", saved_plan, tmp_path / "placed")
    return {
        "fit": lambda **missing: fit(model, plan, **missing),
        "apply": lambda **missing: placer.apply(function, function_plan, **missing)(
            tf.ones([8, 4])
        ),
        "scope": lambda **missing: enter(plan.scope(**missing)),
        "load_placed": lambda **missing: placer.load_placed(placed, **missing),
        "device_function": lambda **missing: (
            plan.make_device_function(**missing) if missing else plan.device_function
        ),
    }


def test_every_way_to_run_a_plan_names_the_absent_devices_once(ways, caplog):
    """The warning says which devices are absent and where the ops run, or it is an error."""
    for name, run in ways.items():
        caplog.clear()
        with caplog.at_level(logging.WARNING, "placer"):
            run()
        messages = [record.getMessage() for record in caplog.records]
        assert len(messages) == 1, name
        assert ABSENT.match(messages[0]), name
        caplog.clear()
        with pytest.raises(UsageError, match=r"GPU:0 and GPU:1 are absent"):
            run(missing="error")
        assert not caplog.records, name
        with pytest.raises(UsageError, match="missing='no' is neither 'warn' nor 'error'"):
            run(missing="no")


def test_a_program_that_runs_as_it_is_is_not_silent_either(model, plan, caplog):
    """``auto`` leaves the program alone; TensorFlow runs it on the CPU, which is said."""
    found = SimpleNamespace(require_row=object, changes_nothing=True, plan=plan)
    with interactive.bind_auto(found, model, missing="warn") as same:
        assert same is model
    assert [record.getMessage() for record in caplog.records] == [
        "GPU:0 and GPU:1 are absent (this machine has CPU:0): the program runs on CPU:0"
    ]
    with pytest.raises(UsageError, match="GPU:0 and GPU:1 are absent"):
        interactive.bind_auto(found, model, missing="error")
    other = keras.Sequential([keras.layers.Input([4]), keras.layers.Dense(4, name="other")])
    told = "made for another model: 2 of the 2 weights of '.*' are not in it, such as '.*other/kern"
    with pytest.raises(UsageError, match=told):
        interactive.bind_auto(found, other, missing="warn")


def test_where_one_of_two_is_there_the_other_is_named_and_the_idle_one_too(monkeypatch, caplog):
    """A rehearsal runs all on CPUs: the GPU that is there does nothing, and the warning says so."""
    monkeypatch.setattr(device_mapping, "_physical_devices", lambda: {"CPU:0", "GPU:0"})
    device_mapping.running_mapping(["GPU:0", "GPU:1"])
    assert caplog.messages == [
        "GPU:1 is absent (this machine has CPU:0, GPU:0): all ops run on CPU devices "
        "(GPU:0 on CPU:1, GPU:1 on CPU:2), and GPU:0 stays idle; missing='error' raises an error "
        "instead"
    ]


def test_too_late_for_a_rehearsal_the_absent_devices_come_first():
    """TensorFlow has started with one CPU device: the error opens with what is absent."""
    done = run_python(["-c", TOO_LATE])
    assert done.stdout.startswith(
        "GPU:0 and GPU:1 are absent (this machine has CPU:0): to run on CPU devices, call "
        "placer.cpu_devices(2) right after import tensorflow"
    ), done.stderr[-2000:]
