"""The child process of :mod:`placer.extraction.process.child_process`.

:func:`main` reads ``FOLDER/request`` and writes ``FOLDER/answer``, a pipe, both pickled: what the
task gave, or the class and message of an error.
"""

from __future__ import annotations

import gc
import importlib
import math
import pickle
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from placer.beside import copies_allowed
from placer.errors import PlacerError
from placer.extraction.divisibility.divisibility import require_divisible, with_inputs
from placer.extraction.division.dividing import divided
from placer.extraction.extraction import Extraction
from placer.extraction.flat_program import analyse_program
from placer.extraction.graph_defs.tensorflow_core import allow_parts, import_core
from placer.extraction.process.child_process import ANSWER, INFERENCE_MARK
from placer.extraction.process.process_limits import (
    end_with_parent,
    limit_memory,
    memory_limit,
    too_large,
)
from placer.extraction.reading.loading import load_program
from placer.extraction.reading.portable_programs import unpack_program

RECURSION_LIMIT = 10_000
"""Calls may nest as deep as :mod:`placer.extraction.graph_defs.call_scopes` allows."""


def main(folder: Path) -> None:
    """Answers the request in ``folder``; there is none if the parent ended without asking."""
    if not (folder / "request").exists():
        return
    gc.disable()  # a short life, and many objects that stay
    sys.setrecursionlimit(RECURSION_LIMIT)
    tempfile.tempdir = str(folder)  # what AutoGraph writes goes with it, however this process ends
    request = pickle.loads((folder / "request").read_bytes())
    end_with_parent(request["parent"])
    if hasattr(signal, "alarm"):  # ends this process even if nobody is left to kill it
        signal.alarm(math.ceil(request["seconds"]) + 1)
    try:
        with copies_allowed():
            answer: tuple[str, Any] = "answer", _TASKS[request["task"]](request, folder)
    except PlacerError as error:
        answer = type(error).__name__, str(error)
    except MemoryError:
        answer = "ModelError", too_large(memory_limit(request))
    except Exception:  # a fault of ours: told in full by the parent, not hidden
        answer = "PlacerError", f"extraction failed unexpectedly:\n{traceback.format_exc()}"
    with (folder / ANSWER).open("wb") as stream:
        pickle.dump(answer, stream, protocol=pickle.HIGHEST_PROTOCOL)


def export_keras(request: Mapping[str, Any], folder: Path) -> None:
    """Writes the Keras file that ``request`` names as a SavedModel."""
    from placer.extraction.files.keras_export import export_keras_file, require_safe

    path, allowed = Path(request["path"]), request["allow_code"]
    if not allowed:
        require_safe(path)
    importlib.import_module("tensorflow")
    limit_memory(memory_limit(request))
    export_keras_file(path, Path(request["target"]), folder, allow_code=allowed)


def fetch(request: Mapping[str, Any], _: Path) -> None:
    """Copies the remote file or folder that ``request`` names to this machine."""
    from placer.extraction.files.remote_files import fetch_path

    allow_parts()
    import_core()
    fetch_path(request["path"], Path(request["target"]), weights=request["weights"])


def extract_program(request: Mapping[str, Any], folder: Path) -> Extraction:
    """The extraction that ``request`` asks for."""
    allow_parts(then=partial(limit_memory, memory_limit(request)))
    if "program" in request:
        import_core()
        program, captures = unpack_program(request["program"])
    else:
        chosen = {key: request[key] for key in ("tag_set", "signature", "outputs")}
        program = load_program(request["path"], **chosen, fingerprinted=False)
        captures = {}
    if request["division"] is not None:
        program = _divided(request, program, captures)
    return analyse_program(
        program,
        captures,
        batch_size=request["batch_size"],
        shapes=request["shapes"],
        dims=request["dims"],
        infer=request["infer"],
        reason=request.get("reason", ""),
        before_inference=(folder / INFERENCE_MARK).touch,
    )


def _divided(request: Mapping[str, Any], program: Any, captures: Mapping[str, Any]) -> Any:
    """The program in parts, once it is sure that they give what the whole gives."""
    shapes = request["shapes"]
    whole = unpack_program(request["whole"])[0] if "whole" in request else program
    division = with_inputs(request["division"], whole, shapes)
    sizes = {"batch_size": request["batch_size"], "shapes": shapes}
    require_divisible(whole, captures, division, **sizes)
    return program if "whole" in request else divided(program, division)


_TASKS: Mapping[str, Callable[[Mapping[str, Any], Path], Any]] = {
    "extract": extract_program,
    "export_keras": export_keras,
    "fetch": fetch,
}
