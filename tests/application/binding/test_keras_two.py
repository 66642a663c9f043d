"""Models of tf_keras (Keras 2), where it is installed."""

import numpy as np
import pytest

import placer

tf_keras = pytest.importorskip("tf_keras")
layers = tf_keras.layers
RNG = np.random.default_rng(0)
X, LABELS = RNG.random((32, 12), np.float32), RNG.integers(0, 4, 32)
FIT = {"batch_size": 8, "shuffle": False, "verbose": 0}


def classifier(dropout=0.2, steps=1):
    """Three layers with dropout, and a loss on numbers of classes, so many steps at once."""
    tf_keras.backend.clear_session()
    tf_keras.utils.set_random_seed(3)
    hidden = [layers.Dense(16, "relu"), layers.Dropout(dropout, seed=1), layers.Dense(16, "relu")]
    model = tf_keras.Sequential([layers.Input([12]), *hidden, layers.Dense(4)])
    entropy = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", entropy, metrics=["accuracy"], steps_per_execution=steps)
    return model


def trained(model):
    """Losses, what is evaluated and predicted after them."""
    losses = model.fit(X, LABELS, validation_data=(X, LABELS), epochs=2, **FIT).history
    return losses, model.evaluate(X, LABELS, verbose=0), model.predict(X, verbose=0)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"dropout": 0.0, "steps": 2}], ids=["dropout", "steps"])
def test_a_model_of_keras_2_trains_where_it_is_planned(settings):
    """Weights and slots are on both devices; losses, metrics and predictions are those of plain
    Keras 2, bit for bit, and `auto` says that it does not divide the batch."""
    plain, model = classifier(**settings), classifier(**settings)
    expected = trained(plain)
    step = placer.training_step(model, (X, LABELS))
    pins = {"dense/*": "GPU:0", "dense_2/*": "GPU:1"}
    plan = placer.place(step, "2xT4", batch_size=8, pins=pins, time_limit=1)
    with plan.bind(model) as bound:
        found = trained(model)
        assert bound.functions["train_step"].plan is plan
        devices = {v.name: v.device[-5:] for v in model.optimizer.variables if v.shape.rank}
    assert devices["Adam/m/dense/kernel:0"] == "CPU:1"
    assert devices["Adam/v/dense_2/bias:0"] == "CPU:2"
    assert found[:2] == expected[:2]
    assert np.array_equal(found[2], expected[2])
    auto = placer.auto(model, "2xT4", batch_size=8, time_limit=1, margin=0.0)
    assert any("Keras 2 model is not divided" in row.note for row in auto.rows)
    with auto.bind(model):
        model.fit(X, LABELS, **FIT)


@pytest.mark.slow
def test_files_of_keras_2_are_placed(tmp_path):
    """HDF5 and its own format, with a layer whose configuration Keras 3 does not take."""
    inputs = layers.Input([8, 8, 3])
    hidden = layers.DepthwiseConv2D(3, depthwise_regularizer="l2")(inputs)
    model = tf_keras.Model(inputs, layers.Dense(4)(layers.Flatten()(hidden)))
    for name in ("model.h5", "model.keras"):
        model.save(tmp_path / name)
        plan = placer.place(tmp_path / name, "1xT4", batch_size=2, time_limit=1)
        assert plan.solver.status == "OPTIMAL", name
