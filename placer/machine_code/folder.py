"""Where machine code is kept, for all processes of one user."""

import functools
import hashlib
import os
import platform
import sys
from importlib import metadata
from pathlib import Path

from placer.files import cache_folder

_ROOT = Path(__file__).parents[1]
_SOURCES = (
    "machine_code/*.py",
    "prediction/memory/*.py",
    "prediction/step/step_arrays.py",
    "solving/compiled/*.py",
)


@functools.cache
def code_folder() -> Path:
    """In ``NUMBA_CACHE_DIR`` or the user's folder for caches, else a temporary one; named after
    what the code was compiled from and for.  A process that has that variable keeps what it
    compiles itself in that folder directly."""
    return cache_folder(f"code-{_code_version()}", os.environ.get("NUMBA_CACHE_DIR"))


def _code_version() -> str:
    """A hash of all that machine code depends on: its sources, Python, Numba, the processor."""
    digest = hashlib.blake2b(digest_size=8)
    for pattern in _SOURCES:
        for source in sorted(_ROOT.glob(pattern)):
            digest.update(source.read_bytes())
    try:  # what tells processors apart that have different instructions
        lines = Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines()
        processor = [line for line in lines if line.startswith(("model name", "flags", "Features"))]
    except OSError:
        processor = [platform.machine() + platform.processor()]
    traits = (str(_ROOT), sys.version, metadata.version("numba"), metadata.version("numpy"))
    digest.update("\n".join((*traits, *processor)).encode())
    return digest.hexdigest()
