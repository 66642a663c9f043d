"""The steps of a Keras model as functions: what fit, evaluate and predict run for one batch."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from types import SimpleNamespace
from typing import Any

from placer.errors import ArgumentError, PlacerError, UsageError, run_error
from placer.extraction.reading.keras_two import (
    base_model,
    build_state,
    is_compiled,
    is_keras_two,
    traced_alike,
    variables_of,
)
from placer.extraction.reading.optimizer_slots import copied_optimizer, with_host_optimizer

_LOG = logging.getLogger(__name__)


def training_step(model: Any, data: Any) -> Any:
    """The ConcreteFunction of one training step of a compiled Keras model, optimizer included.

    ``data`` is one batch as ``fit`` takes it (``(x, y)`` or ``(x, y, sample_weight)``; arrays,
    tensors or ``tf.TensorSpec``), or a ``tf.data.Dataset`` of such batches.  Only its shapes and
    dtypes are used, and the leading dimension is left open: bind it with ``batch_size`` when
    placing.  The step is traced without ``jit_compile``, whatever the model was compiled with, and
    recurrent layers without cuDNN, so that a plan fits machines with and without a GPU, unless
    the ``use_cudnn`` of a layer is true.
    Where the optimizer has no slots yet, the step has some of its own on the host, so that none
    are on a GPU before there is a plan.

    Raises :class:`UsageError` for a model that is not compiled, and for ``data`` that its step
    cannot take.
    """
    if not callable(getattr(model, "train_step", None)):
        raise ArgumentError(f"model must be a Keras model; got {model!r}")
    specs = batch_specs(data)
    with refused_batches(model, specs):
        return trace_step(model, specs, "train_step")


@contextmanager
def refused_batches(model: Any, specs: Any) -> Iterator[None]:
    """Raises :class:`UsageError` for what Keras and the model's own step raise in the block for a
    batch like ``specs``."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if isinstance(error, PlacerError):
            raise
        shapes = ", ".join(f"{s.dtype.name}{s.shape}" for s in _flat(specs) if s is not None)
        has_targets = isinstance(specs, tuple | list) and len(specs) > 1
        raise UsageError(
            f"{model.name!r} cannot train on a batch of {shapes or 'nothing'}"
            f"{'' if has_targets else ', no targets'}: {run_error(error)}. Give a batch as fit "
            "takes it, such as (x, y), or a tf.data.Dataset after .batch(N)"
        ) from error


def trace_step(
    model: Any,
    specs: Any,
    name: str,
    method: Callable[[Any], Any] | None = None,
    *,
    values: bool = True,
) -> Any:
    """The ConcreteFunction of the model's method ``train_step``, ``test_step`` or
    ``predict_step`` on a batch like ``specs``, or of another ``method`` in its place, whose
    ``tidy``, if it has one, sees the graph.  Metrics are built before.  An optimizer without slots
    stays without: the step has slots of its own, on the host, which without ``values`` take no
    memory and cannot be run."""
    import tensorflow as tf

    refuse_distributed(model)
    if not is_compiled(model) and name != "predict_step":
        raise UsageError(
            f"the Keras model {model.name!r} is not compiled: call model.compile(optimizer, loss)"
        )
    is_two = is_keras_two(model)
    if name != "predict_step":
        build_before_trace(model, specs)
    step = method or getattr(model, name)

    def run(data: Any) -> Any:
        return step(data)

    def traced() -> Any:
        with without_cudnn(model), traced_alike(model):
            function = tf.function(run, jit_compile=False, autograph=is_two)
            return function.get_concrete_function(specs)

    optimizer: Any = getattr(model, "optimizer", None) if name != "predict_step" else None
    is_bare = optimizer is not None and not is_two and not optimizer.built
    with with_host_optimizer(model, values=values) if is_bare else nullcontext() as own:
        function = traced()
    if is_bare and optimizer.built:  # the step has it from elsewhere than the model
        function = traced()
    if hasattr(step, "tidy"):
        step.tidy(function.graph)
    # a trace does not keep its variables alive
    function.model, function.step, function.optimizer, function.specs = model, step, own, specs
    return function


@contextmanager
def without_cudnn(model: Any) -> Iterator[None]:
    """Recurrent layers of ``model`` that leave it to Keras run without cuDNN in the block."""
    import tensorflow as tf

    layers = [x for x in model._flatten_layers() if getattr(x, "use_cudnn", None) == "auto"]
    if layers and tf.config.list_physical_devices("GPU"):
        _say_without_cudnn()
    for layer in layers:
        layer.use_cudnn = False
    try:
        yield
    finally:
        for layer in layers:
            layer.use_cudnn = "auto"


@cache
def _say_without_cudnn() -> None:
    _LOG.warning(
        "recurrent layers run without cuDNN (use_cudnn=False), as their plans then fit machines "
        "with and without a GPU; use_cudnn=True of a layer is kept"
    )


def refuse_distributed(model: Any) -> None:
    """Raises :class:`UsageError` for a model of a ``tf.distribute`` strategy with replicas."""
    strategy = getattr(model, "distribute_strategy", None)
    replicas = getattr(strategy, "num_replicas_in_sync", 1)
    if replicas > 1:
        raise UsageError(
            f"the Keras model {model.name!r} was built under {type(strategy).__name__}, which "
            f"already divides every batch among {replicas} replicas with variables of their own: "
            "build it outside of the strategy's scope, and placer.auto divides the batch where "
            "that pays"
        )


