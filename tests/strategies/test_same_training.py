"""What is divided trains as the whole batch does; what is not shown to do so is not divided."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras_models import fresh

import placer
from placer.extraction.reading.training_steps import batch_specs
from placer.strategies.same_training import decide_division

layers, ops = keras.layers, keras.ops
BATCH = 12


def decided(model, *batch, is_exact=True):
    """Why a batch is not divided into two parts."""
    batch = tf.nest.map_structure(tf.convert_to_tensor, batch)
    return decide_division(model, batch_specs(batch), BATCH, 2, lambda: batch, is_exact=is_exact)[0]


def values(*shape, seed=1):
    return np.random.default_rng(seed).random((BATCH, *shape), np.float32)


def dense(loss, *before, **settings):
    """A model with ``before`` in front of its last layer."""
    model = keras.Sequential([keras.Input((6,)), *before, layers.Dense(4, **settings)])
    model.compile("adam", loss)
    return model


def contrastive(_, codes):
    codes = ops.normalize(codes, axis=-1)
    return -ops.mean(ops.log_softmax(ops.matmul(codes, ops.transpose(codes)) * 5.0, -1))


def with_variance(y, p):
    """What no few examples of an untrained model show: its second part is 0 for them."""
    spread = ops.sqrt(ops.var(p, axis=0) + 1e-4)
    return ops.mean(ops.square(y - p)) + 0.1 * ops.mean(ops.maximum(1e-3 - spread, 0.0))


def one_by_one(y, p):
    """A mean that no rule knows."""
    return ops.mean(
        tf.map_fn(
            lambda pair: tf.reduce_sum(tf.square(pair[0] - pair[1])),
            (y, p),
            fn_output_signature=tf.float32,
        )
    )


def squared_one_by_one(y, p):
    return ops.square(one_by_one(y, p))


class Adding(layers.Layer):
    """Adds a loss of what it lets through."""

    def __init__(self, reduce):
        super().__init__()
        self.reduce = reduce

    def call(self, codes):
        self.add_loss(0.01 * self.reduce(ops.square(codes)))
        return codes


MEANS = {
    "a layer adds a mean": lambda: dense("mse", Adding(ops.mean)),
    "regularised": lambda: dense(
        "mse", layers.Dense(5, activity_regularizer="l2"), kernel_regularizer="l2"
    ),
    "dropout": lambda: dense(keras.losses.Huber(), layers.Dropout(0.4)),
    "run with the same draws": lambda: dense(one_by_one, layers.Dropout(0.4)),
}
MIXED = {
    "a layer adds a sum": (lambda: dense("mse", Adding(ops.sum)), "adds a mean or a constant"),
    "contrastive": (lambda: dense(contrastive, layers.Dropout(0.2)), "two batch dimensions"),
    "variance": (lambda: dense(with_variance), "sum over the examples"),
    "a sum": (lambda: dense(keras.losses.MeanSquaredError("sum")), "not their mean"),
    "run and seen": (
        lambda: dense(squared_one_by_one, layers.Dropout(0.4)),
        "its parts differ",
    ),
    "statistics": (lambda: dense("mse", layers.BatchNormalization()), "sum over the examples"),
}


@pytest.mark.parametrize("name", MEANS)
def test_means_over_the_examples_are_divided(name):
    """By their graph, or because one step whole and in parts, with the same draws, shows it."""
    assert decided(fresh(MEANS[name]), values(6), values(4)) == ""


@pytest.mark.parametrize("name", MIXED)
def test_losses_that_mix_examples_are_not_divided(name):
    """However small the part that mixes, and whether or not the model draws random numbers."""
    build, told = MIXED[name]
    model = fresh(build)
    before = [v.numpy() for v in model.variables]
    assert told in decided(model, values(6), values(4))
    assert all(np.array_equal(a, b.numpy()) for a, b in zip(before, model.variables, strict=True))


def test_weights_and_masks():
    """Weights of samples are divided, but not a mean over them or over what a mask leaves."""
    weights = np.linspace(0.1, 2.0, BATCH, dtype="float32")
    assert decided(fresh(lambda: dense("mse")), values(6), values(4), weights) == ""
    weighted = keras.losses.MeanSquaredError("mean_with_sample_weight")
    model = fresh(lambda: dense(weighted))
    assert "divides by a sum" in decided(model, values(6), values(4), weights)

    ids = (values(5) * 3).astype("int32")
    texts = [keras.Input((5,), dtype="int32"), layers.Embedding(4, 6, mask_zero=True)]
    for read, told in ((layers.GlobalAveragePooling1D(), ""), (layers.Dense(3), "divides by")):
        model = keras.Sequential([*texts, read, layers.Dense(4)])
        model.compile("sgd", "mse")
        labels = values(4) if not told else values(5, 4)
        found = decided(model, ids, labels)
        assert told in found if told else not found


class Averaged(keras.Model):
    """Moves the average of its weight behind every update, and trains that weight alone."""

    def __init__(self):
        super().__init__()
        self.layer, self.average = layers.Dense(2), layers.Dense(2)

    def call(self, x):
        return self.layer(x) + self.average(x)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x))
        kernel, average = self.layer.kernel, self.average.kernel
        self.optimizer.apply([tape.gradient(loss, kernel.value)], [kernel])
        average.assign(0.9 * average + 0.1 * kernel)
        return {"loss": loss}


def test_a_step_that_assigns_variables_itself_is_not_divided():
    """Parts would move the average once each, and before the update; what the optimizer, metrics
    and draws write is no matter."""
    model = Averaged()
    model(values(6))
    model.compile("sgd", "mse")
    assert "its train_step assigns averaged/dense_" in decided(model, values(6), values(2))
    drawing = dense("mse", layers.Dropout(0.5))
    drawing.compile("adam", "mse", metrics=["mae"])
    assert decided(drawing, values(6), values(4)) == ""


def test_inputs_whose_ops_have_the_keys_of_others():
    """Of a dictionary of two inputs the op of the first is called as the second one's key: the
    parts of both are what a part has."""
    two = {name: keras.Input((6,), name=name) for name in ("b", "a")}
    model = keras.Model(two, layers.Dense(4)(two["a"] * two["b"]))
    model.compile("sgd", "mse")
    assert decided(model, {"b": values(6), "a": values(6, seed=2)}, values(4)) == ""


def test_leave_to_have_other_statistics_is_none_to_train_another_loss():
    """With ``exact=False`` batch normalisation may be divided, and nothing else."""
    norm = layers.BatchNormalization
    assert decided(fresh(lambda: dense("mse", norm())), values(6), values(4), is_exact=False) == ""
    model = fresh(lambda: dense(contrastive, norm()))
    assert "two batch" in decided(model, values(6), values(4), is_exact=False)


@pytest.mark.slow
def test_auto_says_why_a_batch_is_not_divided(tmp_path):
    """The rows of parts have the reason, for a loss and for a model of one batch size."""
    slow = '[[device]]\nname = "GPU:{}"\ntype = "GPU"\nmemory = "1GiB"\npeak_flops = 2e4\n'
    slow += "memory_bandwidth = 2e4\nlaunch_seconds = 1e-6\n"
    (tmp_path / "two.toml").write_text(slow.format(0) + slow.format(1))

    def fixed():
        inputs = keras.Input(batch_shape=(BATCH, 2, 6))
        model = keras.Model(inputs, layers.LSTM(4, stateful=True, use_cudnn=False)(inputs))
        model.compile("sgd", "mse")
        return model

    for build, told in ((MIXED["contrastive"][0], "not a mean over"), (fixed, "with 6 examples")):
        auto = placer.auto(fresh(build), tmp_path / "two.toml", batch_size=BATCH, time_limit=1)
        notes = {row.name: row.note for row in auto.rows}
        assert told in notes["replicas:2"], auto.summary()
        assert auto.division is None
        drawn = "other random numbers" in {row.name: row.changes for row in auto.rows}["replicas:2"]
        assert drawn == (build is not fixed)

    # of what is inexact one way is built to show what it would bring
    auto = placer.auto(
        fresh(MIXED["statistics"][0]), tmp_path / "two.toml", batch_size=BATCH, time_limit=1
    )
    parts = [row for row in auto.rows if not row.is_exact]
    assert [bool(row.step_seconds) for row in parts] == [True] + [False] * (len(parts) - 1)
    assert all("statistics of their own" in row.note for row in parts), auto.summary()
