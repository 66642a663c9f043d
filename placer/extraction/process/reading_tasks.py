"""Tasks of the process that reads models (:mod:`placer.extraction.process.child_process`)."""

import importlib.util
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from placer.errors import ModelError, some
from placer.extraction.analysis import analyse_program
from placer.extraction.divisibility.divisibility import require_divisible, with_inputs
from placer.extraction.division.dividing import divided
from placer.extraction.extraction import Extraction
from placer.extraction.files.keras_files import (
    foreign_code,
    foreign_files,
    keras_suffix,
    keras_version,
    modernised,
    read_config,
)
from placer.extraction.files.model_paths import ALLOW_UNSAFE, without_copies
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
from placer.extraction.reading.keras_two import is_keras_two
from placer.extraction.reading.loading import load_program
from placer.extraction.reading.portable_programs import unpack_program
from placer.processes import Tell


def prepare() -> None:
    """Sets the interpreter up for graphs, whose functions call each other."""
    sys.setrecursionlimit(10_000)  # for calls as deep as call_scopes.py allows


def export_keras(request: KerasRequest, _: Tell) -> None:
    """Writes a Keras file as a SavedModel."""
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


_MOST_CHARACTERS = 300


def require_safe(path: Path) -> None:
    """Raises :class:`ModelError` if loading a Keras file would run code not of Keras, or read other
    files."""
    code = foreign_code(read_config(path))
    if found := code or foreign_files(path):
        does = "run code of its own" if code else "read other files"
        raise ModelError(
            f"{str(path)!r} would {does} when loaded ({some(found, '; ')}): {ALLOW_UNSAFE}"
        )


def export_keras_file(path: Path, target: Path, folder: Path, *, allow_code: bool) -> None:
    """Writes the inference of the model in a Keras file as a SavedModel to ``target``.

    The signature ``serving_default`` has the model's inputs, their batch unknown.  ``folder`` is
    for temporary files.  Without ``allow_code`` Keras's own safe mode is on, in
    addition to :func:`require_safe`.  Raises :class:`ModelError` for what Keras cannot load.
    """
    os.environ["KERAS_BACKEND"] = "tensorflow"
    import keras

    keras.utils.disable_interactive_logging()  # Keras 3.5 has no verbose=False for export()
    try:
        model = keras.saving.load_model(
            _loadable(path, folder), compile=False, safe_mode=not allow_code
        )
    except MemoryError:
        raise
    except Exception as error:  # Keras raises anything, from KeyError to a marshal ValueError
        wrote = keras_version(path)
        model = _loaded_by_keras_two(path, folder, wrote, safe_mode=not allow_code)
        if model is None:
            raise ModelError(
                f"Keras {keras.__version__} cannot load {str(path)!r}"
                f"{f', which Keras {wrote} wrote' if wrote else ''}: {type(error).__name__}: "
                f"{without_copies(_reason(error), folder, str(path))}; build the model in Python "
                "and pass it on, or export it with the Keras that wrote it"
            ) from error
    _export(model, path, target)


def _loaded_by_keras_two(path: Path, folder: Path, wrote: str, **settings: bool) -> Any:
    """The model in a file of Keras 2, by ``tf_keras`` where that is installed; ``None`` else."""
    if not wrote.startswith("2.") or not importlib.util.find_spec("tf_keras"):
        return None
    keras_two = importlib.import_module("tf_keras")
    link = Path(tempfile.mkdtemp(dir=folder)) / f"two{keras_suffix(path)}"
    link.symlink_to(path.resolve())
    try:
        return keras_two.models.load_model(str(link), compile=False, **settings)
    except Exception:  # as above; what Keras 3 said is told
        return None


def _export(model: Any, path: Path, target: Path) -> None:
    if not getattr(model, "inputs", None):
        raise ModelError(
            f"{str(path)!r} does not say what its model takes: build it in Python, call it once, "
            "and pass it on"
        )
    try:
        if is_keras_two(model):  # its export() has no signature
            model.save(str(target), include_optimizer=False, save_format="tf")
        else:
            model.export(str(target))
    except MemoryError:
        raise
    except Exception as error:  # tracing runs the layers' own code
        raise ModelError(
            f"the model in {str(path)!r} loads, but cannot be traced: {_reason(error)}"
        ) from error


def _reason(error: Exception) -> str:
    """Returns what an error says, on one line: the innermost reason whole as far as there is room,
    what Keras says before it (a layer with its configuration) cut."""
    text = " ".join(str(error).split())
    told, found, inner = text.rpartition("Exception encountered:")  # before the reason
    if not found:
        return text[: 2 * _MOST_CHARACTERS]
    return f"{told[:_MOST_CHARACTERS].rstrip()} ... {inner.strip()[-_MOST_CHARACTERS:]}"


def _loadable(path: Path, folder: Path) -> Path:
    """The file under a name that Keras recognises; a modernised copy where it needs one."""
    config = read_config(path)
    link = Path(tempfile.mkdtemp(dir=folder)) / f"model{keras_suffix(path)}"
    new = modernised(config)
    if link.suffix != ".h5" or new == config:
        link.symlink_to(path.resolve())
        return link
    import h5py

    shutil.copyfile(path, link)
    with h5py.File(link, "r+") as file:
        file.attrs["model_config"] = json.dumps(new)
    return link
