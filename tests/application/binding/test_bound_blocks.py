"""What people do in and around the block of a bound model: it trains as planned, or is told why."""

import gc
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import placer
from placer.application.binding.model_binding import BoundStep, bind_model
from placer.errors import ShapeError, UsageError
from placer.extraction.reading.training_steps import model_specs, trace_step

layers = keras.layers
RNG = np.random.default_rng(0)
X, CLASSES = RNG.random((32, 12), np.float32), RNG.integers(0, 4, 32)
FIT = {"batch_size": 8, "shuffle": False, "verbose": 0}


def classifier():
    """Three layers and a loss on numbers of classes."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(3)
    hidden = [layers.Dense(16, "relu") for _ in range(2)]
    model = keras.Sequential([layers.Input([12]), *hidden, layers.Dense(4)])
    entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", entropy, metrics=["accuracy"])
    return model


def split_plan(model, data, pins=None):
    """A plan with the first layer on GPU:0, and the last on GPU:1."""
    pins = pins or {"sequential/dense/*": "GPU:0", "sequential/dense_2/*": "GPU:1"}
    step = placer.training_step(model, data)
    return placer.place(step, "2xT4", batch_size=8, pins=pins, time_limit=1)


@pytest.fixture(scope="module")
def split():
    """Such a plan for the model of three layers."""
    return split_plan(classifier(), (X, CLASSES))


def homes(model):
    """The device of every weight and slot, by path."""
    variables = [*model.weights, *model.optimizer.variables]
    return {v.path: v.value.device[-5:] for v in variables if v.value.shape.rank}


def ordered_plan(model, data):
    """A plan with control edges that keep memory low: it is not adapted to any other step."""
    plan = placer.place(
        placer.training_step(model, data), "1xT4", batch_size=8, order="memory", time_limit=1
    )
    assert plan.control_edges
    return plan


@pytest.fixture(scope="module")
def ordered():
    """Such a plan for numbers of classes as the model's loss has them."""
    return ordered_plan(classifier(), (X, CLASSES))


@pytest.mark.parametrize(
    ("x", "labels"),
    [
        (X, CLASSES.astype("uint8")),
        (X, CLASSES.astype("uint8")[:, None]),
        (X, CLASSES.astype("float32")),
        ((9 * X).astype("int64"), CLASSES),
    ],
    ids=["uint8", "uint8 column", "float32", "whole inputs"],
)
def test_batches_of_other_dtypes_train_as_planned(ordered, x, labels):
    """The loss makes numbers of classes of all of them, and the model floats of its inputs, so that
    they are what was planned for."""
    require_trained_as_planned(ordered, classifier(), classifier(), x, labels)


def require_trained_as_planned(plan, plain, model, x, labels):
    """``model`` trains under the whole ``plan``, and as the ``plain`` one does."""
    expected = plain.fit(x, labels, **FIT).history
    with plan.bind(model) as bound:
        found = model.fit(x, labels, **FIT).history
        assert bound.functions["train_step"].plan is plan
    assert found["accuracy"] == expected["accuracy"]
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-6)


def mean_of_squares(labels, outputs):
    """A loss of somebody's own, for which labels [n] and outputs [n, 1] are a table of n x n."""
    return keras.ops.mean(keras.ops.square(labels - outputs), -1)


@pytest.mark.parametrize("is_own", [False, True])
def test_labels_without_a_last_axis_are_columns_to_losses_of_keras(is_own):
    """A plan that is bound to labels [n, 1] trains on labels [n] as Keras does; with a loss that
    would not make a column of them it is refused."""
    y = RNG.integers(0, 2, 32)
    models = []
    for _ in range(2):
        keras.utils.clear_session()
        keras.utils.set_random_seed(3)
        hidden = [layers.Dense(16, "relu") for _ in range(2)]
        model = keras.Sequential([layers.Input([12]), *hidden, layers.Dense(1, "sigmoid")])
        loss = mean_of_squares if is_own else "binary_crossentropy"
        model.compile("adam", loss, metrics=["accuracy"])
        models.append(model)
    plain, model = models
    step = trace_step(model, model_specs(model), "train_step")
    plan = placer.place(step, "1xT4", batch_size=8, order="memory", time_limit=1)
    if is_own:
        with pytest.raises(UsageError, match=r"data=\(x, y\)"), plan.bind(model):
            model.fit(X, y, **FIT)
        return
    require_trained_as_planned(plan, plain, model, X, y)


