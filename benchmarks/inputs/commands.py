"""Commands as child processes: what they print, how they end, what they take."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
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
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as complaint:
        start = time.perf_counter()
        child = subprocess.Popen(command, stdout=output, stderr=complaint)
        used, code = _wait(child, start + time_limit_seconds)
        seconds = time.perf_counter() - start
        output.seek(0)
        complaint.seek(0)
        return Ended(code, output.read(), complaint.read(), seconds, used * 1024)


def placer(*arguments: str) -> Ended:
    """Runs a command of placer, quietly."""
    return run(sys.executable, "-m", "placer", *arguments, "-q")


def _wait(child: subprocess.Popen[Any], deadline: float) -> tuple[int, int]:
    """The largest resident size (KiB) of the child and its children, and the exit code."""
    while True:
        pid, status, usage = os.wait4(child.pid, os.WNOHANG)
        if pid:
            child.returncode = os.waitstatus_to_exitcode(status)
            return usage.ru_maxrss, child.returncode
        if time.perf_counter() > deadline:
            child.kill()
            deadline = float("inf")
        time.sleep(0.02)
