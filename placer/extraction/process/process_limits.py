"""What the process of an extraction may take: memory by the size of the file, no longer a life
than its parent's."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cost_models.byte_sizes import parse_bytes
from placer.errors import UsageError
from placer.extraction.files.keras_files import is_keras_file
from placer.extraction.files.sources import model_file

BASE_BYTES = 4 * 2**30
"""A graph of 100,000 ops takes 1.2 GiB, TensorFlow itself included (benchmarks/graph_size)."""

BYTES_PER_FILE_BYTE = 32

BYTES_PER_CORE = 64 * 2**20
"""TensorFlow starts threads by the number of cores, and Linux counts their stacks whole."""

MEMORY_VARIABLE = "PLACER_READING_MEMORY"
"""The environment variable that gives another limit, as in ``32GiB``."""

_PR_SET_PDEATHSIG = 1
_PRCTL = getattr(ctypes.CDLL(None), "prctl", None) if os.name == "posix" else None


def memory_limit(request: Mapping[str, Any]) -> int:
    """Bytes that reading may take beside what importing TensorFlow takes.

    Raises :class:`UsageError` if :data:`MEMORY_VARIABLE` is no size.
    """
    given = os.environ.get(MEMORY_VARIABLE)
    if given:
        try:
            return parse_bytes(given)
        except ValueError as error:
            raise UsageError(f"the environment variable {MEMORY_VARIABLE}: {error}") from error
    size = _program_bytes(request)
    stacks = BYTES_PER_CORE * (os.cpu_count() or 1)
    return BASE_BYTES + stacks + BYTES_PER_FILE_BYTE * size


def _program_bytes(request: Mapping[str, Any]) -> int:
    """The size of a Keras file or folder, of the file with the graph, or of a live graph."""
    if "program" in request:
        return len(request["program"].graph_def)
    path = Path(request["path"])
    if not is_keras_file(path):
        return model_file(path).stat().st_size
    files = path.iterdir() if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files)


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


def end_with_parent(parent: int) -> None:
    """Ends this process when process ``parent`` ends, even inside a long call (on Linux)."""
    if _PRCTL is None:
        return
    _PRCTL(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before
        os.kill(os.getpid(), signal.SIGKILL)
