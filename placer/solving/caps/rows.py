"""Searches by rows: solve by sums of bytes at some moments, predict, tighten, solve again.

A row overstates no prediction: whatever the placement, it asks for no more than what the device is
predicted to hold at that moment.  So a problem with more rows still has every placement that fits,
and what is proven about it holds.  Reserved bytes are a guess about placements not yet seen: while
some are reserved beyond the given ones, nothing is claimed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from placer.problem.device_peaks import DevicePeak
from placer.problem.placement_problem import PlacementProblem
from placer.solving.caps.record import Record
from placer.solving.caps.reservation import level, loosen, spread, tighten, with_moments, with_rows
from placer.solving.caps.schedule import SCHEDULE
from placer.solving.objectives.refining import value_of
from placer.solving.process.child_search import start_searcher_ahead
from placer.solving.process.deadline import Deadline
from placer.solving.solution import Solution, Status
from placer.solving.solver import solve


class Rows:
    """Searches of ``given`` by ``solver``; ``tightened`` is what the next one solves.

    Where ``fits_first``, to find anything that fits matters more than to find the best: what is
    reserved on one device is reserved on its likes, too.  While it does not yet ``reserve``,
    moments alone are learned.
    """

    least_left_seconds = SCHEDULE.least_rows_seconds
    is_tidy = True
    tidies = False
    to_prove = False
    reserves = True
    is_level = False

    def __init__(self, given: PlacementProblem, solver: str, *, fits_first: bool = False) -> None:
        self.given = self.tightened = given
        self.solver, self.fits_first = solver, fits_first
        self.last: tuple[int, ...] | None = None
        self.loosened = 0
        self.is_missed = False
        self.missed: dict[int, int] = {}

    @property
    def is_exact(self) -> bool:
        """Whether nothing is reserved on a guess, so that proofs hold for the given problem."""
        given, now = self.given, self.tightened
        return now.transient_bytes == given.transient_bytes and now.allowed == given.allowed

    def search(self, found: Record, deadline: Deadline) -> Solution:
        """The problem as it is known by now, begun at the best placement; a prediction is to end by
        the deadline, too.  What fits already is only improved, in all of the time."""
        judged = found.request.predict.longest_seconds
        share = SCHEDULE.next_share if self.is_missed else 1.0
        time = deadline.before(judged).part(share, SCHEDULE.least_rows_seconds)
        known = found.known[-1:]
        if not self.reserves:  # a search along the orders follows, and CP-SAT may end late
            start_searcher_ahead(2)
        solution = solve(
            self.tightened,
            replace(found.parameters, time_limit_seconds=time.left(), to_prove=self.to_prove),
            hint=known[0] if known else None,
            solver=self.solver,
        )
        if not self.is_exact or self.given.spill != found.request.problem.spill:
            return solution
        if solution.status is Status.INFEASIBLE:
            found.infeasible = solution
        elif self.given.objective == found.request.problem.objective:
            found.raise_bound(solution.lower_bound)
        return solution

    def learn(self, found: Record, searched: Solution, _over: Sequence[int]) -> str:
        """Takes the moments at which a placement was above its caps as rows, and reserves what else
        the prediction saw there; where there was none, reserves less.  Returns why no search
        follows, if none does."""
        if searched.device_of is None:
            return self._loosen()
        overruns = found.request.predict.overruns(searched.device_of)
        self.is_missed = bool(overruns)
        if overruns and not self.is_exact and self._cost(searched) >= found.value:
            return self._loosen()
        before, last, self.last = self.tightened, self.last, searched.device_of
        if self.reserves:
            self.reserve(searched.device_of, overruns)
        else:
            self.tightened = with_moments(self.tightened, overruns.values())
        is_same = self.last == last and self.tightened == before
        return "the same placement again" if is_same else ""

    def reserve(self, device_of: Sequence[int], overruns: Mapping[int, DevicePeak]) -> None:
        """Reserves what the prediction of a placement saw beyond the rows; on a device that stays
        above its cap, twice as much as the last time."""
        self.missed = {device: self.missed.get(device, 0) + 1 for device in overruns}
        self.tightened = tighten(
            self.tightened,
            device_of,
            overruns,
            cautious=self.loosened > 0,
            times={device: 2 ** (often - 1) for device, often in self.missed.items()},
        )
        if overruns and self.fits_first:
            self.tightened = spread(self.tightened, self.given)
        if self.is_level:
            self.tightened = level(self.tightened)

    def _cost(self, searched: Solution) -> float:
        assert searched.device_of is not None
        return value_of(self.given, searched.device_of)

    def share_rows(self, other: Rows) -> None:
        """Takes the moments that other searches have learned."""
        self.tightened = with_rows(self.tightened, other.tightened.live_bytes)

    def _loosen(self) -> str:
        """Leaves half of what was reserved, in the end nothing, where no cheaper placement fits."""
        if self.is_exact:
            return "nothing fits by the rows"
        self.loosened += 1
        if self.loosened > SCHEDULE.most_loosened:
            return "nothing better within the reserves"
        share = 0.5 if self.loosened % SCHEDULE.loosened_fully else 0.0
        self.tightened = loosen(self.tightened, self.given, share=share)
        return ""
