"""The machine code of the searches: made once per user, before a search that needs it.

Each part is compiled by a process of its own (:mod:`placer.solving.warm_up`), as many at once as
there are cores, into a folder that is named after what it was compiled from and for.  The clock of
the search stands still as long as one has to wait for that.
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
"""What a search needs: the functions ``compile_...`` of :mod:`placer.solving.warm_up`."""

_LIMIT_SECONDS = 600.0
_MOST_AT_ONCE = 2
"""There are two parts that every search needs."""

_LOG = logging.getLogger(__name__)


def code_environment() -> dict[str, str]:
    """What a process needs to find the machine code, or to leave it there."""
    return {"NUMBA_CACHE_DIR": str(_compiler().folder)}


def begin_compiling(*searches: str) -> None:
    """Begins to compile what these searches need, if it is not there: other work can go on."""
    for search in searches:
        for part in PARTS.get(search, ()):
            _compiler().begin(part)


def failures() -> dict[str, str]:
    """Why parts could not be compiled ahead, by part."""
    return dict(_compiler().failed)


def await_compiled(search: str) -> None:
    """Returns when what the search needs is compiled; the clock of searches stands still."""
    compiler = _compiler()
    if any(not compiler.is_done(part) for part in PARTS.get(search, ())):
        with standing_still():
            _LOG.info("compiling the search, once")
            begin_compiling(search)
            for part in PARTS[search]:
                compiler.wait(part)


class _Compiler:
    """Compiles parts into ``folder``, and tries each once: what cannot be compiled ahead is left to
    the search."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._turns = threading.Semaphore(min(_MOST_AT_ONCE, os.cpu_count() or 1))
        self._threads: dict[str, threading.Thread] = {}
        self.failed: dict[str, str] = {}

    def begin(self, part: str) -> None:
        """Has a thread wait for a process that compiles the part, if nobody has done it."""
        with self._lock:
            if part not in self._threads and not done_mark(self.folder, part).exists():
                thread = threading.Thread(target=self._compile, args=(part,), daemon=True)
                self._threads[part] = thread
                thread.start()

    def is_done(self, part: str) -> bool:
        """Whether there is nothing to wait for."""
        thread = self._threads.get(part)
        if thread is not None:
            return not thread.is_alive()
        return done_mark(self.folder, part).exists()

    def wait(self, part: str) -> None:
        """Returns when the part is compiled, or cannot be."""
        if part in self._threads:
            self._threads[part].join()

    def _compile(self, part: str) -> None:
        task = f"placer.solving.warm_up:compile_{part}"
        environment = {**ONE_THREAD, "NUMBA_CACHE_DIR": str(self.folder)}
        try:
            with self._turns:
                outcome = run_task(task, str(self.folder), _LIMIT_SECONDS, environment)
            reason = outcome.reason
        except (PlacerError, OSError) as error:
            reason = str(error)
        if reason:
            self.failed[part] = reason
            _LOG.warning("%s was not compiled ahead: %s", part, reason)


def done_mark(folder: Path, part: str) -> Path:
    """The file that says that a part is compiled."""
    return folder / f"{part}.done"


@functools.cache
def _compiler() -> _Compiler:
    return _Compiler(_code_folder())


if hasattr(os, "register_at_fork"):  # threads that compile are not in the child
    os.register_at_fork(after_in_child=_compiler.cache_clear)


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
    """Of all that machine code depends on: its sources, Python, Numba, the processor."""
    sources = Path(__file__).parents[1] / "compiled"
    digest = hashlib.blake2b(digest_size=8)
    for source in sorted(sources.glob("*.py")):
        digest.update(source.read_bytes())
    traits = (str(sources), sys.version, metadata.version("numba"), metadata.version("numpy"))
    digest.update("\n".join((*traits, _processor())).encode())
    return digest.hexdigest()


def _processor() -> str:
    """What tells processors apart that have different instructions."""
    try:
        lines = Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines()
    except OSError:
        return platform.machine() + platform.processor()
    return "\n".join(line for line in lines if line.startswith(("model name", "flags", "Features")))
