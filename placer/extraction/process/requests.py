"""What the process that reads models can be asked for, and the memory that it may take."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cost_models.byte_sizes import parse_bytes
from placer.errors import UsageError
from placer.extraction.files.sources import model_file

if TYPE_CHECKING:
    from placer.extraction.division.division import Division
    from placer.extraction.extraction import ProgramChoice
    from placer.extraction.reading.portable_programs import PortableProgram
    from placer.graph.program_source import Bindings

BASE_BYTES = 4 * 2**30
"""A graph of 100,000 ops takes 1.2 GiB, TensorFlow itself included (benchmarks/graph_size)."""

BYTES_PER_FILE_BYTE = 32

BYTES_PER_CORE = 64 * 2**20
"""TensorFlow starts threads by the number of cores, and Linux counts their stacks whole."""

MEMORY_VARIABLE = "PLACER_READING_MEMORY"
"""The environment variable that gives another limit, as in ``32GiB``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource:
    """A model in a file on this machine."""

    path: str
    choice: ProgramChoice

    def size_bytes(self) -> int:
        """The size of the file with the graph."""
        return model_file(Path(self.path)).stat().st_size


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSource:
    """A program of the caller; where that is in parts, ``whole`` is the one that was divided."""

    program: PortableProgram
    whole: PortableProgram | None = None

    def size_bytes(self) -> int:
        """The size of the graph."""
        return len(self.program.graph_def)


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
class FetchRequest:
    """Copy a remote file or folder to ``target``, the shards of variables only with ``weights``."""

    path: str
    target: Path
    weights: bool


def keras_bytes(path: Path) -> int:
    """The size of a Keras file or folder."""
    files = path.iterdir() if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files)


def memory_limit(size_bytes: int) -> int:
    """Bytes that reading a file of this size may take beside what importing TensorFlow takes.

    Raises :class:`UsageError` if :data:`MEMORY_VARIABLE` is no size.
    """
    given = os.environ.get(MEMORY_VARIABLE)
    if given:
        try:
            return parse_bytes(given)
        except ValueError as error:
            raise UsageError(f"the environment variable {MEMORY_VARIABLE}: {error}") from error
    stacks = BYTES_PER_CORE * (os.cpu_count() or 1)
    return BASE_BYTES + stacks + BYTES_PER_FILE_BYTE * size_bytes


def limit_memory(limit_bytes: int) -> None:
    """Bounds what this process may take from now on (on Linux, where mapped files do not count)."""
    status = Path("/proc/self/statm")
    if not status.exists():
        return
    taken = int(status.read_text().split()[5]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard == resource.RLIM_INFINITY or taken + limit_bytes < hard:
        resource.setrlimit(resource.RLIMIT_DATA, (taken + limit_bytes, hard))


def too_large(limit_bytes: int) -> str:
    """What to say of a model that takes more."""
    return (
        f"reading the model takes more than {limit_bytes / 2**30:,.3g} GiB: if it is as large as "
        f"that, allow more with the environment variable {MEMORY_VARIABLE}=32GiB"
    )
