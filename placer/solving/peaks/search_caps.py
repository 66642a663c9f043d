"""The caps that searches along the orders keep: those of the devices less what the prediction says
beyond what searches count (what an allocator loses to gaps, say)."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from placer.problem.placement_problem import PlacementProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class CapSchedule:
    """How much of what was seen of one placement is expected of the next."""

    margin: float = 0.998  # of the caps: what prediction and search mostly differ by
    judged_margin: float = 0.9998  # the same, where the prediction has told by how much
    wary_margin: float = 0.9  # the same for anything that fits, where the host takes the rest
    wary: float = 0.15  # of a gap, more for each search that came out above a cap
    most_wary: float = 0.1  # the same where anything that fits will do
    wary_from: float = 0.2  # of all caps together left; in proportion where less is
    most_reserved: float = 0.5  # of all caps together left, before anything was searched
    least_step: float = 0.02  # of a cap, between one that was kept and one that was not


_SCHEDULE = CapSchedule()


class TriedCaps:
    """By device the largest cap in bytes under which a search came out within the device's own cap,
    ``kept``, and the least under which one came out above it, ``missed``."""

    def __init__(self, devices: int) -> None:
        self.kept = [0.0] * devices
        self.missed = [math.inf] * devices

    def note(
        self, caps: Sequence[float], counted: Sequence[float], overruns: Sequence[int]
    ) -> None:
        """After a search under these caps, of the devices on which it kept them."""
        for device, (cap, count, over) in enumerate(zip(caps, counted, overruns, strict=True)):
            if count <= cap and over > 0:
                self.missed[device] = min(self.missed[device], cap)
            elif count <= cap:
                self.kept[device] = max(self.kept[device], cap)

    def between(self, device: int, cap: float, least_step: float) -> float:
        """The ``cap``, or what is halfway if it is beyond what is known of the device: what an
        allocator loses to gaps, and tunes with, is not in proportion to what is there."""
        kept, missed = self.kept[device], self.missed[device]
        if kept < cap < missed or not kept < missed < math.inf:
            return cap
        return (kept + missed) / 2 if missed - kept > least_step else kept


class SearchCaps:
    """The caps of the next search in bytes, ``now``: never above ``most``, or above a little less
    than the cap of a device whose gap the prediction has just told; ``is_wary``: more than needed
    is kept free, and caps never rise again.

    ``counted`` and ``overruns`` of a placement are what searches count on every device, and by how
    much it is predicted to be above its cap; together with the cap they tell the gap between both.
    """

    def __init__(
        self, problem: PlacementProblem, tried: TriedCaps | None = None, *, is_wary: bool = False
    ) -> None:
        self.tried = tried or TriedCaps(len(problem.capacity_bytes))
        self.caps, self.others = problem.capacity_bytes, problem.beside_host
        margin = _SCHEDULE.wary_margin if is_wary else _SCHEDULE.margin
        self.most = tuple(int(_SCHEDULE.margin * cap) for cap in self.caps)
        self.now = tuple(int(margin * cap) for cap in self.caps)
        self.caution, self.lowered = 1.0, 0
        self.is_wary, self.is_open = is_wary, problem.spill == "auto"
        self.is_missed = False

    def reserve(self, counted: Sequence[float], overruns: Sequence[int]) -> None:
        """Before the first search: takes the largest gap of a placement, as a share of the cap, off
        every cap but the host's; where the host takes no rest, no more than half of what all caps
        together leave."""
        gaps = self._gaps(counted, overruns)
        rate = max((gaps[d] / self.caps[d] for d in self.others if self.caps[d]), default=0.0)
        left = 1.0 if self.is_open else 1.0 - self._held(counted)
        rate = min(max(0.0, rate), _SCHEDULE.most_reserved * left)
        now = list(self.now)
        for device in self.others:
            now[device] = min(now[device], int((1.0 - rate) * self.caps[device]))
        self.now = tuple(now)

    def lower(
        self,
        counted: Sequence[float],
        overruns: Sequence[int],
        least: Sequence[float] | None = None,
    ) -> None:
        """After a search that came out above a cap: takes the gaps there off those caps.

        What other devices hold by now may stay there; beyond that they are filled as if ``caution``
        times the largest of these gaps came to them too.  It halves where a search finds no room.
        Gaps differ from one placement to the next: they are taken to be larger, more after each
        search, where all caps together leave room for that.
        """
        self.is_missed = any(a > b for a, b in zip(counted, self.now, strict=True))
        if self.is_missed:
            self.caution *= 0.5
        gaps = self._gaps(counted, overruns)
        above = [device for device, over in enumerate(overruns) if over > 0]
        rate = self.caution * max(
            max(0.0, gaps[device]) / max(1, self.caps[device]) for device in above
        )
        self.lowered += 1
        left = min(1.0, max(0.0, 1.0 - self._held(counted)) / _SCHEDULE.wary_from)
        wary = _SCHEDULE.most_wary if self.is_wary else _SCHEDULE.wary * left
        larger = 1.0 + self.caution * wary * self.lowered
        floors = [-math.inf] * len(self.caps) if least is None else least
        now = tuple(
            int(
                max(floor, _SCHEDULE.judged_margin * cap - larger * max(0.0, gaps[device]))
                if device in above
                else min(self.most[device], max(floor, counted[device], (1.0 - rate) * cap))
            )
            for device, (cap, floor) in enumerate(zip(self.caps, floors, strict=True))
        )
        now = self._between(now)
        self.now = tuple(map(min, self.now, now)) if self.is_wary else now

    def widen(self, counted: Sequence[float], overruns: Sequence[int]) -> None:
        """Where nothing better is found than a placement within the caps: gives back what is off
        them beyond the gaps of that placement."""
        gaps = self._gaps(counted, overruns)
        self.now = self._between(
            max(now, min(most, int(_SCHEDULE.judged_margin * cap - gap)))
            for now, most, cap, gap in zip(self.now, self.most, self.caps, gaps, strict=True)
        )

    def _between(self, caps: Iterable[int]) -> tuple[int, ...]:
        """These caps, but of accelerators none that is known to be too much, or too little."""
        step, found = _SCHEDULE.least_step, list(caps)
        for device in self.others:
            least_step = step * self.caps[device]
            found[device] = int(self.tried.between(device, found[device], least_step))
        return tuple(found)

    def _gaps(self, counted: Sequence[float], overruns: Sequence[int]) -> list[float]:
        """Returns what the prediction says of every device beyond what is counted there."""
        return [
            cap + over - count
            for cap, over, count in zip(self.caps, overruns, counted, strict=True)
        ]

    def _held(self, counted: Sequence[float]) -> float:
        """The share of all caps but the host's that is counted."""
        every = sum(self.caps[device] for device in self.others)  # 0: the host alone
        return sum(counted[device] for device in self.others) / max(1, every)
