"""A program as it was found, before its calls are inlined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from placer.errors import ModelError
from placer.extraction.graph_defs.messages import Captures, Warning_
from placer.extraction.graph_defs.program import ProgramInput


@dataclass(frozen=True, kw_only=True)
class RawProgram:
    """A GraphDef with its library, and what is fed to it and asked of it.

    Tensor and op names are those of ``graph_def``.  ``stripped_ops`` are op definitions stored in
    the file, ``captures`` maps placeholders to live tensors, ``variable_names`` the ``id`` of a
    live handle to the name of its variable, ``stored_variables`` variable names to the (dtype,
    shape) that a file declares apart from the graph.  ``chosen_outputs`` are the outputs that were
    asked for by name, ``captures_constants`` says that calls capture the main graph's constants
    as values, as in SavedModels of TensorFlow 2, ``whole`` that all ops of the main graph have to
    be what their definitions say, reached or not.  ``warnings`` are (code, message, ops).
    """

    graph_def: Any
    inputs: tuple[ProgramInput, ...]
    outputs: tuple[tuple[str, str], ...]
    targets: tuple[str, ...] = ()
    source_format: str
    path: str = ""
    signature: str = ""
    tags: tuple[str, ...] = ()
    chosen_outputs: tuple[str, ...] = ()
    captures_constants: bool = False
    whole: bool = False
    stripped_ops: tuple[Any, ...] = ()
    captures: Captures = field(default_factory=dict)
    variable_names: Mapping[int, str] = field(default_factory=dict)
    stored_variables: Mapping[str, tuple[str, tuple[int | None, ...] | None]] = field(
        default_factory=dict
    )
    warnings: tuple[Warning_, ...] = ()


def shape_of(proto: Any) -> tuple[int | None, ...] | None:
    """The shape in a TensorShapeProto; ``None`` for unknown rank."""
    if proto.unknown_rank:
        return None
    return tuple(dim.size if dim.size >= 0 else None for dim in proto.dim)


@cache
def dtype_name(number: int) -> str:
    """TensorFlow's lower-case name of a dtype number, without ``_ref``; ``""`` for none (0).

    Raises :class:`ModelError` for a number that this TensorFlow does not know.
    """
    from tensorflow.python.framework import dtypes

    if not number:
        return ""
    try:
        return str(dtypes.as_dtype(number).base_dtype.name)
    except TypeError as error:
        raise ModelError(
            f"the model names data type number {number}, which this TensorFlow does not know"
        ) from error
