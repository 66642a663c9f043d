"""The process behind :class:`fuzzing.cases.WarmProcess`: one fork per line of its input.

The fork runs ``placer.__main__.main``; where that starts the process that reads a model or a trace,
or runs one, it is another fork instead of another interpreter.  Everything else is the product's
own: its limits, its exit codes, its clean-up.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys
import tempfile
import time
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fuzzing.cases import Outcome, as_line, limit_address_space, watch
from fuzzing.warm_children import PR_SET_CHILD_SUBREAPER, Fork

from placer import processes


class ForkedChild(Fork):
    """A fork that runs ``work``."""

    def __init__(self, work: Callable[[], None]) -> None:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.setsid()
                work()
                status = 0
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(status)
        super().__init__(pid)


class WarmChild(processes.Child):
    """A fork in place of a fresh interpreter."""

    def _start(
        self, channel: socket.socket, environment: Mapping[str, str], ahead: Sequence[str]
    ) -> ForkedChild:
        parent = os.getpid()

        def work() -> None:
            self._channel.close()
            for descriptor in (1, 2):
                os.dup2(self._log.fileno(), descriptor)
            os.environ |= {**environment, "TMPDIR": self._folder.name}
            tempfile.tempdir = self._folder.name
            processes.serve(channel.fileno(), parent, ahead)

        return ForkedChild(work)


def run_case(arguments: list[str], folder: Path) -> Outcome:
    """The outcome of one command line in a fork of this process."""
    (folder / "stderr").write_bytes(b"")
    child = ForkedChild(lambda: _command(arguments, folder))
    outcome = watch(child.pid, folder)
    orphans = _reap()
    return (
        replace(outcome, left=(*outcome.left, *orphans)) if outcome.status is not None else outcome
    )


def _command(arguments: list[str], folder: Path) -> None:
    from placer.__main__ import main

    _send_to((1,), Path(os.devnull))
    _send_to((2,), folder / "stderr")
    sys.stderr = sys.__stderr__
    tempfile.tempdir = str(folder / "temporary")
    os.environ["TMPDIR"] = tempfile.tempdir
    limit_address_space()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    status = main(arguments)
    weakref.finalize._exitfunc()  # what the end of the interpreter clears away
    sys.stderr.flush()
    os._exit(status)


def _send_to(descriptors: tuple[int, ...], path: Path) -> None:
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for descriptor in descriptors:
        os.dup2(target, descriptor)
    os.close(target)


def _reap() -> list[str]:
    """Names of the descendants that are still alive after a second, which are then killed."""
    alive = []
    deadline = time.monotonic() + 1  # a process that has answered takes its memory apart
    for line in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        pid = int(line)
        ended, _ = os.waitpid(pid, os.WNOHANG)
        while not ended and time.monotonic() < deadline:
            time.sleep(0.01)
            ended, _ = os.waitpid(pid, os.WNOHANG)
        if not ended:
            alive.append(f"the process {pid}")
            os.kill(pid, 9)
            os.waitpid(pid, 0)
    return alive


def serve() -> None:
    """Answers command lines until the input ends."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until a command line is run
    answers = os.fdopen(os.dup(1), "w")
    _send_to((1, 2), Path(os.devnull))
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    os.environ["KERAS_BACKEND"] = "tensorflow"
    import keras  # noqa: F401
    import tensorflow  # noqa: F401

    import placer.pipeline.pipeline  # noqa: F401
    from placer.application.measuring import profiling, traces
    from placer.application.verifying import verification_process
    from placer.extraction.process import child_process
    from placer.prediction.memory.need import load_loops

    load_loops()
    child_process.Child = WarmChild
    for module in (traces, profiling, verification_process):
        module.run_task = lambda task, request, seconds, environment: WarmChild(environment).ask(
            task, request, seconds
        )
    for line in sys.stdin:
        arguments, folder = json.loads(line)
        answers.write(as_line(run_case(arguments, Path(folder))) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve()
