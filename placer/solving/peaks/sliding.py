"""Placements like a given one whose borders along the depth of the model have all moved.

    before   0 0 0 1 1 1 1 2 2 2 2 0 0        cells between cheap borders, by device
    after    0 0 0 0 1 1 1 1 2 2 2 2 0

Where a model is the same layer many times over, that sends as much and holds as much, but what an
allocator loses to gaps differs: one may fit where another is a little above a cap.
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from placer.solving.compiled.arrays import Floats, Ints
from placer.solving.search.linear_split import crossing_bytes
from placer.solving.search.peak_problem import PeakProblem

_SHORTER = (0.6, 0.3, 0.1)
"""Chances that a stage ends at the last border up to which it fits, or one or two before."""


def slides(peaks: PeakProblem, here: Ints, is_late: Callable[[], bool]) -> list[Ints]:
    """Placements with the stages in the order in which they are, each about as long as it fits;
    those with the fewest devices that are nearly full come first."""
    random = np.random.default_rng(0)
    tracks = [_Track(peaks, here, position) for position in peaks.positions]
    tracks = [track for track in tracks if len(track.sequence) > 1 and len(track.cuts) > 1]
    found: dict[bytes, tuple[int, int, Ints]] = {}
    for draw in range(160 if tracks else 0):  # some do not fit as far as is counted
        if is_late():
            break
        drawn = tracks[draw % len(tracks)].draw(random)
        if drawn is not None:
            found.setdefault(drawn[1].tobytes(), (drawn[0], draw, drawn[1]))
    return [moved for *_, moved in sorted(found.values(), key=lambda each: each[:2])]


class _Track:
    """The units that may be on all devices in use, in their ``order`` along the depth; ``cuts`` are
    where little crosses, from its beginning to its end; ``sequence`` are the devices."""

    def __init__(self, peaks: PeakProblem, here: Ints, position: Floats) -> None:
        self.peaks, self.here = peaks, here
        used = set(here.tolist()) - {peaks.units.host}
        allowed = enumerate(peaks.units.allowed)
        free = np.array([unit for unit, devices in allowed if used <= set(devices)], np.int64)
        self.order = free[np.argsort(position[free], kind="stable")]
        self.cuts = _cheap_cuts(crossing_bytes(peaks.units, self.order)[:-1])
        self.sequence = self.devices()
        self.others = np.ones(len(here), np.bool_)
        self.others[self.order] = False
        self.share = lru_cache(None)(self._share)

    def devices(self) -> list[int]:
        """The device that has most of what is between two cuts, one after the other."""
        weight = self.peaks.resident + 1.0
        cells = [cell for cell in np.split(self.order, self.cuts) if len(cell)]
        most = [int(np.bincount(self.here[cell], weight[cell]).argmax()) for cell in cells]
        return list(dict.fromkeys(most))

    def draw(self, random: np.random.Generator) -> tuple[int, Ints] | None:
        """How many devices are nearly full in a placement, ``None`` if the last stage does not
        fit."""
        # the first device has the other end as well, as it is where both ends share a table, say
        is_ring = random.random() < 0.7
        sequence = [*self.sequence, *(self.sequence[:1] if is_ring else [])]
        # the first device has what is before the first of the ends, too
        ends = [int(random.integers(self.furthest(sequence[0], -1) + 2)) - 1] if is_ring else [-1]
        shares = []
        for device in sequence[is_ring:-1]:
            end = self.furthest(device, ends[-1]) - int(random.choice(len(_SHORTER), p=_SHORTER))
            if not ends[-1] < end < len(self.cuts):
                return None
            shares.append(self.share(device, ends[-1], end))
            ends.append(end)
        shares.append(self.share(sequence[-1], ends[-1], len(self.cuts), ends[0]))
        if max(shares) > 1.0:
            return None
        moved = self.here.copy()
        places = [self.place(end) for end in ends[not is_ring :]]
        for device, stage in zip(sequence, np.split(self.order, places), strict=True):
            moved[stage] = device
        return sum(share > 0.985 for share in shares), moved  # allocator gaps may be the rest

    def furthest(self, device: int, begin: int) -> int:
        """The last cut up to which a stage from another one on fits."""
        low, high = begin, len(self.cuts) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self.share(device, begin, middle) <= 1.0:
                low = middle
            else:
                high = middle - 1
        return low

    def _share(self, device: int, begin: int, end: int, first: int = -1) -> float:
        """Returns the share of its cap that a device takes with the units between two cuts, and up
        to a ``first`` one."""
        is_here = self.others & (self.here == device)
        for low, high in ((begin, end), (-1, first)):
            is_here[self.order[self.place(low) : self.place(high)]] = True
        return self.peaks.peak(is_here) / max(1, self.peaks.capacity[device])

    def place(self, cut: int) -> int:
        """Where in the order a cut is; -1 is its beginning, and one beyond the last its end."""
        return int(np.concatenate(([0], self.cuts, [len(self.order)]))[cut + 1])


def _cheap_cuts(crossing: Floats) -> Ints:
    """Places where about as little crosses as anywhere in the middle of the model."""
    quarter = len(crossing) // 4
    most = 1.05 * crossing[quarter : 3 * quarter + 1].min(initial=np.inf)
    cuts: list[int] = []
    for place in np.flatnonzero(crossing[1:] <= most).tolist():
        if not cuts or place + 1 - cuts[-1] > 0.002 * len(crossing):  # the least length of a stage
            cuts.append(place + 1)
        elif crossing[place + 1] < crossing[cuts[-1]]:
            cuts[-1] = place + 1
    return np.array(cuts, np.int64)
