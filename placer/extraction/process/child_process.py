"""The process that reads models: what it can be asked for, the memory that it may take, and what to
say where it gives no answer."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cost_models.byte_sizes import bytes_with_unit
from placer.errors import ModelError, UsageError
from placer.processes import Child, Ending, Outcome

if TYPE_CHECKING:
    from placer.extraction.division.division import Division
    from placer.extraction.extraction import Extraction, ProgramChoice
    from placer.graph.program_source import Bindings

TASKS = "placer.extraction.process.reading_tasks"
ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
LOADED_AHEAD = (
    "gc:disable",  # a short life, and many objects that stay
    "placer.extraction.graph_defs.tensorflow_core:load_libraries_meanwhile",
    f"{TASKS}:prepare",
)


_OUT_OF_MEMORY = (
    "pthread_create",
    "StartThread",
    "bad_alloc",
    "MemoryError",
    "annot allocate memory",
)
"""Last words of a process that was refused memory (of TensorFlow, which starts threads, of the C++
library, Python and Linux)."""

MEMORY_VARIABLE = "PLACER_READING_MEMORY"
"""The environment variable that gives another limit, as in ``32GiB``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource:
    """A model in a file on this machine."""

    path: str
    choice: ProgramChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSource:
    """A program of the caller, packed; where that is in parts, ``whole`` is the one that was
    divided."""

    program: bytes
    whole: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionRequest:
    """Extract a program, in parts if there is a ``division``; without ``infer`` by the shapes that
    the file states, for the ``reason`` given."""

    source: FileSource | LiveSource
    bindings: Bindings
    division: Division | None = None
    infer: bool = True
    reason: str = ""
    memory_limit_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KerasRequest:
    """Write a Keras file or folder as a SavedModel to ``target``."""

    path: Path
    target: Path
    allow_code: bool
    memory_limit_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRequest:
    """Write a model to ``target`` with variables split into so many parts, unless it is split so
    already."""

    path: Path
    target: Path
    counts: Mapping[str, int]
    weights: bool
    memory_limit_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequest:
    """Copy a remote file or folder to ``target``, the shards of variables only with ``weights``."""

    path: str
    target: Path
    weights: bool


Request = ExtractionRequest | KerasRequest | SplitRequest | FetchRequest


def run_extraction(request: ExtractionRequest, time_limit_seconds: float) -> Extraction:
    """Returns the extraction that the reading process makes for ``request``.

    It tells when only the inference of shapes is left: if it dies or runs out of time then, it is
    asked again without.  Raises its :class:`PlacerError`, or :class:`ModelError` if it ends
    without one.
    """
    told: list[object] = []
    outcome = _ask("extract_program", request, time_limit_seconds, told.append)
    if outcome.ending is not Ending.ANSWERED and told:
        request = replace(request, infer=False, reason=_reason(request, outcome))
        outcome = _ask("extract_program", request, time_limit_seconds)
    found: Extraction = _answer(request, outcome)
    return found


def make_local(
    request: KerasRequest | SplitRequest | FetchRequest, time_limit_seconds: float
) -> None:
    """Exports a Keras file, splits tables or fetches a remote file; errors as for
    :func:`run_extraction`."""
    tasks = {KerasRequest: "export_keras", SplitRequest: "split_tables", FetchRequest: "fetch"}
    _answer(request, _ask(tasks[type(request)], request, time_limit_seconds))


_ahead: list[Child] = []
"""The process that waits for its request, if there is one."""


def start_reader_ahead() -> None:
    """Starts the process that will be asked next: it loads libraries while this one is busy."""
    if not _ahead:
        _ahead.append(Child(ENVIRONMENT, LOADED_AHEAD))


_blocks: list[None] = []
"""One entry for each :func:`one_reading_process` that is open."""


@contextmanager
def one_reading_process() -> Iterator[None]:
    """Requests inside of it are answered by one process, which begins to load now and ends with the
    outermost block."""
    _blocks.append(None)
    try:
        start_reader_ahead()
        yield
    finally:
        _blocks.pop()
        while _ahead and not _blocks:
            _ahead.pop().close(wait=False)


def _ask(
    task: str,
    request: Request,
    time_limit_seconds: float,
    told: Callable[[Any], None] | None = None,
) -> Outcome:
    start_reader_ahead()
    child, is_kept = _ahead.pop(), bool(_blocks)
    outcome = child.ask(f"{TASKS}:{task}", request, time_limit_seconds, told, keep=is_kept)
    if is_kept and outcome.ending is Ending.ANSWERED:
        _ahead.append(child)
    return outcome


def _answer(request: Request, outcome: Outcome) -> Any:
    if outcome.ending is not Ending.ANSWERED:
        raise ModelError(f"the model could not be read: {_reason(request, outcome)}")
    return outcome.answer


def _reason(request: Request, outcome: Outcome) -> str:
    """Why there is no answer: often because the process asked for more than it may take."""
    refused = any(words in outcome.last_words for words in _OUT_OF_MEMORY)
    if isinstance(request, FetchRequest):
        return outcome.reason
    limit = request.memory_limit_bytes
    if not refused and outcome.peak_bytes <= limit:
        return outcome.reason
    return (
        f"reading the model takes more than {limit / 2**30:,.3g} GiB: if it is as large as "
        f"that, allow more with the environment variable {MEMORY_VARIABLE}=32GiB"
    )


def memory_limit(size_bytes: int) -> int:
    """Bytes that reading a file of this size may take beside what importing TensorFlow takes.

    Raises :class:`UsageError` if :data:`MEMORY_VARIABLE` is not a size.
    """
    given = os.environ.get(MEMORY_VARIABLE)
    if given:
        try:
            return bytes_with_unit(given)
        except ValueError as error:
            raise UsageError(f"the environment variable {MEMORY_VARIABLE}: {error}") from error
    # TensorFlow starts threads by the number of cores, and Linux counts their stacks whole
    stacks = 64 * 2**20 * (os.cpu_count() or 1)
    # a graph of 100,000 ops takes 1.2 GiB, TensorFlow itself included (benchmarks/graph_size)
    return 4 * 2**30 + stacks + 32 * size_bytes


def limit_memory(limit_bytes: int) -> None:
    """Bounds what this process may take from now on (on Linux, where mapped files do not count)."""
    status = Path("/proc/self/statm")
    if not status.exists():
        return
    taken = int(status.read_text().split()[5]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard == resource.RLIM_INFINITY or taken + limit_bytes < hard:
        resource.setrlimit(resource.RLIMIT_DATA, (taken + limit_bytes, hard))
