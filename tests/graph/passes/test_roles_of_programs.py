"""Kinds of variables against who made them: Keras and TensorFlow know what each variable is for."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import placer
from placer.graph.passes.roles import find_roles

optimizers = keras.optimizers


@pytest.fixture(autouse=True)
def fresh_names():
    keras.utils.clear_session()
    yield
    keras.config.set_dtype_policy("float32")


def _classifier():
    """Dense layers, batch normalisation and dropout; ten classes."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((32,)),
            layers.Dense(64, activation="relu"),
            layers.BatchNormalization(),
            layers.Dropout(0.3),
            layers.Dense(10),
        ]
    )


def _classes():
    return np.zeros((16, 32), np.float32), np.zeros((16,), np.int32)


def _sequences():
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((6,), dtype="int32"),
            layers.Embedding(40, 5),
            layers.LSTM(8, use_cudnn=False),
            layers.LayerNormalization(),
            layers.Dense(1),
        ]
    )


def _sequence_data():
    return np.zeros((4, 6), np.int32), np.zeros((4, 1), np.float32)


def _kinds(source, **options):
    """The names of the variables of a program by kind."""
    return _kinds_of(placer.extract(source, **options).graph)


def _kinds_of(graph):
    """The same of a flat graph."""
    roles = find_roles(graph)
    found = {"weights": set(), "optimizer_state": set(), "metrics": set()}
    for variable in graph.variables:
        found[roles.of_state(variable.handle)].add(variable.name)
    return found


def _require_truth(model, data):
    """Asserts that the step says of every variable what Keras says."""
    model.optimizer.build(model.trainable_variables)  # else the slots are the step's alone
    step = placer.training_step(model, data)
    graph = placer.extract(step, batch_size=len(data[1])).graph
    used = {variable.name for variable in graph.variables}
    truth = {
        "weights": {v.path for v in model.trainable_variables + model.non_trainable_variables},
        "optimizer_state": {v.path for v in model.optimizer.variables},
        "metrics": {v.path for v in model.metrics_variables},
    }
    assert _kinds_of(graph) == {kind: names & used for kind, names in truth.items()}
    assert {variable.path for variable in model.trainable_variables} <= used


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: optimizers.SGD(0.1), id="sgd"),
        pytest.param(lambda: optimizers.SGD(0.1, momentum=0.9, nesterov=True), id="momentum"),
        pytest.param(lambda: optimizers.Adam(amsgrad=True), id="amsgrad"),
        pytest.param(lambda: optimizers.AdamW(clipnorm=1.0), id="adamw"),
        pytest.param(lambda: optimizers.RMSprop(centered=True, momentum=0.5), id="rmsprop"),
        pytest.param(lambda: optimizers.Lamb(), id="lamb"),
        pytest.param(lambda: optimizers.Nadam(), id="nadam"),
        pytest.param(lambda: optimizers.Ftrl(), id="ftrl"),
        pytest.param(lambda: optimizers.Adam(global_clipnorm=1.0), id="global norm"),
        pytest.param(
            lambda: optimizers.SGD(0.1, gradient_accumulation_steps=4, global_clipnorm=1.0),
            id="accumulated",
        ),
        pytest.param(lambda: optimizers.Adam(use_ema=True), id="average"),
        pytest.param(
            lambda: optimizers.SGD(0.1, use_ema=True, ema_overwrite_frequency=3), id="overwritten"
        ),
        pytest.param(lambda: optimizers.LossScaleOptimizer(optimizers.Adam()), id="loss scale"),
        pytest.param(
            lambda: optimizers.Adam(optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)),
            id="schedule",
        ),
    ],
)
def test_every_variable_of_a_keras_step_is_what_keras_says(make):
    """Weights are the model's, optimizer state is the optimizer's, metrics are apart."""
    model = _classifier()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(make(), loss, metrics=["accuracy", keras.metrics.SparseTopKCategoricalAccuracy()])
    _require_truth(model, _classes())


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_loops_embeddings_and_mixed_precision_change_nothing(policy):
    """An LSTM's weights are read inside of a loop, an embedding's by a gather."""
    keras.config.set_dtype_policy(policy)
    model = _sequences()
    model.compile("adam", "mse", metrics=["mae", keras.metrics.AUC()])
    _require_truth(model, _sequence_data())


