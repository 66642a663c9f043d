"""Sizes of the parts of ragged and sparse inputs.

Of ``rows`` rows with mean ``lengths`` a ragged tensor has ``rows + 1`` outermost row splits, one
more than there are rows within rows for each further level, and as many flat values as there are
innermost elements; a sparse one has ``rows`` times the mean non-zeros of a row.  The batch says how
many rows there are, and nothing about their lengths.  What depends on the longest row is sized for
rows of equal length: the row splits then have values, out of which TensorFlow concludes the rest.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from cost_models.op_info import Shape
from placer.errors import UsageError
from placer.extraction.graph_defs.program import CompositePart, ProgramInput
from placer.graph.program_source import Warning_
from placer.graph.walks import grouped

OPEN = "ragged_open"
"""The code of what stays open of a ragged or sparse input."""

Sizes = Mapping[str, Sequence[int | None]]
"""Rows and mean lengths of the rows by the name of an input; ``None`` rows are the batch."""


@dataclass(frozen=True, kw_only=True)
class CompositeShapes:
    """``shapes`` of the parts by key, ``values`` that row splits and shapes of sparse tensors hold
    (by op), and what is assumed, as warnings."""

    shapes: Mapping[str, Shape] = field(default_factory=dict)
    values: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    warnings: tuple[Warning_, ...] = ()


def shape_parts(
    inputs: Sequence[ProgramInput], batch_size: int | None, ragged: Sizes | None
) -> CompositeShapes:
    """The shapes of all parts of ragged and sparse inputs, as far as the sizes are known.

    ``ragged`` says rows and mean lengths by name; other inputs have ``batch_size`` rows of open
    lengths.  Raises :class:`UsageError` for sizes that a ragged or sparse input does not take.
    """
    wholes = find_wholes(inputs)
    shapes: dict[str, Shape] = {}
    values: dict[str, tuple[int, ...]] = {}
    warnings: list[Warning_] = []
    for name, parts in wholes.items():
        asked = (ragged or {}).get(name)
        rows, lengths = _sizes(name, parts, batch_size, asked)
        for item, part in parts:
            if part.role != "dense_shape":
                count = _count(part, rows, lengths)
                shapes[item.key] = (count, *(item.shape or (None,))[1:])
            value = _value(part, rows, lengths)
            if value is not None:
                values[item.op] = value
            elif part.role == "indices":  # version 1's sparse_placeholder has a default for it
                values[f"{name}/shape"] = _value(replace(part, role="dense_shape"), rows, ()) or ()
        if asked is not None or batch_size is not None:
            warnings.append(_assumption(name, parts, shapes, rows, lengths))
    return CompositeShapes(shapes=shapes, values=values, warnings=tuple(warnings))


def find_wholes(
    inputs: Sequence[ProgramInput],
) -> dict[str, list[tuple[ProgramInput, CompositePart]]]:
    """The ragged and sparse inputs by name, with their parts."""
    wholes = grouped((item.part.of, (item, item.part)) for item in inputs if item.part is not None)
    return wholes


def _sizes(
    name: str,
    parts: Sequence[tuple[ProgramInput, CompositePart]],
    batch_size: int | None,
    asked: Sequence[int | None] | None,
) -> tuple[int | None, tuple[int, ...]]:
    """Rows and mean lengths; no lengths where nothing says them."""
    part = parts[0][1]
    declared = part.shape[0] if part.shape else None
    rows = declared if declared is not None else batch_size
    if asked is None:
        return rows, ()
    levels = sum(part.role == "row_splits" for _, part in parts) if part.is_ragged else 1
    given = "x".join("?" if size is None else str(size) for size in asked)
    if len(asked) != levels + 1:
        raise UsageError(
            f"--ragged {name}={given} gives {len(asked)} sizes for {name!r}, which takes "
            f"{levels + 1}: {example(part, levels)}"
        )
    lengths = tuple(size for size in asked[1:] if size is not None)
    rows = rows if asked[0] is None else asked[0]
    if rows is None or len(lengths) < levels:
        raise UsageError(
            f"--ragged {name}={given} leaves a size open: only the number of rows may be open, and "
            f"--batch-size sets it"
        )
    if declared is not None and rows != declared:
        raise UsageError(f"--ragged {name}={given} gives {rows} rows; the model takes {declared}")
    columns = part.shape[1:] if part.shape else (None,)
    most = math.prod(size for size in columns if size is not None)
    if not part.is_ragged and None not in columns and lengths[0] > most:
        raise UsageError(
            f"--ragged {name}={given} gives {lengths[0]:,} non-zeros to a row of {most:,} columns"
        )
    return rows, lengths


def example(part: CompositePart, levels: int = 1) -> str:
    """Returns an example of ``--ragged`` for an input."""
    if not part.is_ragged:
        return f"--ragged {part.of}=ROWSxNONZEROS, rows and the mean non-zeros of a row"
    return f"--ragged {part.of}=ROWS{'xLENGTH' * levels}, rows and the mean length of a row"


def _count(part: CompositePart, rows: int | None, lengths: tuple[int, ...]) -> int | None:
    """How many row splits, flat values or non-zeros there are."""
    if rows is None:
        return None
    if part.role != "row_splits":
        return rows * math.prod(lengths) if lengths else None
    inner = lengths[: part.level]
    return rows * math.prod(inner) + 1 if len(inner) == part.level else None


def _value(
    part: CompositePart, rows: int | None, lengths: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Returns the row splits of rows of equal length, or the shape of a sparse whole."""
    if rows is None:
        return None
    if part.role == "dense_shape" and part.shape and None not in part.shape[1:]:
        return (rows, *(size or 0 for size in part.shape[1:]))
    if part.role != "row_splits" or part.level >= len(lengths):
        return None
    count, length = rows * math.prod(lengths[: part.level]) + 1, lengths[part.level]
    # values are bytes in the graph analysed
    return tuple(n * length for n in range(count)) if count <= 1 << 20 else None


def _assumption(
    name: str,
    parts: Sequence[tuple[ProgramInput, CompositePart]],
    shapes: Mapping[str, Shape],
    rows: int | None,
    lengths: tuple[int, ...],
) -> Warning_:
    """Returns the warning that says which sizes of an input were assumed, or which stay open."""
    part = parts[0][1]
    kind = "ragged" if part.is_ragged else "sparse"
    keys = tuple(item.key for item, _ in parts)
    sizes = ", ".join(
        f"{item.key} {part.role} [{', '.join('?' if n is None else f'{n:,}' for n in shape or ())}]"
        for item, part in parts
        if (shape := shapes.get(item.key)) is not None
    )
    unit = "values" if part.is_ragged else "non-zeros"
    if lengths:
        mean = "x".join(map(str, lengths))
        message = f"{name} is {kind}, taken as {_rows(rows)} of {mean} {unit} each: {sizes}"
        return "ragged_size", message, keys
    levels = sum(part.role == "row_splits" for _, part in parts) if part.is_ragged else 1
    message = (
        f"{name} is {kind} with {_rows(rows)} ({sizes}); how many {unit} a row has is unknown. Set "
        f"it with {example(part, levels)}"
    )
    return OPEN, message, keys


def _rows(count: int | None) -> str:
    return "1 row" if count == 1 else f"{count or 0:,} rows"
