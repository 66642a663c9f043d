"""The machine code of the searches: made once per user, before a search that needs it.

Each part is compiled by a process of its own (:mod:`placer.solving.warm_up`), two at once, into a
folder that is named after what it was compiled from and for.  The clock of the search stands still
as long as one has to wait for that.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import platform
import stat
import sys
import tempfile
import threading
from importlib import metadata
from pathlib import Path

from placer.errors import PlacerError
from placer.processes import run_task
from placer.solving.process.clock import standing_still

ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

TRANSFER = "placer.solving.transfer.transfer_process:search_transfer"
PEAKS = "placer.solving.peaks.search:search_peaks"
THROUGHPUT = "placer.solving.objectives.throughput.search:search_loads"
STEP_TIME = "placer.solving.objectives.step_time.search:search_steps"
STEP_PEAKS = "placer.solving.peaks.step_search:search_step_peaks"

PARTS = {
    TRANSFER: ("transfer", "moves"),
    PEAKS: ("transfer", "moves", "peaks"),
    THROUGHPUT: ("transfer", "moves", "throughput"),
    STEP_TIME: ("transfer", "moves", "step_time"),
    STEP_PEAKS: ("transfer", "moves", "step_time"),
}
"""The parts of :mod:`placer.solving.warm_up` that a search needs."""

_LIMIT_SECONDS = 600.0

_two_at_once = threading.Semaphore(min(2, os.cpu_count() or 1))

_LOG = logging.getLogger(__name__)

failures: dict[str, str] = {}
"""Why parts could not be compiled ahead, by part: they are left to the search."""


def warm_up(*searches: str) -> list[threading.Thread]:
    """Begins to compile what these searches need, each part once; returns what has not ended yet.

    Other work can go on meanwhile.
    """
    parts = dict.fromkeys(part for search in searches for part in PARTS.get(search, ()))
    threads = (_begin(part) for part in parts)
    return [thread for thread in threads if thread is not None and thread.is_alive()]


def await_compiled(search: str) -> None:
    """Returns when what the search needs is compiled; the clock of searches stands still."""
    with standing_still():
        if threads := warm_up(search):
            _LOG.info("compiling the search, once")
            for thread in threads:
                thread.join()


def code_environment() -> dict[str, str]:
    """The environment in which a process finds the machine code, or leaves it there."""
    return {"NUMBA_CACHE_DIR": str(_code_folder())}


def done_mark(folder: Path, part: str) -> Path:
    """The file that says that a part is compiled."""
    return folder / f"{part}.done"


@functools.cache
def _begin(part: str) -> threading.Thread | None:
    """The thread that waits for a process that compiles the part; none if that has been done."""
    if done_mark(_code_folder(), part).exists():
        return None
    thread = threading.Thread(target=_compile, args=(part,), daemon=True)
    thread.start()
    return thread


if hasattr(os, "register_at_fork"):  # threads that compile are not in the child
    os.register_at_fork(after_in_child=_begin.cache_clear)


def _compile(part: str) -> None:
    folder = str(_code_folder())
    environment = {**ONE_THREAD, "NUMBA_CACHE_DIR": folder}
    try:
        with _two_at_once:
            task = "placer.solving.warm_up:compile_part"
            reason = run_task(task, (folder, part), _LIMIT_SECONDS, environment).reason
    except (PlacerError, OSError) as error:
        reason = str(error)
    if reason:
        failures[part] = reason
        _LOG.warning("%s was not compiled ahead: %s", part, reason)


@functools.cache
def _code_folder() -> Path:
    """In ``NUMBA_CACHE_DIR`` or the user's folder for caches, else a temporary one."""
    for parent in _cache_folders():
        folder = parent / f"code-{_code_version()}"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _is_ours(folder):
                return folder
        except OSError:
            continue
    return Path(_temporary_folder().name)


def _cache_folders() -> list[Path]:
    named = os.environ.get("NUMBA_CACHE_DIR")
    folders = [Path(named)] if named else []
    home = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(home):  # as the XDG Base Directory Specification has it
        return [*folders, Path(home) / "placer"]
    try:
        return [*folders, Path.home() / ".cache" / "placer"]
    except RuntimeError:  # a user without a home
        return folders


def _is_ours(folder: Path) -> bool:
    """Whether this user can write there and others cannot: machine code is run as it is found."""
    found = folder.lstat()
    others = stat.S_IWGRP | stat.S_IWOTH
    is_own = found.st_uid == os.getuid() and not found.st_mode & others
    return stat.S_ISDIR(found.st_mode) and is_own and os.access(folder, os.W_OK | os.X_OK)


@functools.cache
def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """Removed when this process ends."""
    return tempfile.TemporaryDirectory(prefix="placer-code-", ignore_cleanup_errors=True)


def _code_version() -> str:
    """A hash of all that machine code depends on: its sources, Python, Numba, the processor."""
    sources = Path(__file__).parents[1] / "compiled"
    digest = hashlib.blake2b(digest_size=8)
    for source in sorted(sources.glob("*.py")):
        digest.update(source.read_bytes())
    try:  # what tells processors apart that have different instructions
        lines = Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines()
        processor = [line for line in lines if line.startswith(("model name", "flags", "Features"))]
    except OSError:
        processor = [platform.machine() + platform.processor()]
    traits = (str(sources), sys.version, metadata.version("numba"), metadata.version("numpy"))
    digest.update("\n".join((*traits, *processor)).encode())
    return digest.hexdigest()
