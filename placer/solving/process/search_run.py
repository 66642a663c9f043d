"""One search in the solver process: how much it may do, and the best that it has found."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from placer.processes import Tell
from placer.solving.solution import SolverParameters, Status

_FIRST_STEPS = 20
_FIRST_SHARE = 0.6
"""Most of the time, as a share, for what little work proves before the clock decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort(SolverParameters):
    """How to search, and until when: ``deadline`` is a time of ``time.time()``, so that what it
    takes to come this far counts.  Where ``is_first``, nobody asked for the ``work_limit``: more is
    done after that."""

    deadline: float
    is_first: bool = False

    @property
    def threads(self) -> int:
        """Threads of the heuristic searches; one where work is counted, as several race."""
        threads = 1 if self.is_counted else self.workers or os.cpu_count() or 1
        return max(1, threads - self.to_prove)

    @property
    def is_counted(self) -> bool:
        """Whether work ends the parts of the search, and not the clock."""
        return self.work_limit is not None

    def until(self, share: float) -> float:
        """When that share of the time that is left will be over."""
        now = time.time()
        return now + (1.0 if self.is_counted else share) * (self.deadline - now)

    def first_part(self) -> Effort:
        """A little work, which ends by itself on most machines."""
        deadline = self.until(_FIRST_SHARE)
        return replace(self, work_limit=_FIRST_STEPS, deadline=deadline, is_first=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A placement of the units, what is proven about it, and the bound so far; ``is_cut`` if the
    clock had a say in it, ``in_cp_sat`` while that runs; ``is_running`` where the search was left
    behind.  ``others`` are placements that are nearly as good."""

    status: Status = Status.UNKNOWN
    device_of: tuple[int, ...] | None = None
    lower_bound: float | None = None
    is_cut: bool = False
    in_cp_sat: bool = False
    is_running: bool = False
    others: tuple[tuple[int, ...], ...] = ()


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

    def keep_others(self, found: Sequence[Sequence[int]]) -> None:
        """Other placements are nearly as good, the best of them first."""
        self._change(others=tuple(map(tuple, found)))

    def prove(self, status: Status) -> None:
        """Records what is proven about the best placement, or that there is none."""
        self._change(status=status)

    @contextmanager
    def in_cp_sat(self) -> Iterator[None]:
        """CP-SAT runs in the block: if the process dies in it, nothing else is to blame."""
        self._change(in_cp_sat=True)
        yield
        self._change(in_cp_sat=False)

    def raise_bound(self, bound: float | None) -> None:
        """A bound was proven (``None``: none was); it never falls."""
        if bound is not None:
            self._change(lower_bound=bound)

    def note_clock(self, effort: Effort) -> None:
        """A part begins that goes by the clock, unless its work is counted."""
        if not effort.is_counted:
            self._change(is_cut=True)

    def note_time(self, deadline: float) -> None:
        """A part has ended; if ``deadline`` has come, the clock may have ended it."""
        if time.time() >= deadline:
            self._change(is_cut=True)

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
    """The request that crosses to the solver process; ``search`` is the ``package.module:function``
    of a :data:`Search`."""

    search: str
    problem: object
    hints: tuple[tuple[int, ...], ...]
    effort: Effort


def prove_first(search: Search) -> Search:
    """The search with a counted part before it: what little work proves is found in the same way
    every time, and only what it leaves open is searched as long as the time lets."""

    def search_twice(problem: Any, hints: Hints, best: BestSoFar, effort: Effort) -> None:
        if not effort.is_counted:
            first = effort.first_part()
            search(problem, hints, best, first)
            best.note_time(first.deadline)
            if best.answer.status in (Status.OPTIMAL, Status.INFEASIBLE):
                return
            known = best.answer.device_of
            hints = hints if known is None else [known, *hints]
        best.note_clock(effort)
        search(problem, hints, best, effort)

    return search_twice


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
            best.note_time(request.effort.deadline)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    # on a busy machine CP-SAT may notice late that its time is over; all it found has been sent
    thread.join(max(0.0, request.effort.deadline - time.time()) + 0.5)
    if errors:
        raise SystemExit(repr(errors[0])) from errors[0]  # what was told before is kept
    if thread.is_alive():
        best.note_time(0.0)
        return replace(best.answer, is_running=True)
    return best.answer
