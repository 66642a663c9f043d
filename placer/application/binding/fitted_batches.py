"""Batches as they come, and the function that was traced for batches much like them."""

from typing import Any

import tensorflow as tf

from placer.application.placing.placed_function import PlacedFunction


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
