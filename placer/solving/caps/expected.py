"""The placement to judge next, of those that a search found beside its cheapest.

What a prediction says of a device beyond what the search counts there, its gap, differs from one
placement to the next, but those of one search are alike.  So each is given a chance to fit, and the
one is judged whose expected improvement is the largest: what it saves times its chance (D. R.
Jones, M. Schonlau, W. J. Welch, Efficient Global Optimization of Expensive Black-Box Functions,
Journal of Global Optimization 13, 1998, doi:10.1023/A:1008306431147).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from placer.solving.compiled.arrays import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedSchedule:
    """When judging ends, and how far gaps are apart."""

    deviation: float = 0.04  # of gaps, as a share of the caps
    dearest: float = 1.5  # times what costs most, where nothing fits: what one that fits saves
    least_gain: float = 0.002  # of the best: for less no placement is judged


_SCHEDULE = ExpectedSchedule()


class Candidate(NamedTuple):
    """A placement with its cost and, as shares of the caps, the room that is counted on each
    accelerator."""

    cost: float
    device_of: tuple[int, ...]
    room: Floats


class ExpectedImprovement:
    """The candidates for the next prediction, after some whose ``gaps`` on each accelerator are
    shares of its cap."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self.candidates = list(candidates)
        self.gaps: list[Floats] = []

    def note(self, room: Floats, over: Floats) -> None:
        """After a placement was judged that is ``over`` each cap by some share of it, below zero
        where it is below.  A gap below the mean may be more: judging ends above a cap."""
        gap = room + over
        if self.gaps and over.max(initial=0.0) > 0.0:
            gap = np.maximum(gap, np.mean(self.gaps, axis=0))
        self.gaps.append(gap)

    def next(self, best: float) -> Candidate | None:
        """Takes the candidate from which most is expected where ``best`` is the cost of what fits;
        ``None`` if that is too little."""
        left = self.candidates = [each for each in self.candidates if each.cost < best]
        if not left:
            return None
        top = min(best, _SCHEDULE.dearest * max(each.cost for each in left))
        gains = [(top - each.cost) * self.chance(each.room) for each in left]
        most = max(gains)
        return left.pop(gains.index(most)) if most > _SCHEDULE.least_gain * top else None

    def chance(self, room: Floats) -> float:
        """The chance that the gap of no device is above its room, if gaps are distributed normally
        about the mean of those known."""
        away = (room - np.mean(self.gaps, axis=0)) / (_SCHEDULE.deviation * math.sqrt(2.0))
        return math.prod(0.5 * math.erfc(-each) for each in away)
