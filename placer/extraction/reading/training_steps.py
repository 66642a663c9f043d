"""The steps of a Keras model as functions: what fit, evaluate and predict run for one batch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from placer.errors import UsageError


def training_step(model: Any, data: Any) -> Any:
    """The ConcreteFunction of one training step of a compiled Keras 3 model, optimizer included.

    ``data`` is one batch as ``fit`` takes it (``(x, y)`` or ``(x, y, sample_weight)``; arrays,
    tensors or ``tf.TensorSpec``), or a ``tf.data.Dataset`` of such batches.  Only its shapes and
    dtypes are used, and the leading dimension is left open: bind it with ``batch_size`` when
    placing.  The step is traced without ``jit_compile``, whatever the model was compiled with.

    Raises :class:`UsageError` for a model that is not compiled.
    """
    return trace_step(model, batch_specs(data), "train_step")


def trace_step(model: Any, specs: Any, name: str) -> Any:
    """The ConcreteFunction of the model's method ``train_step``, ``test_step`` or
    ``predict_step`` on a batch like ``specs``; its state (slots, metrics) is built before."""
    import tensorflow as tf

    if not getattr(model, "compiled", False) and name != "predict_step":
        raise UsageError(
            f"the Keras model {model.name!r} is not compiled: call model.compile(optimizer, loss)"
        )
    if name != "predict_step":
        _build_state(model, specs)
    step = getattr(model, name)

    def run(data: Any) -> Any:
        return step(data)

    function = tf.function(run, jit_compile=False, autograph=False).get_concrete_function(specs)
    function.model = model  # a trace does not keep its variables alive
    return function


def _build_state(model: Any, specs: Any) -> None:
    """Creates what the first step would: a trace that creates variables differs from the next."""
    import tensorflow as tf

    batch = tf.nest.map_structure(
        lambda spec: spec and SimpleNamespace(shape=tuple(spec.shape), dtype=spec.dtype.name),
        specs,
    )
    model._symbolic_build(data_batch=batch)


def keras_variables(model: Any) -> list[Any]:
    """The Keras variables of a model, its metrics and its optimizer, each once."""
    optimizer = getattr(model, "optimizer", None)
    found = [
        *model.variables,
        *model.metrics_variables,
        *(optimizer.variables if optimizer is not None else ()),
    ]
    return list({id(variable): variable for variable in found}.values())


def batch_specs(data: Any) -> Any:
    """The specs of a batch with an open leading dimension; ``None`` stays.

    Of arrays, floats get Keras's default float type, as in ``fit``.
    """
    import tensorflow as tf

    return tf.nest.map_structure(_open_spec, getattr(data, "element_spec", data))


def _open_spec(value: Any) -> Any:
    import keras
    import tensorflow as tf

    if value is None:
        return None
    if isinstance(value, tf.RaggedTensor | tf.SparseTensor):
        value = tf.type_spec_from_value(value)
    if isinstance(value, tf.RaggedTensorSpec):
        shape = [None, *value.shape[1:]]
        return tf.RaggedTensorSpec(shape, value.dtype, value.ragged_rank, value.row_splits_dtype)
    if isinstance(value, tf.SparseTensorSpec):
        return tf.SparseTensorSpec([None, *value.shape[1:]], value.dtype)
    dtype = value.dtype if hasattr(value, "dtype") else tf.convert_to_tensor(value).dtype
    dtype = tf.as_dtype(dtype)
    if dtype == tf.float64 and not isinstance(value, tf.TensorSpec | tf.Tensor):
        dtype = tf.as_dtype(keras.config.floatx())
    shape = tf.TensorShape(value.shape if hasattr(value, "shape") else [len(value)])
    return tf.TensorSpec(shape if not shape.rank else [None, *shape[1:]], dtype)
