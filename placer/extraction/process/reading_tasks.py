"""Tasks of the process that reads models (:mod:`placer.extraction.process.child_process`)."""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from placer.extraction.divisibility.divisibility import require_divisible, with_inputs
from placer.extraction.division.dividing import divided
from placer.extraction.extraction import Extraction
from placer.extraction.flat_program import analyse_program
from placer.extraction.graph_defs.program import FlatProgram
from placer.extraction.graph_defs.tensor_states import TensorState
from placer.extraction.graph_defs.tensorflow_core import allow_parts, import_core
from placer.extraction.process.child_process import (
    ExtractionRequest,
    FetchRequest,
    FileSource,
    KerasRequest,
    SplitRequest,
    limit_memory,
)
from placer.extraction.reading.loading import load_program
from placer.extraction.reading.portable_programs import unpack_program
from placer.processes import Tell

RECURSION_LIMIT = 10_000
"""Calls may nest as deep as :mod:`placer.extraction.graph_defs.call_scopes` allows."""


def prepare() -> None:
    """Sets the interpreter up for graphs, whose functions call each other."""
    sys.setrecursionlimit(RECURSION_LIMIT)


def export_keras(request: KerasRequest, _: Tell) -> None:
    """Writes a Keras file as a SavedModel."""
    from placer.extraction.files.keras_export import export_keras_file, require_safe

    if not request.allow_code:
        require_safe(request.path)
    importlib.import_module("tensorflow")
    limit_memory(request.memory_limit_bytes)
    folder = Path(tempfile.gettempdir())
    export_keras_file(request.path, request.target, folder, allow_code=request.allow_code)


def split_tables(request: SplitRequest, _: Tell) -> None:
    """Writes a model with its tables split."""
    from placer.extraction.splitting.split_models import split_model

    allow_parts(then=partial(limit_memory, request.memory_limit_bytes))
    import_core()
    split_model(request.path, request.counts, request.target, weights=request.weights)


def fetch(request: FetchRequest, _: Tell) -> None:
    """Copies a remote file or folder to this machine."""
    from placer.extraction.process.local_models import fetch_path

    allow_parts()
    import_core()
    fetch_path(request.path, request.target, weights=request.weights)


def extract_program(request: ExtractionRequest, tell: Tell) -> Extraction:
    """Returns the extraction for a request; tells the caller when only shapes are left to infer."""
    from google.protobuf.message import EncodeError

    allow_parts(then=partial(limit_memory, request.memory_limit_bytes))
    try:
        program, captures = _program(request)
        found = analyse_program(
            program,
            captures,
            **request.bindings,
            infer=request.infer,
            reason=request.reason,
            before_inference=partial(tell, None),
        )
        return replace(found, graph=replace(found.graph))  # without what it was asked
    except EncodeError as error:  # what protobuf 5 says where its memory ends
        raise MemoryError("no memory to write a message of protobuf") from error


def _program(request: ExtractionRequest) -> tuple[FlatProgram, Mapping[str, TensorState]]:
    """Returns the program, in parts if there is a division, which must give the results of the
    whole."""
    source, division = request.source, request.division
    captures: Mapping[str, TensorState] = {}
    held = captures
    if isinstance(source, FileSource):
        fingerprinted = division is not None  # else while shapes are inferred
        program = load_program(source.path, **source.choice, fingerprinted=fingerprinted)
        whole = program
    else:
        import_core()
        program, captures = unpack_program(source.program)
        whole, held = program, captures
        if source.whole is not None:
            whole, held = unpack_program(source.whole)
    if division is None:
        return program, captures
    division = with_inputs(division, whole, request.bindings["shapes"])
    require_divisible(whole, held, division, request.bindings)
    return (divided(program, division) if program is whole else program), captures
