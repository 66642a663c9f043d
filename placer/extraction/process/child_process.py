"""The process that reads models: what is asked of it, and what to say where it gives no answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from placer.errors import ModelError
from placer.extraction.extraction import Extraction
from placer.extraction.process.requests import (
    ExtractionRequest,
    FetchRequest,
    KerasRequest,
    too_large,
)
from placer.processes import Child, Ending, Outcome

TASKS = "placer.extraction.process.reading_tasks"
ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
LOADED_AHEAD = (
    "placer.extraction.graph_defs.tensorflow_core:load_libraries_meanwhile",
    f"{TASKS}:prepare",
)

IN_INFERENCE = "only shape inference is left"
"""What the process tells when it comes that far."""

_OUT_OF_MEMORY = (
    "pthread_create",
    "StartThread",
    "bad_alloc",
    "MemoryError",
    "annot allocate memory",
)
"""Last words of a process that was refused memory (of TensorFlow, which starts threads, of the C++
library, Python and Linux)."""

Request = ExtractionRequest | KerasRequest | FetchRequest


def run_extraction(request: ExtractionRequest, time_limit_seconds: float) -> Extraction:
    """What the reading process finds for ``request``.

    If it dies or runs out of time while it infers shapes, it is asked again without inference.
    Raises its :class:`PlacerError`, or :class:`ModelError` if it ends without one.
    """
    outcome = _ask("extract_program", request, time_limit_seconds)
    if outcome.ending is not Ending.ANSWERED and outcome.answer == IN_INFERENCE:
        request = replace(request, infer=False, reason=_reason(request, outcome))
        outcome = _ask("extract_program", request, time_limit_seconds)
    found: Extraction = _answer(request, outcome)
    return found


def export_keras(request: KerasRequest, time_limit_seconds: float) -> None:
    """Writes a Keras file as a SavedModel; errors as for :func:`run_extraction`."""
    _answer(request, _ask("export_keras", request, time_limit_seconds))


def fetch(request: FetchRequest, time_limit_seconds: float) -> None:
    """Copies a remote file or folder; errors as for :func:`run_extraction`."""
    _answer(request, _ask("fetch", request, time_limit_seconds))


_ahead: list[Child] = []
"""The process that waits for its request, if there is one."""


def start_ahead() -> None:
    """Starts the process that will be asked next: it loads libraries while this one is busy."""
    if not _ahead:
        _ahead.append(Child(ENVIRONMENT, LOADED_AHEAD))


def _ask(task: str, request: Request, time_limit_seconds: float) -> Outcome:
    start_ahead()
    return _ahead.pop().ask(f"{TASKS}:{task}", request, time_limit_seconds)


def _answer(request: Request, outcome: Outcome) -> Any:
    if outcome.ending is not Ending.ANSWERED:
        raise ModelError(f"the model could not be read: {_reason(request, outcome)}")
    return outcome.answer


def _reason(request: Request, outcome: Outcome) -> str:
    """Why there is no answer: often because the process asked for more than it may take."""
    if not isinstance(request, FetchRequest):
        limit = request.memory_limit_bytes
        refused = any(words in outcome.last_words for words in _OUT_OF_MEMORY)
        if refused or outcome.peak_bytes > limit:
            return too_large(limit)
    return outcome.reason
