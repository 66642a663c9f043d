"""Losses of sequences under masks and weights of time steps: some are means over the examples, some
means over what the masks leave, which parts of a batch have another number of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

layers, losses, ops = keras.layers, keras.losses, keras.ops
BATCH, LENGTH, WORDS = 32, 7, 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Masked:
    """A model of sequences with its loss; its labels are numbers, or ``classes``, one for each step
    or, ``pooled``, for each example; ``weighted`` has weights of the steps."""

    name: str
    build: Callable[[], Any]
    mixes: bool
    pooled: bool = False
    classes: bool = False
    weighted: bool = False


def _model(*hidden: Any, loss: Any = "mse", masks: bool = True) -> Any:
    words = [keras.Input((LENGTH,), dtype="int32"), layers.Embedding(WORDS, 8, mask_zero=masks)]
    model = keras.Sequential([*words, *hidden])
    model.compile(keras.optimizers.Adam(3e-3), loss)
    return model


def _reads(*, steps: bool) -> Any:
    return layers.LSTM(8, return_sequences=steps, use_cudnn=False)


def _each_example(y: Any, p: Any) -> Any:
    there = ops.cast(ops.not_equal(y, 0), "float32")
    apart = there * ops.square(ops.cast(y, "float32") - p)
    return ops.sum(apart, (1, 2)) / ops.maximum(ops.sum(there, (1, 2)), 1.0)


def _all_examples(y: Any, p: Any) -> Any:
    there = ops.cast(ops.not_equal(y, 0), "float32")
    apart = there * ops.square(ops.cast(y, "float32") - p)
    return ops.sum(apart) / ops.maximum(ops.sum(there), 1.0)


def _attends() -> Any:
    inputs = keras.Input((LENGTH,), dtype="int32")
    x = layers.Embedding(WORDS, 8, mask_zero=True)(inputs)
    x = layers.GlobalAveragePooling1D()(layers.MultiHeadAttention(2, 4)(x, x))
    model = keras.Model(inputs, layers.Dense(1)(x))
    model.compile(keras.optimizers.Adam(3e-3), "mse")
    return model


_ENTROPY = losses.SparseCategoricalCrossentropy
TWELVE = (
    Masked(name="mask up to the loss", build=lambda: _model(layers.Dense(1)), mixes=True),
    Masked(
        name="mask through an LSTM",
        build=lambda: _model(_reads(steps=True), layers.Dense(1)),
        mixes=True,
    ),
    Masked(
        name="crossentropy under a mask",
        build=lambda: _model(layers.Dense(WORDS), loss=_ENTROPY(from_logits=True)),
        classes=True,
        mixes=True,
    ),
    Masked(
        name="mask and weights of steps",
        build=lambda: _model(layers.Dense(1)),
        mixes=True,
        weighted=True,
    ),
    Masked(
        name="a class that is ignored",
        build=lambda: _model(
            layers.Dense(WORDS), loss=_ENTROPY(from_logits=True, ignore_class=0), masks=False
        ),
        classes=True,
        mixes=True,
    ),
    Masked(
        name="mean over all steps that are there",
        build=lambda: _model(layers.Dense(1), loss=_all_examples, masks=False),
        mixes=True,
    ),
    Masked(
        name="mask that an LSTM takes",
        build=lambda: _model(_reads(steps=False), layers.Dense(1)),
        mixes=False,
        pooled=True,
    ),
    Masked(
        name="mask that both directions take",
        build=lambda: _model(layers.Bidirectional(_reads(steps=False)), layers.Dense(1)),
        mixes=False,
        pooled=True,
    ),
    Masked(name="mask that attention takes", build=_attends, mixes=False, pooled=True),
    Masked(
        name="weights of steps",
        build=lambda: _model(layers.Dense(1), masks=False),
        mixes=False,
        weighted=True,
    ),
    Masked(
        name="crossentropy, weights of steps",
        build=lambda: _model(layers.Dense(WORDS), loss=_ENTROPY(from_logits=True), masks=False),
        classes=True,
        mixes=False,
        weighted=True,
    ),
    Masked(
        name="mean over the steps of each example",
        build=lambda: _model(layers.Dense(1), loss=_each_example, masks=False),
        mixes=False,
    ),
)


def masked_data(case: Masked, count: int = BATCH) -> tuple[Any, ...]:
    """(x, y), and weights where there are some."""
    rng = np.random.default_rng(count)
    x = rng.integers(1, WORDS, (count, LENGTH)).astype("int32")
    x *= np.arange(LENGTH) < rng.integers(2, LENGTH + 1, (count, 1))
    shape = (count, 1) if case.pooled else (count, LENGTH) if case.classes else (count, LENGTH, 1)
    y = rng.integers(0, WORDS, shape)
    weights = rng.random((count, LENGTH), np.float32)
    return (x, y, weights) if case.weighted else (x, y)
