"""The vocabulary of cost models: one op as it is seen by a cost rule.

The names are Grappler's (``tensorflow/core/grappler/costs/op_performance_data.proto``), because
they mean the same.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")

Shape = tuple[int | None, ...] | None
"""Dimensions of a tensor; ``None`` for an unknown dimension, ``None`` itself for unknown rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorProperties:
    """Type and shape of one tensor.

    ``dtype`` is TensorFlow's lower-case name without ``_ref`` (``"float32"``, ``"resource"``).
    ``value`` holds the elements of a small constant (shapes, axes, permutations), flattened in
    row-major order, and is ``None`` where they are unknown or many.
    """

    dtype: str
    shape: Shape
    value: tuple[int | float, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpInfo:
    """One op: its type, its attributes as plain Python values, its inputs and outputs.

    Attribute values are ``int``, ``float``, ``bool``, ``str``, dtype names, shape tuples, or
    tuples of those; a function attribute is the function's name.  Tensor-valued attributes are
    left out (a constant's content is never a cost).
    """

    op: str
    inputs: tuple[TensorProperties, ...] = ()
    outputs: tuple[TensorProperties, ...] = ()
    attributes: Mapping[str, object] = field(default_factory=dict)


def ask_once(function: Callable[[Asked], Answer], items: Iterable[Asked]) -> list[Answer]:
    """Returns ``function(item)`` for every item, computed once for items that are one object.

    A graph of 50,000 ops has a few thousand that differ in more than their names.
    """
    items = tuple(items)
    keys = [*map(id, items)]
    known = {key: function(item) for key, item in dict(zip(keys, items, strict=True)).items()}
    return [known[key] for key in keys]