def test_a_frozen_base_keeps_its_weights():
    """What is not trained is read by the forward pass all the same."""
    model = _classifier()
    model.layers[0].trainable = False
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    _require_truth(model, _classes())


def test_what_keras_evaluates_and_predicts_has_no_optimizer_state():
    """Metrics are told from weights without any gradient."""
    model = _classifier()
    model.compile(
        "adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"]
    )
    x, y = _classes()
    model.evaluate(x, y, verbose=0)
    step = tf.function(lambda data: model.test_step(data)).get_concrete_function(
        (tf.TensorSpec([16, 32]), tf.TensorSpec([16], tf.int32))
    )
    found = _kinds(step)
    assert (len(found["weights"]), len(found["metrics"])) == (8, 4)
    assert not found["optimizer_state"]
    assert _kinds(model, batch_size=16)["weights"] >= {v.path for v in model.trainable_variables}


@pytest.mark.parametrize("fetched", ["loss", "gradients", "nothing", "weights"])
def test_a_tape_needs_no_fetched_loss(fetched):
    """Whatever a step returns: the forward pass is what its gradients depend on."""
    w = tf.Variable(tf.ones([4, 1]), name="w")
    b = tf.Variable(tf.ones([1]), name="b")
    m = tf.Variable(tf.zeros([4, 1]), name="m")
    rate = tf.Variable(0.1, name="rate")
    steps = tf.Variable(0, name="steps")
    average = tf.Variable(tf.ones([4, 1]), name="average")

    @tf.function(input_signature=[tf.TensorSpec([8, 4]), tf.TensorSpec([8, 1])])
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(x @ w + b - y))
        dw, db = tape.gradient(loss, [w, b])
        m.assign(0.9 * m + dw)
        w.assign_sub(rate * m)
        b.assign_sub(rate * db)
        steps.assign_add(1)
        average.assign(0.99 * average + 0.01 * w)
        return {"loss": loss, "gradients": (dw, db), "weights": w.value(), "nothing": None}[fetched]

    assert _kinds(step) == {
        "weights": {"w", "b"},
        "optimizer_state": {"m", "rate", "steps", "average"},
        "metrics": set(),
    }


@pytest.mark.parametrize("resource", [True, False], ids=["resource", "reference"])
@pytest.mark.parametrize("optimizer", ["AdamOptimizer", "MomentumOptimizer", "AdagradOptimizer"])
def test_fused_updates_of_tensorflow_1(optimizer, resource):
    """``tf.gradients`` and the optimizers of TensorFlow 1, with an average of the weights."""
    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        v1.get_variable_scope().set_use_resource(resource)
        x = v1.placeholder(tf.float32, [8, 4], name="x")
        kernel = v1.get_variable("kernel", [4, 3])
        bias = v1.get_variable("bias", [3])
        logits = tf.nn.relu(x @ kernel + bias)
        moving = v1.get_variable("moving", [3], trainable=False)
        moments = v1.assign_sub(moving, 0.1 * (moving - tf.reduce_mean(logits, 0)))
        loss = tf.reduce_mean(tf.square(logits))
        settings = {"momentum": 0.9} if "Momentum" in optimizer else {}
        steps = v1.train.get_or_create_global_step()
        made = getattr(v1.train, optimizer)(0.1, **settings)
        train = made.minimize(loss, global_step=steps)
        with tf.control_dependencies([train, moments]):
            averages = tf.train.ExponentialMovingAverage(0.99)
            last = averages.apply([kernel, bias])
    found = _kinds(graph, outputs=[loss.name, last.name])
    assert found["weights"] == {"kernel", "bias", "moving"}
    assert {"global_step", "kernel/ExponentialMovingAverage"} < found["optimizer_state"]
    assert not found["metrics"]


def test_state_of_inference_is_no_metric():
    """A cache of keys and a recurrent state are updated and read, and add nothing up."""
    w = tf.Variable(tf.ones([4, 4]), name="w")
    cache = tf.Variable(tf.zeros([16, 4]), name="cache")
    state = tf.Variable(tf.zeros([1, 4]), name="state")
    seen = tf.Variable(0, name="seen")

    @tf.function(input_signature=[tf.TensorSpec([1, 4])])
    def step(x):
        state.assign(tf.tanh(x @ w + state))
        cache.scatter_nd_update([[seen]], state)
        seen.assign_add(1)
        return cache @ tf.transpose(state)

    assert _kinds(step)["weights"] == {"w", "cache", "state", "seen"}
