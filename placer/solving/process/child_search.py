"""A search in a child process that may be late, crash or talk nonsense without harm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import placer
from placer.solving.solution import SolverParameters, Status

GRACE_SECONDS = 0.7
"""How long a child may overrun its limit before it is killed."""

_BOOTSTRAP = """
import sys
if {root!r} not in sys.path:
    sys.path.insert(0, {root!r})
from placer.solving.solver_process import main
sys.exit(main())
"""


Warnings = tuple[tuple[str, str], ...]


class SearchProblem(Protocol):
    """What the child can solve: it is sent as JSON, and its answers can be checked."""

    def to_json(self, hint: Sequence[int] | None = None) -> str:
        """The problem and a placement of the units to start from."""
        ...

    def value(self, device_of_unit: Sequence[int]) -> float:
        """The cost of a placement."""
        ...

    def is_feasible(self, device_of_unit: Sequence[int]) -> bool:
        """Whether a placement keeps all limits."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildResult:
    """What is known after the child ended, however it ended.

    ``device_of`` (per unit) has been checked against the problem, and ``value`` is its cost;
    ``lower_bound`` is what the solver had proven last.  ``warnings`` are (code, message) pairs
    about what went wrong.
    """

    status: Status
    device_of: tuple[int, ...] | None = None
    value: float | None = None
    lower_bound: float | None = None
    warnings: Warnings = ()


def search_in_child(
    problem: SearchProblem,
    hint: Sequence[int] | None,
    parameters: SolverParameters,
    time_limit_seconds: float,
) -> ChildResult:
    """The result of CP-SAT in its own interpreter; takes ``time_limit_seconds`` and the grace
    at most.  Neither the process nor its files outlive the call."""
    content, warnings = answer_of_child(problem.to_json(hint), parameters, time_limit_seconds)
    if content is None:
        missing = ("solver_crashed", "the solver process wrote no result")
        return ChildResult(status=Status.UNKNOWN, warnings=warnings or (missing,))
    try:
        return _checked(content, problem, warnings)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        malformed = ("solver_crashed", f"the result of the solver process is malformed: {error}")
        return ChildResult(status=Status.UNKNOWN, warnings=(*warnings, malformed))


def answer_of_child(
    text: str, parameters: SolverParameters, time_limit_seconds: float
) -> tuple[dict[str, Any] | None, Warnings]:
    """What the solver process says of a problem as JSON, and what went wrong; ``None`` if it left
    nothing that can be read.  Neither the process nor its files outlive the call."""
    started = time.monotonic()
    deadline = time.time() + time_limit_seconds - _SHUTDOWN_SECONDS
    with tempfile.TemporaryDirectory(prefix="placer-") as folder:
        paths = Path(folder, "problem.json"), Path(folder, "result.json")
        paths[0].write_text(text)
        warnings = _run(
            [
                *child_command(),
                *map(str, paths),
                f"--deadline={deadline}",
                f"--seed={parameters.seed}",
                f"--workers={parameters.workers}",
                *_work_limit(parameters),
                "--stop-with-parent",
            ],
            time_limit_seconds + GRACE_SECONDS - (time.monotonic() - started),
        )
        return _read(paths[1]), warnings


_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""The search has threads of its own; those of numpy's linear algebra would only wait for them."""

_SHUTDOWN_SECONDS = 0.5
"""What the child needs to end once its search is over."""


def child_command() -> list[str]:
    """The command of the child.

    ``-P`` keeps the caller's folder out of its path, where a ``numpy.py`` would shadow the real
    one; the folder that this package was imported from is added if it is not there.
    """
    root = str(Path(placer.__file__).resolve().parent.parent)
    return [sys.executable, "-P", "-c", _BOOTSTRAP.format(root=root)]


def _work_limit(parameters: SolverParameters) -> list[str]:
    limit = parameters.work_limit
    return [] if limit is None else [f"--work-limit={limit}"]


def _run(command: Sequence[str], limit_seconds: float) -> Warnings:
    """Run the child; why it did not end well, if so."""
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env={**os.environ, **_ONE_THREAD},
        ) as child,
    ):
        try:
            code = child.wait(limit_seconds)
        except subprocess.TimeoutExpired:
            message = f"the solver process was late and was stopped after {limit_seconds:.1f} s"
            return (("solver_stopped", message),)
        finally:
            child.kill()
            child.wait()
        if code == 0:
            return ()
        errors.seek(0)
        last_line = errors.read().decode(errors="replace").strip().rpartition("\n")[2]
        return (("solver_crashed", f"the solver process ended with {code} {last_line}".strip()),)


def _read(path: Path) -> dict[str, Any] | None:
    """The result file; ``None`` if there is none, or none that can be read."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _checked(data: dict[str, Any], problem: SearchProblem, warnings: Warnings) -> ChildResult:
    """The result as data; raises ``ValueError`` if its placement does not fit the problem."""
    status = Status(data["status"])
    bound = data["lower_bound"]
    if not isinstance(bound, int | float | None):
        raise ValueError(f"the bound is {bound!r}")
    if data["device_of"] is None:
        return ChildResult(status=status, lower_bound=bound, warnings=warnings)
    device_of = tuple(int(device) for device in data["device_of"])
    if not problem.is_feasible(device_of):
        raise ValueError("the placement breaks a limit")
    return ChildResult(
        status=status,
        device_of=device_of,
        value=problem.value(device_of),
        lower_bound=bound,
        warnings=warnings,
    )
