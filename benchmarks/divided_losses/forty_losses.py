"""Forty losses of Keras, half of which mix the examples of a batch, and the models that train them.

Every loss reads eight numbers per example.  ``labels`` are ``classes`` (whole numbers below four),
``signs`` (0 or 1 for each output) or ``values`` (eight numbers in [0, 1)).  The list was written,
and each loss called mixing or not, before there was a rule that decides it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

layers, ops = keras.layers, keras.ops
WIDTH, CLASSES, BATCH = 8, 4, 32
KINDS = ("plain", "dropout", "augmentation", "masks", "class weights")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A loss as ``compile`` takes it, and whether it mixes examples."""

    name: str
    labels: str
    function: Any
    mixes: bool


FORTY: list[Loss] = []


def _loss(name: str, labels: str, *, mixes: bool) -> Callable[[Any], Any]:
    def register(function: Any) -> Any:
        FORTY.append(Loss(name=name, labels=labels, function=function, mixes=mixes))
        return function

    return register


def _built_in(name: str, labels: str, function: Any) -> None:
    _loss(name, labels, mixes=False)(function)


# twenty means over the examples: Keras's, then losses of one's own
_built_in("squared error", "values", "mse")
_built_in("absolute error", "values", "mae")
_built_in("Huber", "values", keras.losses.Huber(0.3))
_built_in("log cosh", "values", keras.losses.LogCosh())
_built_in("squared logarithmic", "values", keras.losses.MeanSquaredLogarithmicError())
_built_in("sparse crossentropy", "classes", keras.losses.SparseCategoricalCrossentropy(True))
_built_in("binary crossentropy", "signs", keras.losses.BinaryCrossentropy(from_logits=True))
_built_in("smoothed", "signs", keras.losses.CategoricalCrossentropy(True, label_smoothing=0.1))
_built_in("focal", "signs", keras.losses.BinaryFocalCrossentropy(from_logits=True))
_built_in("cosine", "values", keras.losses.CosineSimilarity())
_built_in("hinge", "signs", keras.losses.SquaredHinge())
_built_in("Poisson", "signs", lambda y, p: keras.losses.poisson(y, ops.softplus(p)))


@_loss("quantile", "values", mixes=False)
def _quantile(y: Any, p: Any) -> Any:
    return ops.mean(ops.maximum(0.9 * (y - p), -0.1 * (y - p)), axis=-1)


@_loss("Gaussian likelihood", "values", mixes=False)
def _gaussian(y: Any, p: Any) -> Any:
    mean, log = ops.split(p, 2, axis=-1)
    return ops.mean(0.5 * (log + ops.square(y[:, :4] - mean) * ops.exp(-log)), axis=-1)


@_loss("mixture of densities", "values", mixes=False)
def _mixture(y: Any, p: Any) -> Any:
    weights, means = ops.split(p, 2, axis=-1)
    parts = ops.log_softmax(weights) - 0.5 * ops.square(y[:, :1] - means)
    return -ops.logsumexp(parts, axis=-1)


@_loss("triplet within an example", "values", mixes=False)
def _triplet(y: Any, p: Any) -> Any:
    anchor, near, far = p[:, :2], p[:, 2:4], p[:, 4:6]
    gap = ops.sum(ops.square(anchor - near), -1) - ops.sum(ops.square(anchor - far), -1)
    return ops.maximum(gap + 0.5, 0.0) + 0.0 * y[:, 0]


@_loss("Dice of each example", "signs", mixes=False)
def _dice_each(y: Any, p: Any) -> Any:
    p = ops.sigmoid(p)
    return 1 - (2 * ops.sum(y * p, -1) + 1) / (ops.sum(y, -1) + ops.sum(p, -1) + 1)


@_loss("ranking within an example", "values", mixes=False)
def _list_ranking(y: Any, p: Any) -> Any:
    return -ops.sum(ops.softmax(y) * ops.log_softmax(p), axis=-1)


@_loss("sum over the number", "values", mixes=False)
def _sum_over_number(y: Any, p: Any) -> Any:
    return ops.sum(ops.square(y - p)) / ops.cast(ops.shape(p)[0], "float32")


@_loss("evidence bound", "values", mixes=False)
def _evidence(y: Any, p: Any) -> Any:
    mean, log = ops.split(p, 2, axis=-1)
    kept = -0.5 * ops.mean(ops.sum(1 + log - ops.square(mean) - ops.exp(log), axis=-1))
    return ops.mean(ops.square(y[:, :4] - mean)) + 0.1 * kept


# twenty that compare examples, or compute with a sum over them
@_loss("NT-Xent", "values", mixes=True)
def _nt_xent(y: Any, p: Any) -> Any:
    del y
    first, second = (ops.normalize(v, axis=-1) for v in ops.split(p, 2, axis=-1))
    logits = ops.matmul(first, ops.transpose(second)) / 0.2
    return ops.mean(ops.logsumexp(logits, -1) - ops.sum(first * second, -1) / 0.2)


