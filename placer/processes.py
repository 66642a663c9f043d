"""The one way to run something in a fresh Python interpreter: a task in, an answer out.

::

    caller  -- task, request (pickled) -->  child: function(request, tell)
            <-- told, told, ..., answer --

A child may be slow, fat or dead without harm: it ends at the time limit, with the caller, and with
every process that it started.  It imports this very package, and nothing from the caller's folder:
a script called ``types.py`` or ``numpy.py`` there stands in for nothing.
"""

import ctypes
import gc
import importlib
import io
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NoReturn

from placer import errors
from placer.front_words import command_line

Tell = Callable[[object], None]
"""Sends an interim answer to the caller; each replaces the one before."""

_ROOT = Path(__file__).resolve().parents[1]
_BOOTSTRAP = """
import sys
from importlib.util import module_from_spec, spec_from_file_location
root, channel, parent, *ahead = sys.argv[1:]
for name in ("cost_models", "placer"):
    spec = spec_from_file_location(name, f"{root}/{name}/__init__.py")
    sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
from placer.processes import serve
serve(int(channel), int(parent), ahead)
"""
"""The packages of the caller, without their folder in the path."""

_BUFFER_BYTES = 2**20

_ANSWER = "answer"
_LAST = (_ANSWER, "error")
"""The last messages of a child, after all that it tells."""

LONG_SECONDS = 600.0
"""A child that runs, measures, exports, fetches or compiles a program is taken for stuck then."""

_LAST_CHARACTERS = 600
_PR_SET_PDEATHSIG = 1


class Ending(Enum):
    """How a child came to its end."""

    ANSWERED = "answered"
    LATE = "late"
    DIED = "died"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The end of a child.

    ``answer`` is the last that came in full: the final one if the child ``ANSWERED``, else the
    last that it told, or ``None``; then ``reason`` says in words why there is no final one,
    ``last_words`` is the end of what it wrote, and ``peak_bytes`` the most memory that it took.
    """

    ending: Ending
    answer: Any
    reason: str = ""
    last_words: str = ""
    peak_bytes: int = 0


def run_task(
    task: str,
    request: object,
    time_limit_seconds: float,
    environment: Mapping[str, str] | None = None,
) -> Outcome:
    """Runs ``task(request, tell)`` in a fresh interpreter, and returns how that ended.

    ``task`` is ``package.module:function``; the request and the answers are pickled.
    ``environment`` is added to that of this process.  Raises the :class:`PlacerError` that the
    task raised.
    """
    return Child(environment).ask(task, request, time_limit_seconds)


class Child:
    """A fresh interpreter that waits for its requests, most often for one.

    ``ahead`` names functions that it calls before, as ``package.module:function``: what can be
    loaded while this process is busy.  It ends with this process at the latest.
    """

    def __init__(
        self, environment: Mapping[str, str] | None = None, ahead: Sequence[str] = ()
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="placer-", ignore_cleanup_errors=True)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (until the end of the child)
        self._channel, theirs = socket.socketpair()
        with theirs:
            self._process = self._start(theirs, {**_environment(), **(environment or {})}, ahead)

    def _start(
        self, channel: socket.socket, environment: Mapping[str, str], ahead: Sequence[str]
    ) -> subprocess.Popen[bytes]:
        """The process, in a session and with a folder for temporary files of its own."""
        arguments = [str(_ROOT), str(channel.fileno()), str(os.getpid()), *ahead]
        return subprocess.Popen(
            [sys.executable, "-P", "-c", _BOOTSTRAP, *arguments],
            env={**environment, "TMPDIR": self._folder.name},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            pass_fds=[channel.fileno()],
            start_new_session=True,
        )

    def ask(
        self,
        task: str,
        request: object,
        time_limit_seconds: float,
        told: Callable[[object], None] | None = None,
        *,
        keep: bool = False,
    ) -> Outcome:
        """As :func:`run_task`; the process and its files are gone then, or it waits for another
        request if it answered and is to be kept (``keep``).

        ``told`` is called with every interim answer as it comes.
        """
        answers = _Answers(self, time_limit_seconds)
        stream = io.BufferedReader(answers, _BUFFER_BYTES)
        kind: str = ""
        answer: Any = None
        try:
            content = pickle.dumps((task, request), protocol=pickle.HIGHEST_PROTOCOL)
            threading.Thread(target=self._send, args=(content,), daemon=True).start()
            with suppress(EOFError, pickle.UnpicklingError):
                while kind not in _LAST and stream.peek(1):
                    with collection_paused():
                        kind, answer = pickle.load(stream)
                    if told is not None and kind not in _LAST:
                        told(answer)
            if kind not in _LAST:
                return self._failure(answer, time_limit_seconds if answers.late else None)
        finally:
            if not keep or kind != _ANSWER:
                self.close(wait=kind not in _LAST)
        if kind == "error":
            name, message = answer
            raise getattr(errors, name, errors.PlacerError)(message)
        return Outcome(ending=Ending.ANSWERED, answer=answer)

    def _send(self, content: bytes) -> None:
        with suppress(OSError):  # it ended before it had read everything
            self._channel.sendall(content)

    def _failure(self, told: Any, exceeded_seconds: float | None) -> Outcome:
        """Returns the outcome of a child that did not answer, in time or at all."""
        self.end_group()
        _, status, usage = os.wait4(self._process.pid, 0)
        code = self._process.returncode = os.waitstatus_to_exitcode(status)
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - 4 * _LAST_CHARACTERS))
        words = self._log.read().decode(errors="replace")[-_LAST_CHARACTERS:].strip()
        if exceeded_seconds is not None:
            ending, reason = Ending.LATE, f"it took more than {exceeded_seconds:.3g} seconds"
        else:
            how = f"ended with status {code}" if code >= 0 else f"was ended by signal {-code}"
            reason = f"its process {how}" + (f"; it last said: {words}" if words else "")
            ending = Ending.DIED
        return Outcome(
            ending=ending,
            answer=told,
            reason=reason,
            last_words=words,
            peak_bytes=usage.ru_maxrss * 1024,
        )

    def end_group(self) -> None:
        """Ends the process and all that it started."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self, *, wait: bool = True) -> None:
        """Ends it and removes its files; ``wait`` until its memory is taken apart as well."""
        self.end_group()
        if wait:
            self._process.wait()
        else:
            threading.Thread(target=self._process.wait, daemon=True).start()
        self._channel.close()
        self._log.close()
        try:
            self._folder.cleanup()
        except BaseException:  # an interrupt came meanwhile
            self._folder.cleanup()
            raise


