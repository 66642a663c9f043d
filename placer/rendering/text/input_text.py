"""The inputs of a program as text, and what their sizes were set to."""

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from cost_models.tensor_size import is_known, spell_shape
from placer.plan.report import (
    InputFacts,
    ModelFacts,
)
from placer.rendering.quantities import (
    format_shape,
)

_INPUT_ROWS = 6


def input_lines(inputs: Sequence[InputFacts]) -> list[str]:
    """Whole name, dtype and shape, with what an unknown dimension was bound to."""
    lines = []
    for item in inputs[:_INPUT_ROWS]:
        declared, bound = format_shape(item.declared_shape), format_shape(item.bound_shape)
        shape = declared if declared == bound else f"{declared} set to {bound}"
        part = f", {item.part} of {item.of}" if item.part else ""
        lines.append(f"{item.key} {item.dtype} {shape}{part}")
    if len(inputs) > _INPUT_ROWS:
        lines.append(f"and {len(inputs) - _INPUT_ROWS} more")
    return lines or ["none"]


def batch_line(model: ModelFacts) -> RenderableType:
    """Returns a line on the batch size, and on what stays open."""
    still, ways = open_inputs(model)
    bound = f"set to {model.batch_size} (--batch-size)" if model.batch_size is not None else ""
    if still and bound:
        return Text(f"{bound}; {still} still open: {ways}", style="yellow")
    if still:
        return Text(f"not set: {still} of unknown size; give {ways}", style="yellow")
    given = any(item.bound_shape != item.declared_shape for item in model.inputs)
    ragged = any(item.of for item in model.inputs)
    by = "--shape and --ragged" if ragged else "--shape"
    fixed = f"set by {by}" if given else "fixed by the shapes in the file"
    return bound or (fixed if model.inputs else "the model has no inputs")


def open_inputs(model: ModelFacts) -> tuple[str, str]:
    """The inputs whose size stays open (``""`` for none), and the options that say it."""
    still = [item for item in model.inputs if not is_known(item.bound_shape)]
    ways = [] if model.batch_size is not None else ["--batch-size N"]
    ways += [_sizes_of(model, item.of) for item in still if item.part][:1]
    whole = sorted((i for i in still if not i.part), key=lambda i: not _is_open_inside(i))
    ways += [_shape_of(item) for item in whole[:1]]
    joint = " and " if whole and _is_open_inside(whole[0]) else " or "
    return listed([item.key for item in still], 3) if still else "", joint.join(ways)


def _is_open_inside(item: InputFacts) -> bool:
    """Whether the batch size alone leaves the shape of an input open."""
    return None in (item.bound_shape or ())[1:]


def _shape_of(item: InputFacts) -> str:
    """The option that says the shape of an input, with the sizes that are known."""
    shape = item.bound_shape if item.bound_shape is not None else item.declared_shape
    return f"--shape {item.key}={spell_shape(shape, '?' if _is_open_inside(item) else 32)}"


def _sizes_of(model: ModelFacts, ragged: str) -> str:
    """The option that says how long the rows of a ragged or sparse input are."""
    levels = sum(item.of == ragged and item.part == "row_splits" for item in model.inputs)
    return f"--ragged {ragged}=32{'x50' * max(levels, 1)}"


def listed(names: Sequence[str], limit: int) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(names[:limit]) or "none"
    return shown + (f" and {len(names) - limit} more" if len(names) > limit else "")
