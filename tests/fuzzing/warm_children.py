"""Children of placer as forks of a process that has imported what they need.

A test of a plan starts two fresh interpreters, one that reads and one that searches, and waits two
seconds for their imports; one that verifies starts another, or one for each device.  Here a process
that has TensorFlow, or the solvers, imported forks in their place: everything else is the product's
own.  Linux hands the fork to this process, which is its subreaper for that moment, so that it is
waited for and ended like any other child.

Children with other settings than those of :data:`IMPORTS` are fresh interpreters, as everywhere
outside of the tests; so are those of tests about processes (:func:`conftest.warm_children`).
Programs whose start is not what a test is about are forks as well (:func:`run_python`).
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import json
import math
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import IO, NoReturn

from placer import processes
from placer.extraction.process.child_process import ENVIRONMENT

ROOT = Path(__file__).parents[2]
PR_SET_CHILD_SUBREAPER = 36
MESSAGE_BYTES = 1 << 18

READING, SEARCHING = "reading", "searching"
IMPORTS = {
    READING: (
        *("keras", "tensorflow", "placer.extraction.process.reading_tasks"),
        "placer.extraction.analysis",
    ),
    SEARCHING: (
        *("ortools.sat.python.cp_model", "placer.solving.transfer.transfer_search"),
        *("placer.solving.process.search_run", "placer.solving.transfer.transfer_process"),
        *("placer.solving.search.peak_search", "placer.fitting.recompute_sequences"),
        "placer.solving.objectives.throughput.search",
        "placer.solving.objectives.step_time.search",
    ),
}
"""What the processes that fork have imported."""

LIMITED = "TF_CPU_BFC_MEM_LIMIT_IN_MB"
READ_LATE = ENVIRONMENT.keys() | {"TF_CPU_ALLOCATOR_USE_BFC", LIMITED}
"""Settings that may be others than those of the process that forks: TensorFlow reads them when it
makes its first device, or they tell how much it says."""

PYTHONS = {"PYTHONPATH", "PYTHONSAFEPATH"}
"""Where modules come from; what has been imported stays."""

ONE_AT_A_TIME = threading.Lock()
"""Held from a request to its answer: threads share the socket, and the subreaper is one switch."""

fresh_start = processes.Child._start


class Fork:
    """What ``subprocess.Popen`` is to its caller, for a child that somebody else has forked."""

    def __init__(self, pid: int) -> None:
        self.pid, self.returncode, self.lock = pid, None, threading.Lock()

    def poll(self) -> int | None:
        with self.lock:  # several threads may ask
            if self.returncode is None:
                ended, status = os.waitpid(self.pid, os.WNOHANG)
                if ended:
                    self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        end = math.inf if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("a fork", end)
            time.sleep(0.005)
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        """Sends it a signal, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Ends it, if it still runs."""
        self.send_signal(signal.SIGKILL)


def start(
    child: processes.Child,
    channel: socket.socket,
    environment: Mapping[str, str],
    ahead: Sequence[str],
) -> Fork | subprocess.Popen[bytes]:
    """In place of ``Child._start``: a fork where one process can stand for all, else a fresh
    interpreter."""
    kind = _kind(environment)
    if kind is None:
        return fresh_start(child, channel, environment, ahead)
    forks = _forking(kind, environment.get("NUMBA_CACHE_DIR", ""))
    return _fork(forks, child, channel, environment, ahead)


def _fork(
    forks: socket.socket,
    child: processes.Child,
    channel: socket.socket,
    environment: Mapping[str, str],
    ahead: Sequence[str],
) -> Fork:
    """The child, forked at the other end of ``forks``."""
    request = {
        "environment": {**environment, "TMPDIR": child._folder.name},
        "ahead": list(ahead),
        "folder": os.getcwd(),
    }
    return _forked(forks, request, [channel.fileno(), child._log.fileno()])


def _forked(
    forks: socket.socket, request: Mapping[str, object], descriptors: Sequence[int]
) -> Fork:
    """A child of this process that does what is asked for, with these open files."""
    with ONE_AT_A_TIME:
        subreaper(True)
        try:
            content = json.dumps({**request, "parent": os.getpid()}).encode()
            socket.send_fds(forks, [content], list(descriptors))
            pid = int(forks.recv(64))
        finally:
            subreaper(False)
    return Fork(pid)


def start_python(
    arguments: Sequence[str | Path],
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    out: IO[bytes] | None = None,
    err: IO[bytes] | None = None,
) -> Fork | subprocess.Popen[bytes]:
    """``python ARGUMENTS``: a script, ``-c CODE`` or ``-m placer ...``.

    ``environment`` is added to that of this process.
    """
    command = [str(each) for each in arguments]
    place, settings = str(folder or os.getcwd()), {**os.environ, **(environment or {})}
    with Path(os.devnull).open("wb") as nowhere:
        out, err = out or nowhere, err or nowhere
        if sys.platform != "linux":
            line = [sys.executable, *command]
            return subprocess.Popen(line, cwd=place, env=settings, stdout=out, stderr=err)
        request = {"environment": settings, "folder": place, "arguments": command}
        forks = _forking(READING, os.environ.get("NUMBA_CACHE_DIR", ""))
        return _forked(forks, request, [out.fileno(), err.fileno()])


def run_python(
    arguments: Sequence[str | Path],
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    timeout: float = 300.0,
) -> subprocess.CompletedProcess[str]:
    """What :func:`start_python` prints, and its exit code."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        program = start_python(arguments, folder, environment, out, err)
        try:
            status = program.wait(timeout)
        finally:
            program.kill()
        told = [os.pread(each.fileno(), os.fstat(each.fileno()).st_size, 0) for each in (out, err)]
    return subprocess.CompletedProcess(arguments, status, *(each.decode() for each in told))


