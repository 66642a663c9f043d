"""Input values for a run: what the caller gives, the rest made up, always the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy

from cost_models.byte_sizes import format_count
from placer.application.running.even_rows import even_rows
from placer.application.running.made_up_texts import DEFAULT_DIMENSION, TextMaker
from placer.application.running.text_readers import fed_texts
from placer.errors import UsageError
from placer.extraction.graph_defs.program import FlatProgram, ProgramInput
from placer.extraction.graph_defs.tensor_states import sharpen_shape
from placer.extraction.shapes.composite_shapes import find_wholes, shape_parts
from placer.graph.program_source import Bindings

Array = Any
"""A numpy array, or a tensor of TensorFlow."""

Given = Mapping[str, Array] | Sequence[Array] | None
"""Values of some inputs by key, or of all in order."""


def input_values(
    program: FlatProgram,
    given: Given = None,
    bindings: Bindings | None = None,
    seed: int = 0,
) -> dict[str, numpy.ndarray[Any, Any]]:
    """An array for each input of ``program``, by key.

    ``given`` maps keys to values, or lists values in order; ``bindings`` are a plan's:
    ``batch_size`` for unknown first dimensions, ``shapes`` by key, ``ragged`` by whole.
    Values that are not given are random: floats in [0, 1), integers 0 or 1, strings ``"abc"`` or,
    where the program parses or decodes them, serialised ``tf.Example`` messages with its features,
    pictures or sounds; the rows of a ragged or sparse tensor are about equally long.
    Raises :class:`UsageError` for a key that is no input, for values of another shape or kind, and
    for a dtype that has no values.
    """
    known = [item.key for item in program.inputs]
    given, bindings = _by_key(given, known), bindings or {}
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise UsageError(
            f"there is no input {unknown[0]!r}; the inputs are {', '.join(known) or 'none'}"
        )
    random = numpy.random.default_rng(seed)
    values = {
        item.key: _checked(item, given[item.key]) for item in program.inputs if item.key in given
    }
    shapes = bound_shapes(program, bindings) | {key: value.shape for key, value in values.items()}
    batch_size, ragged = bindings.get("batch_size") or 1, bindings.get("ragged") or {}
    even = even_rows(program.inputs, shapes, batch_size, ragged)
    texts = [i.op for i in program.inputs if i.key not in values and i.dtype == "string"]
    maker = None
    if texts:
        asked = bindings.get("shapes") or {}
        maker = TextMaker(fed_texts(program.graph_def, texts), ragged, asked, random)
    for item in program.inputs:
        if item.key not in values:
            found = even.get(item.key)
            if item.op in texts and maker is not None:
                found = maker.texts(item.op, shapes[item.key])
            values[item.key] = (
                _generated(item, shapes[item.key], random) if found is None else found
            )
    return {item.key: values[item.key] for item in program.inputs}


def batch_like(source: Any, specs: Any, data: Any, bindings: Bindings) -> Any:
    """A batch like ``specs``, which the function ``source`` takes, as tensors: the first examples
    of ``data`` where it has as many, else random values."""
    import tensorflow as tf

    from placer.extraction.reading.loading import load_program

    flat = tf.nest.flatten(specs, expand_composites=True)
    size, rows = bindings.get("batch_size") or 1, list[Array]()
    if data is not None and not hasattr(data, "element_spec"):
        rows = [row for row in tf.nest.flatten(data) if row is not None]
    if rows and all(hasattr(row, "__array__") and len(row) >= size for row in rows):
        values = iter([numpy.asarray(row[:size]) for row in rows])
    else:
        values = iter(input_values(load_program(source), None, bindings).values())
    made = [spec and tf.convert_to_tensor(next(values), spec.dtype) for spec in flat]
    return tf.nest.pack_sequence_as(specs, made, expand_composites=True)


def _by_key(given: Given, known: list[str]) -> Mapping[str, Array]:
    if given is None or isinstance(given, Mapping):
        return given or {}
    if isinstance(given, numpy.ndarray) or hasattr(given, "numpy"):
        given = (given,)
    if not hasattr(given, "__len__"):
        raise UsageError(f"inputs must be a mapping or a list of values; got {given!r}")
    if len(given) != len(known):
        raise UsageError(
            f"the model takes {format_count(len(known), 'input')} ({', '.join(known)}), got "
            f"{format_count(len(given), 'value')}"
        )
    return dict(zip(known, given, strict=True))


def _checked(item: ProgramInput, value: Any) -> numpy.ndarray[Any, Any]:
    """The value that is given for an input, as an array of its dtype."""
    import tensorflow as tf

    try:
        found = numpy.asarray(value, tf.as_dtype(item.dtype).as_numpy_dtype)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"the values given for input {item.key!r} cannot be made {item.dtype}: {error}"
        ) from None
    declared = item.shape
    if declared is None:
        return found
    sizes = [None if size is None or size < 0 else size for size in declared]
    fits = len(sizes) == found.ndim and all(
        size in (None, there) for size, there in zip(sizes, found.shape, strict=True)
    )
    if not fits:
        declared_text = ", ".join("?" if size is None else str(size) for size in sizes)
        raise UsageError(
            f"the values given for input {item.key!r} have shape {list(found.shape)}; the model "
            f"takes [{declared_text}]"
        )
    return found


def bound_shapes(program: FlatProgram, bindings: Bindings) -> dict[str, tuple[int, ...]]:
    """The shapes of the inputs by key, with every dimension known."""
    batch_size = bindings.get("batch_size")
    parts = shape_parts(program.inputs, batch_size or 1, bindings.get("ragged")).shapes
    asked = bindings.get("shapes") or {}
    found = {}
    for item in program.inputs:
        stated = asked.get(item.key)
        declared = item.shape if stated is None else tuple(stated)
        declared = sharpen_shape(declared, parts.get(item.key)) or ()
        first = DEFAULT_DIMENSION if item.part else batch_size or 1
        found[item.key] = tuple(
            size if size is not None and size >= 0 else (DEFAULT_DIMENSION if number else first)
            for number, size in enumerate(declared)
        )
    return found


def default_shapes(program: FlatProgram) -> list[str]:
    """The sparse inputs whose shape is a ``PlaceholderWithDefault``, ``NAME/shape``."""
    nodes = {n.name for n in program.graph_def.node if n.op == "PlaceholderWithDefault"}
    return [
        whole
        for whole, parts in find_wholes(program.inputs).items()
        if f"{whole}/shape" in nodes
        and parts[0][1].shape
        and {part.role for _, part in parts} == {"indices", "values"}
    ]


def default_feeds(
    program: FlatProgram, values: Mapping[str, Array], bindings: Bindings | None = None
) -> dict[str, numpy.ndarray[Any, Any]]:
    """The shapes of version 1's sparse placeholders, by tensor, as far as their default is open.

    ``values`` are those of the inputs by key.  Whoever feeds a sparse value feeds its shape too;
    the default of ``tf.compat.v1.sparse_placeholder`` has -1 for a batch.
    """
    found = {}
    wholes = find_wholes(program.inputs)
    for whole in default_shapes(program):
        parts = wholes[whole]
        keys = {part.role: item.key for item, part in parts}
        shape = parts[0][1].shape or ()
        indices = numpy.asarray(values[keys["indices"]])
        reached = indices.max(axis=0) + 1 if len(indices) else numpy.zeros(len(shape), int)
        rows = max(int(reached[0]), (bindings or {}).get("batch_size") or 0)
        sizes = [rows, *map(int, reached[1:])]
        dense = [size if known is None else known for size, known in zip(sizes, shape, strict=True)]
        found[f"{whole}/shape:0"] = numpy.array(dense, "int64")
    return found


def guesses(
    program: FlatProgram,
    given: Given,
    bindings: Bindings,
) -> str:
    """The inputs whose made-up values have dimensions that nothing states, in words."""
    named = _by_key(given, [item.key for item in program.inputs])
    shapes = bound_shapes(program, bindings)
    return ", ".join(
        f"{item.key} as {list(shapes[item.key])}"
        for item in program.inputs
        if item.key not in named and _is_guessed(item, bindings)
    )


def open_batches(program: FlatProgram, bindings: Bindings) -> list[str]:
    """Returns the inputs whose first dimension only a batch size binds, ragged ones aside."""
    asked = bindings.get("shapes") or {}
    shapes = {i.key: asked.get(i.key, i.shape) for i in program.inputs if i.part is None}
    return [key for key, shape in shapes.items() if shape and (shape[0] is None or shape[0] < 0)]


def made_up_texts(program: FlatProgram, given: Given) -> str:
    """A sentence on the inputs of strings whose values are made up; ``""`` if there are none."""
    named = _by_key(given, [item.key for item in program.inputs])
    texts = [i.key for i in program.inputs if i.dtype == "string" and i.key not in named]
    return (
        f"Strings were made up for {', '.join(texts)}: 'abc', or a tf.Example message, a picture "
        "or a sound where the model decodes one. If it expects others, give them with --inputs"
        if texts
        else ""
    )


def _is_guessed(item: ProgramInput, bindings: Bindings) -> bool:
    asked = (bindings.get("shapes") or {}).get(item.key)
    shape = item.shape if asked is None else asked
    if item.part is not None and item.part.of in (bindings.get("ragged") or {}):
        return False
    if shape is None:
        return True
    first = int(bool(bindings.get("batch_size")))
    return any(size is None or size < 0 for size in shape[first:])


def _generated(
    item: ProgramInput, shape: tuple[int, ...], random: numpy.random.Generator
) -> numpy.ndarray[Any, Any]:
    import tensorflow as tf

    dtype = tf.dtypes.as_dtype(item.dtype)
    if dtype == tf.string:
        return numpy.full(shape, b"abc", object)
    if dtype.is_bool or dtype.is_integer:
        return random.integers(0, 2, shape).astype(dtype.as_numpy_dtype)
    if dtype.is_floating or dtype.is_complex:
        return random.random(shape).astype(dtype.as_numpy_dtype)
    raise UsageError(
        f"input {item.key!r} is a {item.dtype}, which cannot be made up; give it with --inputs"
    )


def stand_in_weights(index: int, shape: tuple[int, ...], dtype: Any) -> numpy.ndarray[Any, Any]:
    """Made-up values for variable number ``index`` of a model that comes without weights.

    Positive and scaled by the fan-in, so that deep networks neither vanish nor overflow and
    second moments stay valid; integers and the like are 0.
    """
    if not (dtype.is_floating or dtype.is_complex):
        return numpy.zeros(shape, dtype.as_numpy_dtype)
    random = numpy.random.default_rng(index)
    if len(shape) < 2:
        values = random.uniform(0.5, 1.5, shape)
    else:
        values = random.uniform(0.0, 2.0 / max(1, int(numpy.prod(shape[:-1]))), shape)
    return numpy.asarray(values).astype(dtype.as_numpy_dtype)
