"""A model in, its flat graph with shapes and constraints out."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from placer.errors import UsageError
from placer.extraction.division.division import Division
from placer.extraction.extraction import Extraction, ProgramChoice
from placer.extraction.files.sources import model_file
from placer.extraction.process.child_process import (
    ExtractionRequest,
    FileSource,
    LiveSource,
    memory_limit,
    run_extraction,
)
from placer.extraction.process.local_models import local_model
from placer.extraction.shapes.binding import NamedShape, resolve_shapes
from placer.graph.program_source import Bindings

TIME_LIMIT_SECONDS = 120.0


def extract(
    source: Any,
    *,
    tag_set: str | None = None,
    signature: str | None = None,
    outputs: Sequence[str] | None = None,
    batch_size: int | None = None,
    shapes: Mapping[str, NamedShape] | None = None,
    dims: Mapping[str, int] | None = None,
    ragged: Mapping[str, NamedShape] | None = None,
    allow_unsafe: bool = False,
    follow_links: bool = False,
    division: Division | None = None,
    splits: Mapping[str, int] | None = None,
    time_limit_seconds: float = TIME_LIMIT_SECONDS,
) -> Extraction:
    """The flat graph of a model, with shapes, variables, colocation groups and bodies.

    ``source`` is a path (SavedModel folder, GraphDef, MetaGraphDef, checkpoint with its ``.meta``,
    Keras file, also remote), a ConcreteFunction, a ``tf.function``, a Keras model, a GraphDef or a
    ``tf.Graph``.  ``batch_size`` binds unknown leading dimensions of the inputs, ``shapes`` maps an
    input's key (or any op of the flat graph) to its shape, in which a dimension may be ``None`` (as
    declared) or a name out of ``dims``; ``ragged`` maps the name of a ragged or sparse input to its
    rows and the mean lengths of rows, ``{"ids": (32, 50)}``.

    A file is read by a child process with a time limit, so that this process imports no
    TensorFlow and no file can bring it down.  Live sources are flattened here, and analysed by a
    child only if dimensions are unknown.  A Keras file that would run code of its own is refused
    unless ``allow_unsafe``, a link that leads out of the model's folder unless ``follow_links``.
    With ``division`` the graph is that of the program in parts; with ``splits`` variables of a file
    are split by rows into so many parts.

    Raises :class:`ModelError` for a model that cannot be read, :class:`UsageError` for a request
    that does not fit it, :class:`ShapeError` for bindings that do not fit it.
    """
    # what is asked, as a child process takes it
    sizes, lengths, named = resolve_shapes(shapes, dims, ragged, batch_size)
    bindings = Bindings(batch_size=batch_size, shapes=sizes, dims=named, ragged=lengths)
    choice = ProgramChoice(tag_set=tag_set, signature=signature, outputs=outputs)

    def ask(found: FileSource | LiveSource, size_bytes: int) -> Extraction:
        limit = memory_limit(size_bytes)
        request = ExtractionRequest(
            source=found, bindings=bindings, division=division, memory_limit_bytes=limit
        )
        return run_extraction(request, time_limit_seconds)

    # a file that the child can read, or something of this process
    if isinstance(source, str | os.PathLike):
        access = {"allow_unsafe": allow_unsafe, "follow_links": follow_links}
        with local_model(source, weights=False, splits=splits, **access) as model:
            size_bytes = model_file(model.path).stat().st_size
            found = ask(FileSource(path=str(model.path), choice=choice), size_bytes)
            return model.describe(found)

    if splits:
        told = "only programs in files can have their tables split"
        raise UsageError(f"{told}: save this one (tf.saved_model.save) and give its path")
    return _extract_live(source, choice, bindings, division, ask)


def _extract_live(
    source: Any,
    choice: ProgramChoice,
    bindings: Bindings,
    division: Division | None,
    ask: Callable[[LiveSource, int], Extraction],
) -> Extraction:
    """The extraction of what lives in this process; ``ask`` has a child analyse it."""
    from placer.extraction.analysis import analyse_program
    from placer.extraction.divisibility.divisibility import with_inputs
    from placer.extraction.division.dividing import divided
    from placer.extraction.reading.loading import load_program
    from placer.extraction.reading.portable_programs import pack_program
    from placer.extraction.shapes.binding import capture_states

    program = load_program(source, **choice)
    if choice["tag_set"] or choice["signature"] not in (None, "", program.signature):
        raise UsageError(
            "tag_set and signature are for SavedModels, not for programs in memory: leave them "
            "out, or give the path of a SavedModel"
        )
    captures = capture_states(program)
    if division is not None:
        division = with_inputs(division, program, bindings["shapes"])
        in_parts = divided(program, division)
        parts = pack_program(in_parts, capture_states(in_parts))
        return ask(LiveSource(program=parts, whole=pack_program(program, captures)), len(parts))
    is_open = any(item.shape is None or None in item.shape for item in program.inputs)
    if not is_open and not bindings["shapes"]:
        return analyse_program(program, captures, **bindings)
    packed = pack_program(program, captures)
    return ask(LiveSource(program=packed), len(packed))
