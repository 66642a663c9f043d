"""TensorFlow's messages and live objects by the names that signatures use, and GraphDefs as a
whole.

mypy knows none of TensorFlow's types, so each name here is ``Any``: it says what is meant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

NodeDef = Any
FunctionDef = Any
OpDef = Any
TensorInfo = Any
TensorShapeProto = Any
Tensor = Any
"""A live tensor, or the live handle of a variable or table."""

StoredShapes = Mapping[str, Sequence[TensorShapeProto]]
"""The shapes that a file states in ``_output_shapes``, by op."""

Captures = Mapping[str, Tensor]
"""What a live function captures, by the placeholder that stands for it."""

Warning_ = tuple[str, str, tuple[str, ...]]
"""A code, a message, and the ops it is about."""

Message = TypeVar("Message")


def copied(message: Message) -> Message:
    """A copy of a protobuf message."""
    copy: Any = type(message)()
    copy.CopyFrom(message)
    found: Message = copy
    return found


def all_nodes(graph_def: Any) -> Iterator[NodeDef]:
    """The nodes of a GraphDef, then those of its functions."""
    return chain(graph_def.node, *(function.node_def for function in graph_def.library.function))


def functions_by_name(graph_def: Any) -> dict[str, FunctionDef]:
    """The functions in the library of a GraphDef."""
    return {function.signature.name: function for function in graph_def.library.function}
