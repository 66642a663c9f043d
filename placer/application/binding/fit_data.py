"""Data of ``fit`` stay on the host, and a batch is made like those that a step was traced for.

Eager TensorFlow makes a tensor on GPU:0 of floats that come from NumPy, and a data set keeps its
tensors: of ``fit(x, y)`` the whole of ``x`` is on GPU:0 (tensorflow#71744), and no plan counts it.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import tensorflow as tf

from cost_models.byte_sizes import format_bytes
from placer.application.devices.device_mapping import HOST
from placer.application.placing.placed_function import PlacedFunction

_LOG = logging.getLogger(__name__)

_METHODS = (
    "fit",
    "evaluate",
    "predict",
    "train_on_batch",
    "test_on_batch",
    "predict_on_batch",
)


@contextmanager
def data_on_host(model: Any) -> Iterator[None]:
    """Inside of the block ``fit`` and the like make tensors of their data on the host; a data set
    that has some on a GPU already is a warning with its size."""
    before = {name: vars(model)[name] for name in _METHODS if name in vars(model)}
    vars(model).update({name: _on_host(getattr(model, name)) for name in _METHODS})
    try:
        yield
    finally:
        for name in _METHODS:
            vars(model).pop(name, None)
        vars(model).update(before)


def _on_host(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def run(*arguments: Any, **keywords: Any) -> Any:
        for value in (*arguments, *keywords.values()):
            _warn_of_device_data(value)
        with tf.device(HOST):
            return method(*arguments, **keywords)

    return run


def _warn_of_device_data(value: Any) -> None:
    held: dict[str, int] = {}
    for tensor in _kept_tensors(value) if isinstance(value, tf.data.Dataset) else ():
        name = tensor.device.rpartition("device:")[2]
        if not name.startswith("CPU"):
            held[name] = held.get(name, 0) + tensor.shape.num_elements() * tensor.dtype.size
    for device, size in held.items():
        _LOG.warning(
            "the data set keeps %s on %s, which the plan does not count: make it in "
            "'with tf.device(\"CPU:0\"):'",
            format_bytes(size),
            device,
        )


def _kept_tensors(data: Any) -> Iterator[Any]:
    """The tensors that a data set was made of."""
    yield from getattr(data, "_tensors", ())
    for source in data._inputs():
        yield from _kept_tensors(source)


def fitted(function: PlacedFunction, data: Any) -> Any:
    """``data`` with labels of the dtype and rank that ``function`` was traced for."""

    def fit(spec: Any, value: Any) -> Any:
        is_tensor = isinstance(value, tf.Tensor)
        if is_tensor and value.dtype != spec.dtype:
            value = tf.cast(value, spec.dtype)
        rank = spec.shape.rank if is_tensor else None
        if rank is not None and rank != value.shape.rank:
            column = rank > value.shape.rank
            value = tf.expand_dims(value, -1) if column else tf.squeeze(value, -1)
        return value

    return tf.nest.map_structure(fit, function.original.specs, data)


def batch_advice(specs: Any) -> str:
    """Returns how to have a plan of such batches."""
    shown = [
        f"{spec.dtype.name}{list(spec.shape)}"
        for spec in tf.nest.flatten(specs)
        if hasattr(spec, "shape")
    ]
    data = "(x, y, weights)" if isinstance(specs, tuple) and len(specs) > 2 else "(x, y)"
    return (
        f"make the plan for the model as it is compiled now, and such batches ({', '.join(shown)}):"
        f" placer.auto(..., data={data}) or placer.training_step(model, {data})"
    )


def count_examples(data: Any) -> int:
    """The examples of a batch, 0 where it does not say."""
    shapes = [tuple(value.shape) for value in tf.nest.flatten(data) if hasattr(value, "shape")]
    return max((int(shape[0]) for shape in shapes if shape and shape[0] is not None), default=0)