def test_a_plan_for_a_length_that_the_model_leaves_open_trains():
    """Bound by shapes=, its step is traced for any length, and fit has batches of one; who binds
    nothing is told of data=."""
    ids, y = RNG.integers(0, 9, (32, 5)), RNG.random((32, 1), np.float32)
    results = []
    for is_bound in (False, True):
        keras.utils.clear_session()
        keras.utils.set_random_seed(3)
        words = layers.Input([None], dtype="int64")
        pooled = layers.GlobalAveragePooling1D()(layers.Embedding(9, 4)(words))
        model = keras.Model(words, layers.Dense(1)(pooled))
        model.compile("sgd", "mse")
        if not is_bound:
            results.append(model.fit(ids, y, **FIT).history["loss"])
            with pytest.raises(ShapeError, match=r"data=\(x, y\)"):
                placer.auto(model, "2xT4", batch_size=8)
            continue
        step = trace_step(model, model_specs(model), "train_step")
        options = {"shapes": {"data": (8, 5)}, "order": "memory", "time_limit": 1}
        plan = placer.place(step, "1xT4", batch_size=8, **options)
        with plan.bind(model) as bound:
            results.append(model.fit(ids, y, **FIT).history["loss"])
            assert bound.functions["train_step"].plan is plan
    assert results[1] == pytest.approx(results[0], rel=1e-6)


def test_weights_of_classes_need_a_plan_with_weights(ordered):
    """The message says what the batches are, and how to have a plan of them; that one trains."""
    plain, model = classifier(), classifier()
    with (
        ordered.bind(model),
        pytest.raises(UsageError, match=r"float32\[None, 12\], .*data=\(x, y, weights\)"),
    ):
        model.fit(X, CLASSES, class_weight={0: 2.0}, **FIT)
    model.compile("sgd", "mse")  # batches are not all that may be to blame
    with ordered.bind(model), pytest.raises(UsageError, match="as it is compiled now"):
        model.fit(X, CLASSES, **FIT)
    expected = plain.fit(X, CLASSES, class_weight={0: 2.0}, **FIT).history
    model = classifier()
    with ordered_plan(model, (X, CLASSES, np.ones(32, np.float32))).bind(model):
        found = model.fit(X, CLASSES, class_weight={0: 2.0}, **FIT).history
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-6)


def frozen(model):
    """Fine-tuning as in Keras's guide: a layer is frozen, and the model compiled again."""
    losses = [model.fit(X, CLASSES, **FIT).history["loss"]]
    model.layers[0].trainable = False
    entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", entropy, steps_per_execution=2)
    losses.append(model.fit(X, CLASSES, **FIT).history["loss"])
    losses.append(model.train_on_batch(X[:8], CLASSES[:8]))
    return losses


class Scores(keras.Model):
    """Two layers that are built by their first batch."""

    def __init__(self):
        super().__init__()
        self.hidden = layers.Dense(16, "relu", name="hidden")
        self.scores = layers.Dense(4, name="last")

    def call(self, x):
        """Returns the scores."""
        return self.scores(self.hidden(x))