HIDDEN = ENVIRONMENT["CUDA_VISIBLE_DEVICES"]


def _kind(environment: Mapping[str, str]) -> str | None:
    """Which process can fork the child: by what nobody else sets."""
    own = os.environ.get("CUDA_VISIBLE_DEVICES", HIDDEN)
    if own != HIDDEN or "OPENBLAS_NUM_THREADS" in os.environ:
        return None  # this process has such settings itself
    if "OPENBLAS_NUM_THREADS" in environment:
        return SEARCHING
    is_hidden = environment.get("CUDA_VISIBLE_DEVICES") == HIDDEN
    others = {name for name in environment if environment[name] != os.environ.get(name)}
    return READING if is_hidden and others <= READ_LATE | PYTHONS else None


@cache
def _forking(kind: str, cache_folder: str) -> socket.socket:
    """The end of a socket at whose other end a process forks, once for each request."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
    if kind == READING:
        environment |= {**ENVIRONMENT, "KERAS_BACKEND": "tensorflow"}
    else:
        environment |= dict.fromkeys(
            ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1"
        )
        environment["NUMBA_CACHE_DIR"] = cache_folder
    code = f"from fuzzing.warm_children import serve; serve({kind!r}, {theirs.fileno()})"
    with theirs:
        subprocess.Popen(
            [sys.executable, "-P", "-c", code],
            env=environment,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    return ours


def subreaper(is_on: bool) -> None:
    """Whether orphans among the descendants of this process become its children."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(is_on), 0, 0, 0)


def serve(kind: str, descriptor: int) -> None:
    """In the process that forks: answers requests until nobody makes any."""
    for name in IMPORTS[kind]:
        importlib.import_module(name)
    answer(socket.socket(fileno=descriptor))


def answer(requests: socket.socket) -> NoReturn:
    """Forks for each request."""
    while True:
        content, descriptors, _, _ = socket.recv_fds(requests, MESSAGE_BYTES, 2)
        if not content:
            os._exit(0)
        between = os.fork()
        if between == 0:
            if os.fork() == 0:
                _run(json.loads(content), descriptors, requests)
            os._exit(0)
        os.waitpid(between, 0)
        for each in descriptors:
            os.close(each)


def _run(request: Mapping[str, object], descriptors: Sequence[int], requests: socket.socket):
    """In the child: what a fresh interpreter would be, then what it would do."""
    try:
        while os.getppid() != request["parent"]:
            time.sleep(0.0005)
        os.setsid()
        os.chdir(str(request["folder"]))
        os.environ.clear()
        os.environ.update(request["environment"])
        tempfile.tempdir = os.environ.get("TMPDIR")
        requests.send(str(os.getpid()).encode())
        requests.close()
        begin = _run_program if "arguments" in request else _serve_child
        begin(request, descriptors)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _serve_child(request: Mapping[str, object], descriptors: Sequence[int]) -> NoReturn:
    """Does what a child of placer does."""
    channel, log = descriptors
    for stream in (1, 2):
        os.dup2(log, stream)
    if LIMITED in os.environ:
        _fork_own_children(channel)
    processes.serve(channel, int(str(request["parent"])), list(request["ahead"]))


def _run_program(request: Mapping[str, object], descriptors: Sequence[int]) -> NoReturn:
    """Does what the interpreter does with its arguments."""
    for stream, descriptor in enumerate(descriptors, 1):
        os.dup2(descriptor, stream)
        os.close(descriptor)
    processes._end_with(int(str(request["parent"])))
    _fork_own_children()
    status = 0
    try:
        _interpret(list(request["arguments"]))
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _interpret(arguments: list[str]) -> None:
    """See :func:`start_python`."""
    if arguments[:2] == ["-m", "placer"]:
        from placer.__main__ import main

        sys.argv = ["placer", *arguments[2:]]
        sys.exit(main())
    if arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        exec(compile(arguments[1], "<string>", "exec"), vars(_new_main()))
        return
    sys.argv = arguments
    sys.path.insert(0, str(Path(arguments[0]).resolve().parent))
    runpy.run_path(arguments[0], run_name="__main__")


def _new_main() -> ModuleType:
    """An empty ``__main__``."""
    sys.modules["__main__"] = found = ModuleType("__main__")
    return found


def _fork_own_children(*closed: int) -> None:
    """Has a fork of this process, before it has threads, fork the children that it will start and
    that need TensorFlow.  ``closed`` are open files whose end tells others of that of this process.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        ours.close()
        for each in closed:
            os.close(each)
        answer(theirs)
    theirs.close()

    def start_own(child, channel, environment, ahead):
        if _kind(environment) != READING:
            return fresh_start(child, channel, environment, ahead)
        return _fork(ours, child, channel, environment, ahead)

    processes.Child._start = start_own
