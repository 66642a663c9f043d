"""One command on simulated GPUs, and what it held there."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from placer.errors import UsageError
from placer.simulation.cards import SimulatedGpu
from placer.simulation.environment import GROWTH, child_environment, growth_note
from placer.simulation.records import GpuRecord, ProcessRecord, read_records

HOOK = Path(__file__).parent / "hook"
_GRACE_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRun:
    """A command that has ended: its ``exit_code`` (``128 + n`` where signal ``n`` ended it), how
    long it took, whether the time limit ended it, and what its processes held on the ``gpus``."""

    command: tuple[str, ...]
    gpus: tuple[SimulatedGpu, ...]
    exit_code: int
    seconds: float
    is_late: bool
    processes: tuple[ProcessRecord, ...]
    SCHEMA: ClassVar = "placer.simulation/1"
    IN_JSON: ClassVar = ("peak_bytes",)

    @property
    def peak_bytes(self) -> dict[str, int]:
        """The most in use on each GPU by any one process."""
        return {
            gpu.name: max((row.peak.in_use_bytes for row in self.records_of(index)), default=0)
            for index, gpu in enumerate(self.gpus)
        }

    def records_of(self, index: int) -> list[GpuRecord]:
        """The records of one GPU, of every process that used it."""
        rows = [row for process in self.processes for row in process.gpus if row.index == index]
        return [row for row in rows if row.is_used]


def run_simulated(
    command: Sequence[str],
    gpus: tuple[SimulatedGpu, ...],
    *,
    time_limit_seconds: float | None = None,
    without_xla: bool = False,
    stdout: int | None = None,
) -> SimulatedRun:
    """Runs ``command`` to its end on ``gpus``; its stderr is ours, and so is its stdout if not
    given.  Raises :class:`UsageError` for a command that cannot be started, and where GPUs cannot
    be simulated."""
    with tempfile.TemporaryDirectory(prefix="placer-simulation-") as folder:
        environment = child_environment(gpus, os.environ, Path(folder))
        paths = [str(HOOK), *filter(None, [environment.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
        if growth_note(gpus, environment):
            environment[GROWTH] = "true"
        if without_xla:
            environment["PLACER_SIMULATION_NO_XLA"] = "1"
        if time_limit_seconds is not None:
            environment["PLACER_SIMULATION_TIME_LIMIT"] = str(time_limit_seconds)
        began = time.monotonic()
        try:
            process = subprocess.Popen(
                command, env=environment, stdout=stdout, stderr=descriptor_of(sys.stderr)
            )
        except OSError as error:
            raise UsageError(f"{command[0]} cannot be started: {error.strerror}") from error
        code, is_late = _await(process, time_limit_seconds)
        return SimulatedRun(
            command=tuple(command),
            gpus=gpus,
            exit_code=code if code >= 0 else 128 - code,
            seconds=time.monotonic() - began,
            is_late=is_late,
            processes=read_records(Path(folder)),
        )


def descriptor_of(stream: Any) -> int | None:
    """Returns the file behind a stream; ``None`` where it has none, as in a notebook."""
    try:
        descriptor: int = stream.fileno()
    except (AttributeError, OSError, ValueError):
        return None
    return descriptor


def _await(process: subprocess.Popen[bytes], limit_seconds: float | None) -> tuple[int, bool]:
    """Its status, and whether it had to be ended; it is ended too if this process is."""
    try:
        try:
            # a moment more than the limit: the process first says where it is
            return process.wait(None if limit_seconds is None else limit_seconds + 1), False
        except subprocess.TimeoutExpired:
            process.terminate()
            try:
                return process.wait(_GRACE_SECONDS), True
            except subprocess.TimeoutExpired:
                process.kill()
                return process.wait(), True
    except BaseException:
        if process.poll() is None:
            process.kill()
            process.wait()
        raise
