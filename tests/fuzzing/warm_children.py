"""Children of placer as forks of a process that has imported what they need.

A test of a plan starts two fresh interpreters, one that reads and one that searches, and waits two
seconds for their imports; one that verifies starts another, or one for each device.  Here a process
that has TensorFlow, or the solvers, imported forks in their place: everything else is the product's
own.  Linux hands the fork to this process, which is its subreaper for that moment, so that it is
waited for and ended like any other child.

Children with other settings than those of :data:`IMPORTS` are fresh interpreters, as everywhere
outside of the tests; so are those of tests about processes (:func:`conftest.warm_children`).
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NoReturn

from placer import processes
from placer.extraction.process.child_process import ENVIRONMENT

ROOT = Path(__file__).parents[2]
PR_SET_CHILD_SUBREAPER = 36
MESSAGE_BYTES = 1 << 18

READING, SEARCHING = "reading", "searching"
IMPORTS = {
    READING: (
        *("keras", "tensorflow", "placer.extraction.process.reading_tasks"),
        "placer.extraction.flat_program",
    ),
    SEARCHING: (
        *("ortools.sat.python.cp_model", "placer.solving.transfer.transfer_search"),
        *("placer.solving.process.search_run", "placer.solving.transfer.transfer_process"),
        *("placer.solving.peaks.search", "placer.solving.rematerialisation.search"),
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

fresh_start = processes.Child._start


class Fork:
    """What ``subprocess.Popen`` is to its caller, for a child that somebody else has forked."""

    def __init__(self, pid: int) -> None:
        self.pid, self.returncode = pid, None

    def poll(self) -> int | None:
        return self._wait(os.WNOHANG)

    def wait(self, timeout: float | None = None) -> int | None:
        if timeout is None:
            return self._wait(0)
        end = time.monotonic() + timeout
        while self._wait(os.WNOHANG) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("a fork", timeout)
            time.sleep(0.005)
        return self.returncode

    def _wait(self, options: int) -> int | None:
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, options)
            if ended:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


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
        "parent": os.getpid(),
        "folder": os.getcwd(),
    }
    subreaper(True)
    try:
        content = json.dumps(request).encode()
        socket.send_fds(forks, [content], [channel.fileno(), child._log.fileno()])
        pid = int(forks.recv(64))
    finally:
        subreaper(False)
    return Fork(pid)


def _kind(environment: Mapping[str, str]) -> str | None:
    """Which process can fork the child: by what nobody else sets."""
    if os.environ.keys() & {"OPENBLAS_NUM_THREADS", "CUDA_VISIBLE_DEVICES"}:
        return None  # this process has such settings itself
    if "OPENBLAS_NUM_THREADS" in environment:
        return SEARCHING
    is_hidden = environment.get("CUDA_VISIBLE_DEVICES") == ENVIRONMENT["CUDA_VISIBLE_DEVICES"]
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
        channel, log = descriptors
        for stream in (1, 2):
            os.dup2(log, stream)
        os.chdir(str(request["folder"]))
        os.environ.clear()
        os.environ.update(request["environment"])
        tempfile.tempdir = os.environ["TMPDIR"]
        requests.send(str(os.getpid()).encode())
        requests.close()
        if LIMITED in os.environ:
            _fork_for_devices(channel)
        processes.serve(channel, int(str(request["parent"])), list(request["ahead"]))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _fork_for_devices(channel: int) -> None:
    """Has a fork of this process, before it has threads, fork the children that it will start."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        ours.close()
        os.close(channel)  # whose end tells the caller of that of this process
        answer(theirs)
    theirs.close()
    processes.Child._start = lambda *asked: _fork(ours, *asked)