@_loss("SupCon", "classes", mixes=True)
def _sup_con(y: Any, p: Any) -> Any:
    p, y = ops.normalize(p, axis=-1), ops.reshape(y, (-1, 1))
    same = ops.cast(ops.equal(y, ops.transpose(y)), "float32")
    logs = ops.log_softmax(ops.matmul(p, ops.transpose(p)) * 5.0, -1)
    return -ops.sum(same * logs, -1) / ops.sum(same, -1)


@_loss("InfoNCE, negatives of the batch", "values", mixes=True)
def _info_nce(y: Any, p: Any) -> Any:
    logs = ops.log_softmax(ops.matmul(p, ops.transpose(y)), -1)
    return -ops.mean(ops.diagonal(logs))


_loss("Dice of the batch", "signs", mixes=True)(keras.losses.Dice())


@_loss("soft F1", "signs", mixes=True)
def _soft_f1(y: Any, p: Any) -> Any:
    p = ops.sigmoid(p)
    both, all_ = ops.sum(y * p, axis=0), ops.sum(y + p, axis=0)
    return 1 - ops.mean(2 * both / (all_ + 1e-6))


@_loss("variance, weighed 0.1", "values", mixes=True)
def _variance(y: Any, p: Any) -> Any:
    spread = ops.sqrt(ops.var(p, axis=0) + 1e-4)
    return ops.mean(ops.square(y - p)) + 0.1 * ops.mean(ops.maximum(1 - spread, 0.0))


@_loss("covariance (Barlow Twins)", "values", mixes=True)
def _barlow(y: Any, p: Any) -> Any:
    del y
    first, second = (
        (v - ops.mean(v, 0)) / (ops.std(v, 0) + 1e-4) for v in ops.split(p, 2, axis=-1)
    )
    number = ops.cast(ops.shape(p)[0], "float32")
    crossed = ops.matmul(ops.transpose(first), second) / number
    return ops.sum(ops.square(crossed - ops.eye(4)))


@_loss("triplet, hardest of the batch", "classes", mixes=True)
def _hardest(y: Any, p: Any) -> Any:
    y = ops.reshape(y, (-1, 1))
    far = ops.sum(ops.square(ops.expand_dims(p, 0) - ops.expand_dims(p, 1)), -1)
    same = ops.cast(ops.equal(y, ops.transpose(y)), "float32")
    return ops.mean(ops.maximum(ops.max(far * same, 1) - ops.min(far + 1e3 * same, 1) + 1.0, 0.0))


@_loss("centre moments", "values", mixes=True)
def _moments(y: Any, p: Any) -> Any:
    centred = p - ops.mean(p, axis=0, keepdims=True)
    return ops.mean(ops.square(y - p)) + 0.1 * ops.sum(ops.square(ops.mean(centred**3, 0)))


@_loss("MMD", "values", mixes=True)
def _mmd(y: Any, p: Any) -> Any:
    def kernel(a: Any, b: Any) -> Any:
        far = ops.sum(ops.square(ops.expand_dims(a, 1) - ops.expand_dims(b, 0)), -1)
        return ops.mean(ops.exp(-far))

    return kernel(p, p) + kernel(y, y) - 2 * kernel(p, y)


@_loss("ranking of pairs of the batch", "values", mixes=True)
def _pairs(y: Any, p: Any) -> Any:
    y, p = y[:, 0], p[:, 0]
    ahead = ops.cast(ops.expand_dims(y, 1) > ops.expand_dims(y, 0), "float32")
    return ops.mean(ahead * ops.softplus(ops.expand_dims(p, 0) - ops.expand_dims(p, 1)))


@_loss("AUC surrogate", "signs", mixes=True)
def _auc(y: Any, p: Any) -> Any:
    y, p = y[:, 0], p[:, 0]
    pairs = ops.expand_dims(y, 1) * ops.expand_dims(1 - y, 0)
    gaps = ops.square(1 - ops.expand_dims(p, 1) + ops.expand_dims(p, 0))
    return ops.sum(pairs * gaps) / (ops.sum(pairs) + 1e-6)


@_loss("focal over the positives", "signs", mixes=True)
def _focal_positives(y: Any, p: Any) -> Any:
    each = keras.losses.binary_focal_crossentropy(y, p, from_logits=True)
    return ops.sum(each) / ops.maximum(ops.sum(y), 1.0)


