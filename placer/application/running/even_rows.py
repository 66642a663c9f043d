"""Ragged and sparse values made up: what joins the parts together, for rows of equal length."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from placer.extraction.graph_defs.program import ProgramInput

if TYPE_CHECKING:
    import numpy


def even_rows(
    inputs: Sequence[ProgramInput],
    shapes: Mapping[str, tuple[int, ...]],
    batch_size: int,
    ragged: Mapping[str, Sequence[int | None]],
) -> dict[str, numpy.ndarray[Any, Any]]:
    """Row splits of ragged inputs, indices and dense shapes of sparse ones, by key.

    ``shapes`` are those of all parts by key.  A sparse input has the rows that ``ragged`` or the
    batch says, and in a dimension that nothing states as many columns as it needs.
    """
    import numpy
    import tensorflow as tf

    wholes: dict[str, dict[tuple[str, int], ProgramInput]] = {}
    for item in inputs:
        if item.part is not None:
            wholes.setdefault(item.part.of, {})[item.part.role, item.part.level] = item
    found = {}
    for name, parts in wholes.items():
        rows = next(iter(ragged.get(name, ())), None)
        dense = _dense_shape(parts, shapes, batch_size if rows is None else rows)
        for (role, level), item in parts.items():
            if role == "row_splits":
                inner = parts.get((role, level + 1))
                end = shapes[inner.key][0] - 1 if inner else _first(parts, shapes, "flat_values")
                value = numpy.linspace(0, end, shapes[item.key][0])
            elif role == "indices":
                count = shapes[item.key][0]
                places = numpy.arange(count) * math.prod(dense) // max(count, 1)
                value = numpy.stack(numpy.unravel_index(places, dense), axis=1)
            elif role == "dense_shape":
                value = numpy.array(dense)
            else:
                continue
            found[item.key] = value.astype(tf.as_dtype(item.dtype).as_numpy_dtype)
    return found


def _first(
    parts: Mapping[tuple[str, int], ProgramInput], shapes: Mapping[str, tuple[int, ...]], role: str
) -> int:
    return shapes[parts[role, 0].key][0] if (role, 0) in parts else 0


def _dense_shape(
    parts: Mapping[tuple[str, int], ProgramInput], shapes: Mapping[str, tuple[int, ...]], rows: int
) -> tuple[int, ...]:
    """The shape of a sparse whole; ``()`` of a ragged one."""
    item = parts.get(("indices", 0))
    if item is None or item.part is None:
        return ()
    count, rank = shapes[item.key]
    declared = item.part.shape or (None,) * rank
    known = math.prod(size for size in declared[1:] if size is not None)
    first = declared[0] or rows
    columns = max(1, -(-count // (first * known)))  # of a dimension that nothing states
    return (first, *(columns if size is None else size for size in declared[1:]))
