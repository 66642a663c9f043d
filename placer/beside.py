"""Work on the other core: in a copy of this process, which goes on meanwhile."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, NoReturn, TypeVar

Found = TypeVar("Found")

IMPORTING = "imports modules"
"""The name of a thread that does nothing else."""


class _Permission:
    given = False


@contextmanager
def copies_allowed() -> Iterator[None]:
    """For a process of Placer's own, which may be copied.

    That of a user may not: it can have threads, devices and connections that a copy would share.
    """
    before, _Permission.given = _Permission.given, True
    try:
        yield
    finally:
        _Permission.given = before


FEWEST_OPS = 5_000
"""Work on a smaller graph is done sooner than a copy is made, which takes 5 ms, and as long again
for every 10 MB that both go on to write (which is all that Python reads)."""


@contextmanager
def beside(work: Callable[[], Found], *, ops: int = FEWEST_OPS) -> Iterator[Callable[[], Found]]:
    """Starts ``work`` in a copy of this process; the function that is given waits for what it
    returned, which is pickled.  ``ops`` is the size of the graph that the work is on.

    Where there are no copies (a small graph, one core, another system than Linux, see
    :func:`copies_allowed`), and where the work failed in the copy, that function does the work
    itself.
    """
    copy = _start(work) if ops >= FEWEST_OPS and _has_room() else None
    if copy is None:
        yield work
        return
    try:
        yield copy.answer
    finally:
        copy.end()


def _has_room() -> bool:
    return _Permission.given and sys.platform == "linux" and len(os.sched_getaffinity(0)) > 1


def _start(work: Callable[[], Found]) -> _Copy[Found] | None:
    """The copy at work; ``None`` if the system has no room for it."""
    for thread in threading.enumerate():
        if thread.name == IMPORTING:  # the copy would wait for ever for what it has begun
            thread.join()
    answers, answering = os.pipe()
    try:
        process = os.fork()
    except OSError:
        os.close(answers)
        os.close(answering)
        return None
    if not process:
        os.close(answers)  # so that it ends if nobody else is there to read
        _work(work, answering)
    os.close(answering)
    return _Copy(work, process, answers)


def _work(work: Callable[[], object], answering: int) -> NoReturn:
    """In the copy: answers, and ends without anything that this process would do at its end."""
    status = 1
    try:
        gc.disable()
        with os.fdopen(answering, "wb") as stream:
            stream.write(pickle.dumps(work(), protocol=pickle.HIGHEST_PROTOCOL))
        status = 0
    finally:
        os._exit(status)


class _Copy(Generic[Found]):
    def __init__(self, work: Callable[[], Found], process: int, answers: int) -> None:
        self.work, self.process, self.answers = work, process, answers
        self.ended = False

    def answer(self) -> Found:
        """What the copy answered; its errors are found again here."""
        with os.fdopen(self.answers, "rb", closefd=False) as stream:
            content = stream.read()
        if self._wait() != 0:
            return self.work()
        found: Found = pickle.loads(content)
        return found

    def end(self) -> None:
        """Nobody asks any more."""
        os.close(self.answers)
        if not self.ended:
            os.kill(self.process, signal.SIGKILL)
            self._wait()

    def _wait(self) -> int:
        self.ended = True
        return os.waitpid(self.process, 0)[1]