def model_specs(model: Any) -> Any:
    """The specs of a batch of a built Keras model, as far as the model says: its inputs (of a
    subclass the shapes that it was built for, floats) and, if it is compiled, labels as its loss
    takes them for its outputs.

    Labels of sparse losses are whole numbers (int64, as numpy has them), others are like the
    outputs.  Raises :class:`UsageError` for a model that does not say, such as a subclass that
    was never called.
    """
    import keras
    import tensorflow as tf

    advice = f"give auto a batch of {model.name!r}, as fit takes it: data=(x, y)"
    functional = getattr(model, "_functional", None) or model  # a Sequential has one inside
    try:
        inputs, outputs, names = functional.input, functional.output, functional.output_names
    except (AttributeError, ValueError) as error:
        inputs, outputs = _seen(model)
        if inputs is None:
            raise UsageError(
                f"the inputs of the model are not known before it runs; {advice}"
            ) from error
        keyed = isinstance(outputs, Mapping)
        names = sorted(outputs) if keyed else [str(n) for n, _ in enumerate(_flat(outputs))]
    fed = tf.nest.map_structure(lambda each: keras_spec(each, [None, *each.shape[1:]]), inputs)
    if not is_compiled(model):
        return (fed,)
    if model.loss is None:
        raise UsageError(f"the labels are not known, as compile was given no loss; {advice}")
    losses = _losses_by_output(model.loss, names)

    def label(name: str, output: Any) -> Any:
        shape = output.shape[:-1] if _is_sparse(losses.get(name)) else output.shape
        dtype = tf.int64 if _is_sparse(losses.get(name)) else keras.config.floatx()
        return tf.TensorSpec([None, *shape[1:]], dtype)

    labels = [label(name, output) for name, output in zip(names, _flat(outputs), strict=True)]
    return fed, tf.nest.pack_sequence_as(outputs, labels)


def _flat(structure: Any) -> list[Any]:
    import tensorflow as tf

    return list(tf.nest.flatten(structure))


def _seen(model: Any) -> tuple[Any, Any]:
    """The symbolic inputs of a model that was called or built, by the shapes that it saw, and its
    outputs; twice ``None`` for one that was not, or that takes more than one argument."""
    import keras

    shapes = list((getattr(model, "_build_shapes_dict", None) or {}).values())
    if len(shapes) != 1 or not trains_as_keras(model):
        return None, None

    def symbolic(shape: Any) -> Any:
        if isinstance(shape, Mapping):
            return {name: symbolic(part) for name, part in shape.items()}
        if any(isinstance(part, tuple | list) for part in shape):
            return [symbolic(part) for part in shape]
        return keras.KerasTensor((None, *shape[1:]), keras.config.floatx())

    inputs = symbolic(shapes[0])
    return inputs, model.compute_output_spec(inputs)


def as_tensors(data: Any) -> Any:
    """A batch with tensors on the host in place of arrays, floats in Keras's default type, and
    nothing in place of an empty optional."""
    import tensorflow as tf

    def tensor(value: Any) -> Any:
        if value is None or isinstance(value, tf.experimental.Optional):
            return None
        if isinstance(value, tf.Tensor | tf.RaggedTensor | tf.SparseTensor):
            return value
        with tf.device("/device:CPU:0"):
            return tf.convert_to_tensor(value, _open_spec(value).dtype)

    return tf.nest.map_structure(tensor, data)


def keras_spec(tensor: Any, shape: Any, name: str | None = None) -> Any:
    """The spec of a symbolic input of Keras, dense, sparse or ragged, with a ``shape``."""
    import tensorflow as tf

    if getattr(tensor, "sparse", False):
        return tf.SparseTensorSpec(shape, tensor.dtype)
    if getattr(tensor, "ragged", False):
        return tf.RaggedTensorSpec(shape, tensor.dtype, getattr(tensor, "ragged_rank", None) or 1)
    return tf.TensorSpec(shape, tensor.dtype, name)


def _losses_by_output(loss: Any, names: Sequence[str]) -> dict[str, Any]:
    if isinstance(loss, Mapping):
        return dict(loss)
    if isinstance(loss, list | tuple):
        return dict(zip(names, loss, strict=False))
    return dict.fromkeys(names, loss)


def _is_sparse(loss: Any) -> bool:
    """Whether the labels of ``loss`` are numbers of classes."""
    name = loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
    return "sparse" in name.lower()


def build_before_trace(model: Any, specs: Any) -> None:
    """Creates what the first step would, but for the optimizer's slots: a trace that creates
    variables differs from the next."""
    import tensorflow as tf

    if is_keras_two(model):
        build_state(model, specs)
        return
    batch = tf.nest.map_structure(
        lambda spec: spec and SimpleNamespace(shape=tuple(spec.shape), dtype=spec.dtype.name),
        specs,
    )
    optimizer, vars(model)["optimizer"] = model.optimizer, None
    try:
        model._symbolic_build(data_batch=batch)
    except (RuntimeError, ValueError):
        if trains_as_keras(model):
            raise
        _LOG.debug("%s is built by its own train_step", model.name, exc_info=True)
        is_bare = optimizer is not None and not optimizer.built
        vars(model)["optimizer"] = copied_optimizer(optimizer) if is_bare else optimizer
        # where Keras makes them: XLA refuses variables of other devices, should it run as it is
        tf.function(model.train_step, autograph=False).get_concrete_function(specs)
    finally:
        vars(model)["optimizer"] = optimizer


def trains_as_keras(model: Any) -> bool:
    """Whether the training step of ``model`` is Keras's own."""
    return bool(type(model).train_step is base_model(model).train_step)


def keras_variables(model: Any) -> list[Any]:
    """The Keras variables of a model, its metrics and its optimizer, each once."""
    if is_keras_two(model):
        return variables_of(model)
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

    try:
        return tf.nest.map_structure(_open_spec, getattr(data, "element_spec", data))
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"data must be a batch as fit takes it, such as (x, y) of arrays; got {data!r:.200}"
        ) from error


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
