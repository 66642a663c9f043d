"""The machine code of the searches: made once per user, before a search that needs it.

Each part is compiled by a process of its own (:mod:`placer.solving.warm_up`), two at once, into a
folder that is named after what it was compiled from and for.  The clock of the search stands still
as long as one has to wait for that.
"""

import functools
import logging
import os
import threading
import time
from pathlib import Path

from placer.errors import PlacerError
from placer.machine_code.folder import code_folder
from placer.processes import LONG_SECONDS, run_task
from placer.solving.process.clock import standing_still

ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

TRANSFER = "placer.solving.transfer.transfer_process:search_transfer"
PEAKS = "placer.solving.search.peak_search:search_peaks"
THROUGHPUT = "placer.solving.objectives.throughput.search:search_loads"
STEP_TIME = "placer.solving.objectives.step_time.search:search_steps"
STEP_PEAKS = "placer.solving.peaks.step_search:search_step_peaks"
NEEDS = "placer.prediction.memory.need:find_need"

SEARCHES = {"transfer": PEAKS, "step-time": STEP_PEAKS}
"""Under caps on peaks, along the orders, by objective."""

PARTS = {
    TRANSFER: ("transfer", "moves", "peaks"),
    PEAKS: ("transfer", "moves", "peaks"),
    THROUGHPUT: ("transfer", "moves", "throughput"),
    STEP_TIME: ("transfer", "moves", "step_time"),
    STEP_PEAKS: ("transfer", "moves", "step_time"),
    NEEDS: ("needs",),
}
"""The parts of :mod:`placer.solving.warm_up` that a search needs, or a prediction."""

_PATIENCE_SECONDS, _LOOK_SECONDS = 0.3, 0.02
"""A model that is none is known as such within the first; how often one looks whether it was."""

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


def load_needs_ahead() -> threading.Thread:
    """Loads what predicts needs while a model is read, and has it compiled the first time.

    Python waits for its threads before it ends, and none may be within LLVM then: so nothing begins
    in a moment in which a command may already have failed, and what takes long is another process.
    """
    thread = threading.Thread(target=_load_needs)
    thread.start()
    return thread


def _load_needs() -> None:
    command, patient = threading.main_thread(), time.monotonic() + _PATIENCE_SECONDS
    while command.is_alive() and (time.monotonic() < patient or warm_up(NEEDS)):
        time.sleep(_LOOK_SECONDS)
    if command.is_alive():
        from placer.prediction.memory.need import load_loops

        load_loops()


def await_compiled(search: str) -> None:
    """Returns when what a search or prediction needs is compiled; the clock stands still."""
    with standing_still():
        if threads := warm_up(search):
            _LOG.info("compiling machine code, once")
            for thread in threads:
                thread.join()


def is_compiled(search: str) -> bool:
    """Whether nothing that the search needs is left to compile."""
    return all(done_mark(code_folder(), part).exists() for part in PARTS[search])


def code_environment() -> dict[str, str]:
    """The environment in which a process finds the machine code, or leaves it there."""
    return {"NUMBA_CACHE_DIR": str(code_folder())}


def done_mark(folder: Path, part: str) -> Path:
    """The file that says that a part is compiled."""
    return folder / f"{part}.done"


@functools.cache
def _begin(part: str) -> threading.Thread | None:
    """The thread that waits for a process that compiles the part; none if that has been done."""
    if done_mark(code_folder(), part).exists():
        return None
    thread = threading.Thread(target=_compile, args=(part,), daemon=True)
    thread.start()
    return thread


if hasattr(os, "register_at_fork"):  # threads that compile are not in the child
    os.register_at_fork(after_in_child=_begin.cache_clear)


def _compile(part: str) -> None:
    folder = str(code_folder())
    environment = {**ONE_THREAD, "NUMBA_CACHE_DIR": folder}
    try:
        with _two_at_once:
            task = "placer.solving.warm_up:compile_part"
            reason = run_task(task, (folder, part), LONG_SECONDS, environment).reason
    except (PlacerError, OSError) as error:
        reason = str(error)
    if reason:
        failures[part] = reason
        _LOG.warning("%s was not compiled ahead: %s", part, reason)