@_loss("concordance", "values", mixes=True)
def _concordance(y: Any, p: Any) -> Any:
    y, p = y[:, 0], p[:, 0]
    shared = ops.mean((y - ops.mean(y)) * (p - ops.mean(p)))
    apart = ops.var(y) + ops.var(p) + ops.square(ops.mean(y) - ops.mean(p))
    return 1 - 2 * shared / (apart + 1e-6)


@_loss("Pearson", "values", mixes=True)
def _pearson(y: Any, p: Any) -> Any:
    y, p = y - ops.mean(y, 0), p - ops.mean(p, 0)
    scale = ops.sqrt(ops.sum(y * y, 0) * ops.sum(p * p, 0) + 1e-6)
    return 1 - ops.mean(ops.sum(y * p, 0) / scale)


@_loss("entropy of the mean prediction", "classes", mixes=True)
def _entropy(y: Any, p: Any) -> Any:
    each = keras.losses.sparse_categorical_crossentropy(y, p, from_logits=True)
    mean = ops.mean(ops.softmax(p), axis=0)
    return ops.mean(each) + 0.1 * ops.sum(mean * ops.log(mean + 1e-6))


@_loss("over the largest of the batch", "values", mixes=True)
def _over_largest(y: Any, p: Any) -> Any:
    return ops.mean(ops.square(y - p / (ops.max(ops.abs(p)) + 1e-3)))


@_loss("mean of what is there", "values", mixes=True)
def _there(y: Any, p: Any) -> Any:
    there = ops.cast(y > 0.3, "float32")
    return ops.sum(there * ops.square(y - p)) / (ops.sum(there) + 1e-6)


@_loss("hardest quarter", "values", mixes=True)
def _hard_quarter(y: Any, p: Any) -> Any:
    each = ops.mean(ops.square(y - p), -1)
    return ops.mean(ops.top_k(each, BATCH // 4)[0]) + 0.0 * ops.mean(each)


@_loss("tail (logarithm of mean exponential)", "values", mixes=True)
def _tail(y: Any, p: Any) -> Any:
    return ops.log(ops.mean(ops.exp(ops.mean(ops.square(y - p), -1))))


def cases() -> Iterator[tuple[Loss, str, bool]]:
    """The two hundred cases: every loss with every kind of model, and whether it mixes examples.

    A loss that is a number already is multiplied by the mean of the weights: a product of means.
    """
    numbers = {"sum over the number", "evidence bound"}
    for loss in FORTY:
        for kind in KINDS:
            yield loss, kind, loss.mixes or (kind == "class weights" and loss.name in numbers)


def build(loss: Loss, kind: str) -> Any:
    """The compiled model of a case: pictures where it augments them, padded texts where it has
    masks (read by an average or an LSTM in turn), else sixteen numbers per example."""
    if kind == "augmentation":
        inputs = keras.Input((6, 6, 3))
        hidden = layers.RandomTranslation(0.2, 0.2)(layers.RandomFlip()(inputs))
        hidden = layers.GaussianNoise(0.1)(layers.RandomContrast(0.3)(hidden))
        hidden = layers.Flatten()(layers.Conv2D(4, 3, activation="tanh")(hidden))
    elif kind == "masks":
        inputs = keras.Input((7,), dtype="int32")
        hidden = layers.Embedding(20, 12, mask_zero=True)(inputs)
        is_even = FORTY.index(loss) % 2 == 0
        read = layers.GlobalAveragePooling1D() if is_even else layers.LSTM(12, use_cudnn=False)
        hidden = read(hidden)
    else:
        inputs = keras.Input((16,))
        hidden = layers.Dense(12, activation="tanh", kernel_regularizer="l2")(inputs)
    if kind == "dropout":
        hidden = layers.Dropout(0.3)(hidden)
    model = keras.Model(inputs, layers.Dense(WIDTH)(hidden))
    model.compile(keras.optimizers.Adam(3e-3), loss.function)
    return model


def data(loss: Loss, kind: str, count: int = BATCH) -> tuple[Any, ...]:
    """(x, y), and weights as ``fit`` makes them of ``class_weight``."""
    rng = np.random.default_rng(count)
    if kind == "masks":
        x: Any = rng.integers(1, 20, (count, 7)).astype("int32")
        x *= np.arange(7) < rng.integers(2, 8, (count, 1))
    else:
        shape = (6, 6, 3) if kind == "augmentation" else (16,)
        x = rng.random((count, *shape), np.float32)
    classes = rng.integers(0, CLASSES, count)
    made = {
        "classes": classes,
        "signs": rng.integers(0, 2, (count, WIDTH)).astype("float32"),
        "values": rng.random((count, WIDTH), np.float32),
    }
    y = made[loss.labels]
    if kind != "class weights":
        return x, y
    chosen = y if loss.labels == "classes" else np.argmax(y, -1)
    return x, y, np.linspace(0.5, 2.0, WIDTH, dtype="float32")[chosen]
