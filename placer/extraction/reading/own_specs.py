"""Batches as ``fit`` passes them, and the specs that the model itself would have of them."""

from typing import Any

from placer.errors import UsageError
from placer.extraction.reading.training_steps import model_specs, trains_as_keras


def with_own_specs(model: Any, specs: Any) -> Any:
    """The specs of a batch as :func:`model_specs` has them: lengths that the model leaves open,
    floats that it makes of whole numbers, and labels that its loss makes of those in ``specs``,
    numbers of classes in any dtype, ``[n, 1]`` as well as ``[n]``, and ``[n]`` for ``[n, 1]``
    where all losses and metrics are Keras's, which make columns of them.

    ``None`` where there is nothing to change, or it might train otherwise.
    """
    import tensorflow as tf

    if not trains_as_keras(model) or not isinstance(specs, tuple) or len(specs) < 2:
        return None
    try:
        inputs, labels = model_specs(model)
        tf.nest.assert_same_structure((inputs, labels), specs[:2])
    except (UsageError, ValueError, TypeError):
        return None

    makes_columns = _has_own_losses(model)

    def may_be(own: Any, given: Any) -> bool:
        if not isinstance(given, tf.TensorSpec):
            return False
        shapes = [given.shape]
        if own.dtype.is_integer and given.shape[-1:] == [1]:
            shapes.append(given.shape[:-1])
        if makes_columns and own.shape.rank == 2 and given.shape.rank == 1:
            shapes.append([*given.shape, 1])
        return any(own.shape.is_compatible_with(shape) for shape in shapes)

    casts = _casts_inputs(model)

    def is_like(own: Any, given: Any) -> bool:
        if casts and isinstance(given, tf.TensorSpec) and given.dtype.is_integer:
            made = tf.TensorSpec(given.shape, model.compute_dtype)
            given = made if made.dtype == own.dtype else given
        return isinstance(own, tf.TypeSpec) and bool(own.is_compatible_with(given))

    open_ = all(map(is_like, tf.nest.flatten(inputs), tf.nest.flatten(specs[0])))
    changed = (inputs if open_ else specs[0], labels, *specs[2:])
    alike = all(map(may_be, tf.nest.flatten(labels), tf.nest.flatten(specs[1])))
    return changed if alike and str(changed) != str(specs) else None


def _has_own_losses(model: Any) -> bool:
    """Whether all losses and metrics are Keras's, by name or as they come: they take labels ``[n]``
    for outputs ``[n, 1]`` as a column (``squeeze_or_expand_to_same_rank`` of
    ``keras/src/losses/loss.py``), and a function of somebody's own would mix the examples."""
    import tensorflow as tf

    metrics = getattr(model, "_compile_metrics", None)
    kinds = ("_user_metrics", "_user_weighted_metrics")
    found = tf.nest.flatten([model.loss, *(getattr(metrics, kind, None) for kind in kinds)])
    return all(
        isinstance(each, str) or str(each.__module__).startswith("keras.")
        for each in found
        if each is not None
    )


def _casts_inputs(model: Any) -> bool:
    """Whether ``call`` is Keras's for a graph of layers, which makes of inputs what Input says."""
    kinds = type(getattr(model, "_functional", None) or model).__mro__
    return "_standardize_inputs" in vars(next(kind for kind in kinds if "call" in vars(kind)))
