"""Runs an extraction in a child process that may be slow, fat or dead without harm."""

from __future__ import annotations

import os
import pickle
import resource
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from placer import errors
from placer.errors import ModelError, PlacerError
from placer.extraction.extraction import Extraction
from placer.extraction.process.process_limits import memory_limit, too_large
from placer.processes import collection_paused

PACKAGE_ROOT = Path(__file__).resolve().parents[3]
CHILD_MARK = "PLACER_EXTRACTION_CHILD"
"""Set in the child, which must never start children of its own."""

_BOOTSTRAP = """
import os
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from placer.extraction.graph_defs.tensorflow_core import load_libraries_meanwhile
load_libraries_meanwhile()
from placer.extraction.process.extraction_process import main
sys.stdin.read()  # which ends when the request is there
main(Path(sys.argv[2]))
sys.stderr.flush()
os._exit(0)  # to take the graph and TensorFlow apart again would take half a second
"""
"""The child finds this very package, but not the folder of the user's script: a script called
``types.py`` must not stand in for the standard library."""

ANSWER = "answer"
"""The pipe, in the folder of the child, through which it answers."""

_BUFFER_BYTES = 2**20
_LOOK_MILLISECONDS = 50
"""So often it is looked whether the child still lives."""

INFERENCE_MARK = "inference"
"""The file by which the child says that only shape inference is left."""

_LAST_CHARACTERS = 600

LIMITED_TASKS = frozenset({"extract", "export_keras"})
"""What runs under a memory limit."""

_OUT_OF_MEMORY = (
    "pthread_create",
    "StartThread",
    "bad_alloc",
    "MemoryError",
    "annot allocate memory",
)
"""Last words of a process that was refused memory (of TensorFlow, which starts threads, of the C++
library, Python and Linux)."""


class ChildFailure(Exception):
    """The child ended without an answer; ``in_inference`` says how far it came."""

    def __init__(self, reason: str, *, in_inference: bool) -> None:
        super().__init__(reason)
        self.in_inference = in_inference


def run_child(request: Mapping[str, Any], time_limit_seconds: float) -> Extraction:
    """What the child process found for ``request``.

    If it dies or runs out of time while it infers shapes, it is asked again without inference.
    Raises the child's :class:`PlacerError`, or :class:`ModelError` if it ends without one.
    """
    try:
        found = ask_child("extract", {**request, "infer": True}, time_limit_seconds)
    except ChildFailure as failure:
        reason = str(failure)
        if not failure.in_inference:
            raise ModelError(f"the model could not be read: {reason}") from failure
        request = {**request, "infer": False, "reason": reason}
        found = require_answer("extract", request, time_limit_seconds)
    assert isinstance(found, Extraction)
    return found


def require_answer(task: str, request: Mapping[str, Any], time_limit_seconds: float) -> Any:
    """As :func:`ask_child`; a child without an answer is a :class:`ModelError` too."""
    try:
        return ask_child(task, request, time_limit_seconds)
    except ChildFailure as failure:
        raise ModelError(f"the model could not be read: {failure}") from failure


def ask_child(task: str, request: Mapping[str, Any], time_limit_seconds: float) -> Any:
    """What a fresh process answers to ``request``; see ``extraction_process`` for the tasks.

    Raises the child's :class:`PlacerError`, :class:`ChildFailure` if it ends without an answer.
    """
    if CHILD_MARK in os.environ:
        raise PlacerError("an extraction was asked for inside the process of an extraction")
    start_ahead()
    place, child = _ahead.pop()
    with place as name:
        folder = Path(name)
        (folder / "request").write_bytes(
            pickle.dumps(
                {
                    "task": task,
                    "seconds": time_limit_seconds,
                    "parent": os.getpid(),
                    **request,
                }
            )
        )
        answer, status = _ask(child, folder, time_limit_seconds)
        if answer is None:
            raise ChildFailure(
                _out_of_memory(task, request, folder)
                or _explain(status, folder, time_limit_seconds),
                in_inference=(folder / INFERENCE_MARK).exists(),
            )
    kind, content = answer
    if kind == "answer":
        return content
    raise getattr(errors, kind, PlacerError)(content)


_ahead: list[tuple[tempfile.TemporaryDirectory[str], subprocess.Popen[bytes]]] = []
"""The child that waits for its request, if there is one, and its folder."""


def start_ahead() -> None:
    """Starts the child that will be asked next: it loads libraries while this process is busy."""
    if not _ahead:
        folder = tempfile.TemporaryDirectory(prefix="placer-")
        _ahead.append((folder, start_child(Path(folder.name))))


def start_child(folder: Path) -> subprocess.Popen[bytes]:
    """The child that works in ``folder`` once its standard input ends, in a session of its own."""
    environment = {
        **os.environ,
        CHILD_MARK: "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "-1",
    }
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-P", "-c", _BOOTSTRAP, str(PACKAGE_ROOT), str(folder)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _ask(
    child: subprocess.Popen[bytes], folder: Path, time_limit_seconds: float
) -> tuple[tuple[str, Any] | None, int | None]:
    """What the child answers, read while it is written; if there is no answer, its exit status,
    ``None`` if it was killed at the time limit."""
    os.mkfifo(folder / ANSWER)
    descriptor = os.open(folder / ANSWER, os.O_RDONLY | os.O_NONBLOCK)
    assert child.stdin is not None
    child.stdin.close()
    answer, status = None, None
    with os.fdopen(descriptor, "rb", _BUFFER_BYTES) as stream:
        try:
            if _begins(descriptor, child, time_limit_seconds):
                answer = _read(stream)
                status = child.wait() if answer is None else None
            else:
                status = child.poll()
        finally:
            if answer is None and child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
    if answer is not None:  # nobody waits for it to take its memory apart
        threading.Thread(target=child.wait, daemon=True).start()
    return answer, status


def _read(stream: IO[bytes]) -> tuple[str, Any] | None:
    """The answer, ``None`` if the child died over it."""
    os.set_blocking(stream.fileno(), True)
    try:
        with collection_paused():
            answer: tuple[str, Any] = pickle.load(stream)
    except (EOFError, pickle.UnpicklingError):
        return None
    return answer


def _begins(answers: int, child: subprocess.Popen[bytes], time_limit_seconds: float) -> bool:
    """Waits until the child writes its answer; whether it did before it ended or the time was
    up."""
    deadline = time.monotonic() + time_limit_seconds
    waiting = select.poll()
    waiting.register(answers, select.POLLIN)
    while True:
        ended = child.poll() is not None or time.monotonic() > deadline
        events = waiting.poll(0 if ended else _LOOK_MILLISECONDS)
        if ended or any(event & select.POLLIN for _, event in events):
            return any(event & select.POLLIN for _, event in events)


def _explain(status: int | None, folder: Path, time_limit_seconds: float) -> str:
    if status is None:
        return f"it took more than {time_limit_seconds:g} seconds"
    log = _last_words(folder)
    ended = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
    return f"the reading process {ended}" + (f"; it last said: {log}" if log else "")


def _last_words(folder: Path) -> str:
    return (folder / "log").read_text(errors="replace")[-_LAST_CHARACTERS:].strip()


def _out_of_memory(task: str, request: Mapping[str, Any], folder: Path) -> str:
    """What to say if the process ended because it asked for more than it may take, else ``""``."""
    if task not in LIMITED_TASKS:
        return ""
    limit = memory_limit(request)
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024  # of all children yet
    refused = any(words in _last_words(folder) for words in _OUT_OF_MEMORY)
    return too_large(limit) if refused or largest > limit else ""
