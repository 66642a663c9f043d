"""Command lines run on one harmed file: what came of them, and whether that is allowed.

:class:`WarmProcess` runs command lines in forks of a process that has TensorFlow imported, so
that a case takes a tenth of a second instead of two; :func:`run_cold` starts ``placer`` afresh.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

TIME_LIMIT_SECONDS = 30.0
MEMORY_LIMIT_BYTES = 2 * 2**30
ADDRESS_SPACE_BYTES = 12 * 2**30
"""Protects the machine: a process that takes more fails, long after it counts as a defect."""

ROOT = Path(__file__).parents[2]
FATAL = ("Traceback (most recent call last)", "Fatal Python error", "unexpected error")


REFUSED = (1, 2, 3, 4)
"""Exit codes of commands that leave nothing; a plan of an infeasible problem is written."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """Command lines, each run if the one before ended with 0; the exit codes that are allowed."""

    commands: list[list[str]]
    allowed: frozenset[int]

    @staticmethod
    def of(arguments: list[str], allowed: frozenset[int]) -> Case:
        """A single command line."""
        return Case(commands=[arguments], allowed=allowed)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a command line ended.

    ``status`` is the exit code, negative for a signal, ``None`` at the time limit; ``peak_bytes``
    the largest resident set of any one of its processes; ``left`` names processes and files that
    it left behind; ``stderr`` is what it said.
    """

    status: int | None
    seconds: float
    peak_bytes: int
    stderr: str
    left: tuple[str, ...] = ()

    def defects(self, allowed: frozenset[int]) -> list[str]:
        """What is wrong with it, in words; nothing if all is well."""
        found = [f"leaves {name}" for name in self.left]
        if self.status is None:
            found.append(f"takes more than {TIME_LIMIT_SECONDS:.0f} s")
        elif self.status not in allowed:
            found.append(f"exit status {self.status}, allowed are {sorted(allowed)}")
        if self.peak_bytes > MEMORY_LIMIT_BYTES:
            found.append(f"takes {self.peak_bytes / 2**20:,.0f} MiB")
        found.extend(f"says {words!r}" for words in FATAL if words in self.stderr)
        if "\x1b" in self.stderr:
            found.append("sends an escape sequence to the terminal")
        if self.status not in (0, None) and not self.stderr.strip():
            found.append("fails without a word")
        return found


def run_cold(arguments: list[str], folder: Path) -> Outcome:
    """The outcome of ``placer ARGUMENTS`` in a fresh process, run in the empty ``folder``."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(_temporary(folder))}
    environment |= {"CUDA_VISIBLE_DEVICES": "-1"}
    command = [sys.executable, "-m", "placer", *arguments]
    with (folder / "stderr").open("wb") as stderr:
        process = subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,
            preexec_fn=limit_address_space,
        )
        return watch(process.pid, folder)


def limit_address_space() -> None:
    """Keeps this process and its children from taking the whole machine."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))


def watch(pid: int, folder: Path) -> Outcome:
    """The outcome of the child ``pid``, the leader of a session, killed at the time limit."""
    start = time.monotonic()
    status: int | None = None
    pause = 0.002
    while True:
        ended, raw_status, usage = os.wait4(pid, os.WNOHANG)
        seconds = time.monotonic() - start
        if ended:
            status = os.waitstatus_to_exitcode(raw_status)
            break
        if seconds > TIME_LIMIT_SECONDS:
            os.killpg(pid, signal.SIGKILL)
            _, _, usage = os.wait4(pid, 0)
            break
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)
    return Outcome(
        status=status,
        seconds=seconds,
        peak_bytes=usage.ru_maxrss * 1024,
        stderr=(folder / "stderr").read_text(errors="replace"),
        left=tuple(_left_files(folder, status)),
    )


def _temporary(folder: Path) -> Path:
    path = folder / "temporary"
    path.mkdir(exist_ok=True)
    return path


def _left_files(folder: Path, status: int | None) -> list[str]:
    """Temporary files that a command left behind.

    A killed command cannot clean up: its temporary files do not count.
    """
    temporary = [f"the temporary file {path.name}" for path in (folder / "temporary").iterdir()]
    return temporary if status is not None and status >= 0 else []


def contents(folder: Path) -> dict[str, bytes]:
    """What every file in ``folder`` holds, but what the run itself keeps there; folders nothing."""
    named = {str(path.relative_to(folder)): path for path in folder.rglob("*")}
    return {
        name: path.read_bytes() if path.is_file() else b""
        for name, path in named.items()
        if name.split("/")[0] not in ("stderr", "temporary")
    }


def changes(before: dict[str, bytes], after: dict[str, bytes], status: int | None) -> list[str]:
    """What a command did to files that it should have left alone.

    It may write what is called ``result``, unless it is refused.
    """
    found = []
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) == after.get(name):
            continue
        if name.startswith("result") and status not in REFUSED:
            continue
        deed = "leaves" if name not in before else "loses" if name not in after else "overwrites"
        found.append(f"{deed} the file {name!r}")
    return found


class WarmProcess:
    """A process that has imported TensorFlow and forks for every command line."""

    def __init__(self) -> None:
        path = os.pathsep.join((str(ROOT), str(ROOT / "tests")))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fuzzing.warm_process"],
            env={**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": "-1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, arguments: list[str], folder: Path) -> Outcome:
        """The outcome of ``placer ARGUMENTS`` in a fork, run in the empty ``folder``."""
        _temporary(folder)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([arguments, str(folder)]) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        return Outcome(**{**answer, "left": tuple(answer["left"])})

    def close(self) -> None:
        """Ends the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.kill()  # it has nothing to put away, and TensorFlow takes seconds to end
        self.process.wait(10)


def as_line(outcome: Outcome) -> str:
    """``outcome`` as one line of JSON."""
    return json.dumps(asdict(outcome))
