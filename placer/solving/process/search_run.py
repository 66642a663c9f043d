"""One search in the solver process: how much it may do, and the best that it has found."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from placer.processes import Tell
from placer.solving.solution import Status

_OVERTIME_SECONDS = 0.5
"""On a busy machine CP-SAT may notice late that its time is over; all it found has been sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long and how to search: until ``deadline`` (a time of ``time.time()``, so that what it
    takes to come this far counts), and ``work_limit`` cycles or deterministic seconds at most."""

    deadline: float
    seed: int = 0
    workers: int = 0
    work_limit: int | None = None

    @property
    def threads(self) -> int:
        """Of the heuristic searches."""
        return self.workers or os.cpu_count() or 1

    def until(self, share: float) -> float:
        """When that share of the time that is left will be over."""
        now = time.time()
        return now + (1.0 if self.work_limit is not None else share) * (self.deadline - now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A placement of the units, what is proven about it, and the bound so far."""

    status: Status = Status.UNKNOWN
    device_of: tuple[int, ...] | None = None
    lower_bound: float | None = None


class BestSoFar:
    """The best answer so far; every change is told at once, so that nothing is lost when this
    process is killed."""

    def __init__(self, tell: Tell) -> None:
        self.answer = Answer()
        self._tell = tell
        self._lock = threading.Lock()

    def keep(self, device_of: Sequence[int]) -> None:
        """A better placement was found."""
        self._change(status=Status.FEASIBLE, device_of=tuple(device_of))

    def prove(self, status: Status) -> None:
        """What is known about the best placement, or that there is none."""
        self._change(status=status)

    def raise_bound(self, bound: float | None) -> None:
        """A bound was proven (``None``: none was); it never falls."""
        if bound is not None:
            self._change(lower_bound=bound)

    def _change(self, **changes: Any) -> None:
        with self._lock:
            known = self.answer.lower_bound
            if known is not None and "lower_bound" in changes:
                changes["lower_bound"] = max(known, changes["lower_bound"])
            self.answer = replace(self.answer, **changes)
            self._tell(self.answer)


Hints = Sequence[Sequence[int]]
"""Placements of the units to start from; they need not keep the limits."""

Search = Callable[[Any, Hints, BestSoFar, Effort], None]
"""From a problem and its hints; what it finds goes to the third."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """What crosses to the solver process; ``search`` is the ``package.module:function`` of a
    :data:`Search`."""

    search: str
    problem: object
    hints: tuple[tuple[int, ...], ...]
    effort: Effort


def run_search(request: SearchRequest, tell: Tell) -> Answer:
    """The best answer of one search at its end, or soon after its deadline, whatever CP-SAT is
    still doing; every better one on the way is told."""
    module, _, name = request.search.partition(":")
    search: Search = getattr(import_module(module), name)
    best = BestSoFar(tell)
    errors: list[Exception] = []

    def run() -> None:
        try:
            search(request.problem, request.hints, best, request.effort)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(max(0.0, request.effort.deadline - time.time()) + _OVERTIME_SECONDS)
    if errors:
        raise SystemExit(1) from errors[0]  # what was told before is kept
    return best.answer
