"""Unknown dimensions of the inputs, bound to a batch size and to given shapes.

A dimension may have a name: one size for several inputs, as in ``ids:BxT`` and ``mask:BxT``.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cost_models.op_info import Shape
from cost_models.tensor_size import is_known
from placer.errors import UsageError
from placer.extraction.graph_defs.program import FlatProgram, ProgramInput
from placer.extraction.graph_defs.protobufs import shape_of
from placer.extraction.graph_defs.tensor_states import ElementState, TensorState, sharpen_shape
from placer.extraction.shapes.composite_shapes import OPEN, Sizes, find_wholes, shape_parts
from placer.extraction.shapes.ragged_sources import (
    BoundSources,
    bind_sources,
    find_sources,
    open_sources,
)
from placer.graph.program_source import Warning_
from placer.graph.tensor_names import op_of, split_tensor

ELEMENT_TYPES = frozenset(
    {"IteratorGetNext", "IteratorGetNextSync", "MultiDeviceIteratorGetNextFromShard"}
    | {"DatasetToSingleElement", "OptionalGetValue"}
)
"""Ops that return one element, usually one batch, of a dataset."""

BATCH = "batch"
"""The name of a dimension that is the batch size."""

NamedShape = Sequence[int | str | None]
"""A shape whose dimensions may be names; ``None`` leaves one as it is declared."""


@dataclass(frozen=True, kw_only=True)
class Binding:
    """Facts about placeholders before inference.

    ``inputs`` are states by op (fed inputs and captures), ``forced`` (output number, shape) pairs
    of other ops by function (``""``: the main graph) and op, ``lengths`` those of parsed features
    and split texts, ``bound`` the names that a batch size or a given shape changed,
    ``has_batch`` whether any of them follows the batch size, ``warnings`` what is assumed of ragged
    and sparse tensors.
    """

    inputs: Mapping[str, TensorState]
    forced: Mapping[str, Mapping[str, tuple[tuple[int, Shape], ...]]] = field(default_factory=dict)
    lengths: BoundSources = field(default_factory=dict)
    bound: tuple[str, ...] = ()
    has_batch: bool = False
    warnings: tuple[Warning_, ...] = ()


def bind_inputs(
    program: FlatProgram,
    captures: Mapping[str, TensorState],
    *,
    batch_size: int | None,
    shapes: Mapping[str, Sequence[int | None]] | None,
    ragged: Sizes | None = None,
) -> Binding:
    """The inputs of ``program`` with unknown dimensions bound.

    ``shapes`` (by an input's key, or an op or tensor of the flat graph, ``body/op`` inside control
    flow) wins over ``ragged``, rows and mean lengths of ragged and sparse inputs, parsed features
    and split texts, and over ``batch_size``, for unknown leading dimensions.  Raises
    :class:`UsageError` for a name that does not exist, or a shape that contradicts the declared.
    """
    given = dict(shapes or {})
    states, bound = dict(captures), []
    parts = shape_parts(program.inputs, batch_size, ragged)
    sources = find_sources(program.graph_def.node)
    lengths = bind_sources(sources, ragged or {}, tuple(find_wholes(program.inputs)))
    keys, by_shape = {item.key for item in program.inputs}, set[str]()
    for item in program.inputs:
        name = item.op
        asked = [given.pop(key) for key in names_of(item, keys) if key in given]
        shape = item.shape
        if asked:
            shape = _given_shape(item.key, shape, asked[0])
            by_shape.add(item.key)
        if item.part is not None:
            shape = sharpen_shape(shape, parts.shapes.get(item.key))
        elif batch_size is not None and shape and shape[0] is None:
            shape = (batch_size, *shape[1:])
            by_shape.discard(item.key)  # which left its first dimension as declared
        value = parts.values.get(name)
        if shape != item.shape or value is not None:
            bound.append(item.key)
        states[name] = TensorState(item.dtype, shape, value=value)
    for node in program.graph_def.node if parts.values else ():
        value = parts.values.get(node.name) if node.op == "PlaceholderWithDefault" else None
        if value:
            states[node.name] = TensorState("int64", (len(value),), value=value)
    batches = {} if batch_size is None else dict(_element_batches(program, batch_size))
    follow = batches or set(bound) - by_shape
    given = {**batches, **given}
    settled = {item.key for item in program.inputs if is_known(states[item.op].shape)}
    still_open = (each for each in parts.warnings if each[0] != OPEN or {*each[2]} - settled)
    return Binding(
        inputs=states,
        forced=_forced(given, program),
        lengths=lengths,
        bound=(*bound, *given),
        has_batch=bool(follow)
        or any((*each,)[:1] == (batch_size,) for each in (shapes or {}).values()),
        warnings=(*still_open, *open_sources(sources, lengths, map(op_of, given))),
    )


def names_of(item: ProgramInput, keys: Collection[str]) -> tuple[str, ...]:
    """The names by which a shape of ``item`` may be given: its key, its tensor and its op, unless
    that is the key of another input (a function's ``data_1`` may be fed by the op ``data``)."""
    others = (name for name in (item.tensor, item.op) if name not in keys)
    return (item.key, *others)


def _element_batches(
    program: FlatProgram, batch_size: int
) -> Iterator[tuple[str, tuple[int | None, ...]]]:
    """Yields (tensor, bound shape) of dataset iterators whose leading dimension alone is open."""
    for node in program.graph_def.node:
        if node.op in ELEMENT_TYPES and "output_shapes" in node.attr:
            for number, proto in enumerate(node.attr["output_shapes"].list.shape):
                shape = shape_of(proto)
                if shape and shape[0] is None:
                    yield f"{node.name}:{number}", (batch_size, *shape[1:])


def _forced(
    given: Mapping[str, Sequence[int | None]], program: FlatProgram
) -> dict[str, dict[str, tuple[tuple[int, Shape], ...]]]:
    if not given:
        return {}
    functions = {f.signature.name for f in program.graph_def.library.function}
    ops = {node.name for node in program.graph_def.node}
    forced: dict[str, dict[str, tuple[tuple[int, Shape], ...]]] = {}
    for tensor, shape in given.items():
        op, number = split_tensor(tensor)
        function, _, inner = op.partition("/")
        function = function.partition("#")[0]  # the count of bodies analysed more than once
        if op in ops:
            function, inner = "", op
        elif function not in functions or not inner:
            keys = ", ".join(f"{item.key}{_text(item.shape)}" for item in program.inputs) or "none"
            raise UsageError(
                f"there is no input or op {tensor!r} to set a shape of (inputs: {keys})"
            )
        pair = number, tuple(None if dim is None or dim < 0 else dim for dim in shape)
        known = forced.setdefault(function, {})
        known[inner] = (*known.get(inner, ()), pair)
    return forced


def capture_states(program: FlatProgram) -> dict[str, TensorState]:
    """Returns the states of the captured values of a live function, by placeholder."""
    elements = {
        variable.handle: ElementState(variable.dtype, variable.shape)
        for variable in program.variables
        if variable.dtype != "resource"
    }
    return {
        name: TensorState(
            str(value.dtype.base_dtype.name),
            None if value.shape.rank is None else tuple(value.shape.as_list()),
            elements.get(name),
        )
        for name, value in program.captures.items()
    }


def _given_shape(key: str, declared: Shape, given: Sequence[int | None]) -> tuple[int | None, ...]:
    shape = tuple(None if dim is None or dim < 0 else int(dim) for dim in given)
    fits = declared is None or (
        len(declared) == len(shape)
        and all(a is None or b is None or a == b for a, b in zip(declared, shape, strict=True))
    )
    if not fits:
        sizes = "x".join("32" if size is None else str(size) for size in declared or ())
        any_size = ", where 32 may be any number" if declared and None in declared else ""
        raise UsageError(
            f"the shape {_text(shape)} does not fit {key!r}, which is declared as {_text(declared)}"
            f": write --shape {key}={sizes}{any_size}"
        )
    return sharpen_shape(shape, declared) or ()


def _text(shape: Shape) -> str:
    if shape is None:
        return "[unknown rank]"
    return "[" + ",".join("?" if dim is None else str(dim) for dim in shape) + "]"


def resolve_shapes(
    shapes: Mapping[str, NamedShape] | None,
    dims: Mapping[str, int] | None,
    ragged: Mapping[str, NamedShape] | None = None,
    batch_size: int | None = None,
) -> tuple[
    dict[str, tuple[int | None, ...]],
    dict[str, tuple[int | None, ...]],
    dict[str, dict[str, object]],
]:
    """``shapes`` and ``ragged`` with sizes for names, and for every name its ``size`` and the axes
    that it is ``of``; ``batch`` is the batch size, unless it is given another.

    Raises :class:`UsageError` for a name without a size, and for a size that nothing uses.

    >>> resolve_shapes({"ids": ["B", 128]}, {"B": 8})
    ({'ids': (8, 128)}, {}, {'B': {'size': 8, 'of': ['ids:0']}})
    """
    sizes, axes = dict(dims or {}), dict[str, list[str]]()
    known = sizes if batch_size is None else {BATCH: batch_size, **sizes}
    resolved: list[dict[str, tuple[int | None, ...]]] = []
    for given in (shapes, ragged):
        resolved.append({})
        for key, shape in (given or {}).items():
            resolved[-1][key] = tuple(_size(key, size, known) for size in shape)
            for axis, size in enumerate(shape):
                if isinstance(size, str):
                    axes.setdefault(size, []).append(f"{key}:{axis}")
    for name, size in sizes.items():
        if size < 0:
            raise UsageError(f"the size of {name} is {size}; give a whole number of 0 or more")
    unused = [name for name in sizes if name not in axes]
    if unused:
        raise UsageError(
            f"no shape uses {unused[0]} (--dim {unused[0]}={sizes[unused[0]]}): use it in a "
            f"shape, as in --shape INPUT={unused[0]}x128"
        )
    found = {name: {"size": known[name], "of": uses} for name, uses in axes.items()}
    return resolved[0], resolved[1], dict[str, dict[str, object]](found)


def _size(key: str, size: int | str | None, sizes: Mapping[str, int]) -> int | None:
    if not isinstance(size, str):
        return size
    if size not in sizes:
        if size == BATCH:
            raise UsageError(
                f"the shape of {key!r} has the batch as a dimension: add --batch-size 32"
            )
        if not size.isidentifier():
            raise UsageError(
                f"the shape of {key!r} has a dimension {size!r}: in Python a shape is a tuple of "
                "numbers and names, such as (8, 'T')"
            )
        raise UsageError(
            f"the shape of {key!r} has a dimension {size!r} without a size: add --dim {size}=128"
        )
    return sizes[size]
