"""Gradients of several parts, averaged into one per variable, and applied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from placer.graph.op_types import PLACEHOLDERS, READ_VARIABLE

Pairs = list[tuple[Any, Any]]

_OF_SHAPES = frozenset({"Shape", "ShapeN", "Size", "Rank", "VariableShape"})


def average_gradients(parts: Sequence[Pairs], weights: Sequence[Any]) -> Pairs:
    """One (variable, gradient) per variable: the sum over parts of weight x gradient.

    A weight ``None`` is one.  Sparse gradients stay sparse if they are so in every part that has
    one (rows with the same index are for the optimizer to add, as within one part, unless all parts
    have the same rows, such as positions: the whole has them once); a part without a gradient adds
    nothing, and a variable without any is left out.
    """
    found: dict[int, tuple[Any, list[Any]]] = {}
    for pairs, weight in zip(parts, weights, strict=True):
        for variable, gradient in pairs:
            _, terms = found.setdefault(id(variable), (variable, []))
            if gradient is not None:
                terms.append(scaled(gradient, weight))
    return [(variable, _sum(terms)) for variable, terms in found.values() if terms]


def apply_gradients(
    optimizer: Any, pairs: Pairs, clip: Callable[[list[Any]], list[Any]] | None
) -> None:
    """Updates the variables, once ``clip`` has seen all gradients."""
    kept, gradients = [variable for variable, _ in pairs], [gradient for _, gradient in pairs]
    if clip is not None:
        gradients = clip(gradients)
    optimizer.apply_gradients(zip(gradients, kept, strict=True))


def scaled(gradient: Any, weight: Any) -> Any:
    """``gradient`` times ``weight``; ``None`` is one."""
    if weight is None:
        return gradient
    if isinstance(gradient, tf.IndexedSlices):
        values = gradient.values * tf.cast(weight, gradient.dtype)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return gradient * tf.cast(weight, gradient.dtype)


def _sum(terms: Sequence[Any]) -> Any:
    if len(terms) == 1:
        return terms[0]
    if all(isinstance(term, tf.IndexedSlices) for term in terms):
        if not any(_depends_on_batch(term.indices) for term in terms):
            values = tf.add_n([term.values for term in terms])
            return tf.IndexedSlices(values, terms[0].indices, terms[0].dense_shape)
        values = tf.concat([term.values for term in terms], axis=0)
        indices = tf.concat([term.indices for term in terms], axis=0)
        return tf.IndexedSlices(values, indices, terms[0].dense_shape)
    return tf.add_n([tf.convert_to_tensor(term) for term in terms])


def _depends_on_batch(tensor: Any) -> bool:
    """Whether ``tensor`` is computed from values of the batch, or drawn; shapes are no values."""
    if not hasattr(tensor, "op") or not hasattr(tensor.graph, "captures"):
        return True
    captured = {id(inside.op) for _, inside in tensor.graph.captures}
    waiting, seen = [tensor.op], set[int]()
    while waiting:
        op = waiting.pop()
        if id(op) in seen or id(op) in captured or op.type in _OF_SHAPES:
            continue
        if op.type in PLACEHOLDERS or (op.op_def.is_stateful and op.type != READ_VARIABLE):
            return True
        seen.add(id(op))
        waiting += [source.op for source in op.inputs]
    return False