def test_a_model_that_is_built_by_its_first_batch_trains_as_planned():
    """As in a process that has only the saved plan: weights and slots are where that has them."""

    def fresh():
        keras.utils.clear_session()
        keras.utils.set_random_seed(3)
        model = Scores()
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    plain = fresh()
    losses = plain.fit(X, CLASSES, **FIT).history["loss"]
    pins = {"*/hidden/*": "GPU:0", "*/last/*": "GPU:1"}
    plan, model = split_plan(fresh(), (X[:8], CLASSES[:8]), pins), fresh()
    with plan.bind(model):
        assert model.fit(X, CLASSES, **FIT).history["loss"] == losses
        found = homes(model)
    assert found["scores/hidden/kernel"] == found["adam/scores_hidden_kernel_momentum"] == "CPU:1"
    assert found["scores/last/kernel"] == found["adam/scores_last_kernel_momentum"] == "CPU:2"


def test_a_model_compiled_in_the_block_is_bound_again(split):
    """The new optimizer's slots are beside their weights, and what is trained is what Keras
    trains."""
    plain, model = classifier(), classifier()
    expected = frozen(plain)
    with split.bind(model) as bound:
        assert frozen(model) == [pytest.approx(losses, rel=1e-6) for losses in expected]
        assert model.train_function in bound.runners.values()
        where = homes(model)
        for name in ("momentum", "velocity"):
            assert where[f"{model.optimizer.name}/sequential_dense_2_kernel_{name}"].endswith(":2")
    assert model.train_function is None
    for ours, theirs in zip(model.weights, plain.weights, strict=True):
        assert np.allclose(ours.numpy(), theirs.numpy(), atol=1e-6), ours.path


def test_training_under_a_plan_of_inference_is_told(caplog):
    """Slots go where the weights are, and a warning says that the plan is of no training step."""
    model = classifier()
    function = trace_step(model, (tf.TensorSpec([None, 12]),), "predict_step")
    pins = {"sequential/dense_1/*": "GPU:1"}
    plan = placer.place(function, "2xT4", batch_size=8, pins=pins, time_limit=1)
    with bind_model(plan, model, step=BoundStep(name="predict_step", adapts=True)):
        model.fit(X, CLASSES, **FIT)
        where = homes(model)
    assert "the plan was not made for a training step" in caplog.text
    assert where["sequential/dense_1/kernel"] == "CPU:1"  # which stands in for GPU:1
    assert where["adam/sequential_dense_1_kernel_momentum"] == "CPU:1"


def test_replicas_of_predict_follow_the_weights():
    """Each device has a copy: predict gives what Keras gives, for a last batch of other size, once
    weights are set, and after training in the block; then the model is what it was."""
    plain, model = classifier(), classifier()
    function = trace_step(model, (tf.TensorSpec([None, 12]),), "predict_step")
    settings = {"batch_size": 8, "strategy": "replicas:2", "time_limit": 1}
    plan = placer.place(function, "2xT4", **settings)
    assert len([name for name in plan.variables if "kernel" in name]) == 2 * 3
    with bind_model(plan, model, step=BoundStep(name="predict_step", parts=2, adapts=True)):
        for change in (
            lambda each: None,
            lambda each: each.set_weights([2 * weight for weight in each.get_weights()]),
            lambda each: each.fit(X, CLASSES, **FIT),
        ):
            change(plain)
            change(model)
            ours, theirs = (
                each.predict(X[:27], batch_size=8, verbose=0) for each in (model, plain)
            )
            assert np.allclose(ours, theirs, atol=1e-5)
    assert "assign" not in vars(model.weights[0]._value)
    assert np.allclose(model.predict(X, verbose=0), plain.predict(X, verbose=0), atol=1e-5)


def test_a_forgotten_with_is_told(split, caplog):
    """Nothing would be placed, without a word."""
    split.bind(classifier())
    gc.collect()
    assert "write 'with plan.bind(model):'" in caplog.text


def test_a_placed_function_says_once_that_originals_stay(split, caplog):
    """Until copy_back the model has its first values."""
    model = classifier()
    placed = placer.apply(placer.training_step(model, (X, CLASSES)), split)
    for _ in range(2):
        placed((tf.constant(X[:8]), tf.constant(CLASSES[:8])))
    assert caplog.text.count("call copy_back() to give the originals") == 1


