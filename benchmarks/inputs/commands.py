"""Commands as child processes: what they print, how they end, what they take."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

TIME_LIMIT_SECONDS = 300.0


@dataclass(frozen=True)
class Ended:
    """How a command ended; ``peak_bytes`` is the resident size of its largest process."""

    code: int
    output: str
    complaint: str
    seconds: float
    peak_bytes: int

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.output)
        return found

    @property
    def reason(self) -> str:
        """The complaint in one line."""
        lines = [line.strip() for line in self.complaint.strip().splitlines()]
        return " ".join(filter(None, lines)).removeprefix("placer: ").replace("|", "\\|")


def run(*command: str, time_limit_seconds: float = TIME_LIMIT_SECONDS) -> Ended:
    """Runs ``command`` to its end, or kills it; then the code is -9."""

    def start(output: Any, complaint: Any) -> int:
        return subprocess.Popen(command, stdout=output, stderr=complaint).pid

    return _ended(start, time_limit_seconds)


def forked(
    main: Callable[[list[str]], int],
    *arguments: str,
    time_limit_seconds: float = TIME_LIMIT_SECONDS,
) -> Ended:
    """Runs ``main`` in a fork of this process, which has imported already what that needs."""

    def start(output: Any, complaint: Any) -> int:
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            os.dup2(output.fileno(), 1)
            os.dup2(complaint.fileno(), 2)
            code = main(list(arguments))
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    return _ended(start, time_limit_seconds)


def placer(*arguments: str) -> Ended:
    """Runs a command of placer, quietly."""
    return run(sys.executable, "-m", "placer", *arguments, "-q")


def _ended(start: Callable[[Any, Any], int], time_limit_seconds: float) -> Ended:
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as complaint:
        begin = time.perf_counter()
        code, used = _wait(start(output, complaint), begin + time_limit_seconds)
        seconds = time.perf_counter() - begin
        output.seek(0)
        complaint.seek(0)
        return Ended(code, output.read(), complaint.read(), seconds, used * 1024)


def _wait(child: int, deadline: float) -> tuple[int, int]:
    """The exit code of the child, and the largest resident size (KiB) of it and its children."""
    while True:
        pid, status, usage = os.wait4(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status), usage.ru_maxrss
        if time.perf_counter() > deadline:
            os.kill(child, signal.SIGKILL)
            deadline = float("inf")
        time.sleep(0.02)