class _Answers(io.RawIOBase):
    """The stream of a child's messages, which ends when the child or its time does."""

    def __init__(self, child: Child, time_limit_seconds: float) -> None:
        self._child, self._channel = child, child._channel
        self._deadline = time.monotonic() + time_limit_seconds
        self._waiting = select.poll()
        self._waiting.register(self._channel, select.POLLIN)
        self.late = False

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """The number of bytes that came, 0 at the end; ends the child when it is late."""
        while True:
            left = self._deadline - time.monotonic()
            if left <= 0 and not self.late:
                self.late = True
                self._child.end_group()
            # an interrupt that came just before a wait is noticed after it
            if self._waiting.poll(max(0.0, min(left, 0.2)) * 1000):
                with suppress(ConnectionResetError):  # it died before it had read everything
                    return self._channel.recv_into(buffer)
                return 0
            if left <= 0:
                return 0


def _environment() -> dict[str, str]:
    """The environment of this process, less what has modules searched in the current directory."""
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(os.path.isabs, entries)),
        "PYTHONSAFEPATH": "1",  # for what the child starts
    }


def serve(descriptor: int, parent: int, ahead: Sequence[str]) -> NoReturn:
    """In the child: answers the requests that come, one after the other, and ends with the
    caller, or where one fails."""
    _end_with(parent)
    channel = socket.socket(fileno=descriptor)
    channel.set_inheritable(False)
    for name in ahead:
        _find(name)()
    requests, answers = channel.makefile("rb"), channel.makefile("wb", _BUFFER_BYTES)
    lock = threading.Lock()

    def send(kind: str, content: object) -> None:
        with lock:
            pickle.dump((kind, content), answers, protocol=pickle.HIGHEST_PROTOCOL)
            answers.flush()

    status = 0
    while not status:
        try:
            task, request = pickle.load(requests)
        except EOFError:  # nobody will ask
            break
        threading.Thread(target=_watch, args=(channel,), daemon=True).start()
        try:
            send(*_answer(task, request, lambda content: send("told", content)))
        except BaseException:  # the caller finds it among the last words
            traceback.print_exc()
            status = 1
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)  # to take a graph and TensorFlow apart again would take half a second


@command_line()  # the caller finds the words for its own reader
def _answer(task: str, request: Any, tell: Tell) -> tuple[str, object]:
    """Returns the message to send in the end; a MemoryError is left to end the process."""
    try:
        return _ANSWER, _find(task)(request, tell)
    except errors.PlacerError as error:
        return "error", (type(error).__name__, str(error))
    except MemoryError:
        raise
    except Exception as error:  # a fault of ours: told in full by the caller, not hidden
        if missing := errors.missing_tensorflow(error):
            return "error", (type(missing).__name__, str(missing))
        message = f"{task} failed unexpectedly:\n{traceback.format_exc()}"
        return "error", (errors.PlacerError.__name__, message)


def _find(name: str) -> Callable[..., Any]:
    """The function ``package.module:function``."""
    module, _, attribute = name.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return function


def _watch(channel: socket.socket) -> None:
    """Ends this process and what it started when the caller is gone; until the next request."""
    with suppress(OSError):
        if channel.recv(1, socket.MSG_PEEK):
            return
    os.killpg(0, signal.SIGKILL)


def _end_with(parent: int) -> None:
    """Ends this process when process ``parent`` ends, even inside a long call (on Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before
        os._exit(1)


@contextmanager
def collection_paused() -> Iterator[None]:
    """Python's cycle collector waits; for a graph of 50,000 ops its walks over all objects take
    two fifths of a prediction.  Also a decorator.

    What was made meanwhile counts as old afterwards, as if it had been walked over."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()