def recurrent(use_cudnn="auto"):
    """An LSTM in both directions, with dropout, and a GRU."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(3)
    both = layers.Bidirectional(layers.LSTM(4, return_sequences=True, dropout=0.2))
    last = layers.GRU(4, use_cudnn=use_cudnn)
    model = keras.Sequential([layers.Input([5, 3]), both, last, layers.Dense(1)])
    model.compile("adam", "mse")
    return model


def test_a_plan_of_recurrent_layers_fits_a_machine_with_a_gpu(monkeypatch):
    """Made where there is none; Keras would choose cuDNN on the other, and is told not to.  A layer
    that insists on cuDNN is not a plan's, and the message says what to do."""
    x, y = RNG.random((8, 5, 3), np.float32), RNG.random((8, 1), np.float32)
    expected = recurrent().fit(x, y, **FIT).history["loss"]
    plan = split_plan(recurrent(), (x, y), {"*/gru/*": "GPU:1"})
    model = recurrent()
    rnn = sys.modules["keras.src.backend.tensorflow.rnn"]
    monkeypatch.setattr(rnn, "_is_gpu_available", lambda: True)
    with plan.bind(model):
        assert model.fit(x, y, **FIT).history["loss"] == pytest.approx(expected, rel=1e-6)
    assert model.layers[1].use_cudnn == "auto"
    assert placer.place(model, "2xT4", batch_size=8, time_limit=1).fits
    with pytest.raises(ShapeError, match="leave use_cudnn of the layers at 'auto'"):
        split_plan(recurrent(use_cudnn=True), (x, y))


def test_a_model_that_looks_words_up_is_answered():
    """Its table is bound by nobody."""
    words, numbers = layers.Input([1], dtype="string"), layers.Input([4])
    ids = layers.StringLookup(vocabulary=["a", "b", "c"])(words)
    read = layers.Flatten()(layers.Embedding(5, 8)(ids))
    model = keras.Model([words, numbers], layers.Dense(1)(layers.Concatenate()([read, numbers])))
    model.compile("adam", "mse")
    auto = placer.auto(model, "1xT4", batch_size=16, time_limit=1)
    assert auto.row is not None, auto.summary()


class Pair(keras.Model):
    """Two models that train each other: two optimizers, and no call()."""

    def __init__(self):
        super().__init__()
        self.generator = keras.Sequential([layers.Input([4]), layers.Dense(4)])
        self.critic = keras.Sequential([layers.Dense(1)])  # built by the first step

    def compile(self, first, second):
        super().compile()
        self.first, self.second = first, second

    def train_step(self, x):
        with tf.GradientTape(persistent=True) as tape:
            loss = tf.reduce_mean(self.critic(self.generator(x)) ** 2)
        for optimizer, model in ((self.first, self.generator), (self.second, self.critic)):
            weights = model.trainable_weights
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"loss": loss}


def pair():
    """A new one."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(3)
    model = Pair()
    model.compile(keras.optimizers.Adam(name="first"), keras.optimizers.Adam(name="second"))
    return model


def test_a_model_without_call_is_traced_at_once():
    """The first trace is the second's, and the block trains as Keras does."""
    x = X[:, :4]
    expected = pair().fit(x, **FIT).history["loss"]
    model = pair()
    first, second = (placer.extract(placer.training_step(model, x), batch_size=8) for _ in "12")
    assert first.model["fingerprint"] == second.model["fingerprint"]
    auto = placer.auto(pair(), "2xT4", batch_size=8, data=x, time_limit=1)
    assert auto.row is not None, auto.summary()
    with placer.place(placer.training_step(model, x), "2xT4", batch_size=8).bind(model):
        assert model.fit(x, **FIT).history["loss"] == pytest.approx(expected)
