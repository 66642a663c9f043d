"""Predictions of placements: each is computed once, however often it is asked for."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from placer.problem.conflict import CapInConflict, Conflict, Fix
from placer.problem.device_peaks import DevicePeak
from placer.problem.limits import overrun_words
from placer.problem.placement_problem import PlacementProblem
from placer.solving.process import clock

PEAK_OVER_CAP = "peak_over_cap"
"""The code of the warning."""


def overrun_warnings(
    problem: PlacementProblem, overruns: Mapping[int, DevicePeak]
) -> list[tuple[str, str]]:
    """One warning per device, with its peak, or what its allocator needs, and its cap."""
    return [
        (
            PEAK_OVER_CAP,
            overrun_words(problem.device_names[device], peak.peak_bytes, capacity, capacity),
        )
        for device, peak in overruns.items()
        for capacity in [problem.capacity_bytes[device]]
    ]


def overrun_conflict(problem: PlacementProblem, overruns: Mapping[int, DevicePeak]) -> Conflict:
    """The caps that the placement breaks."""
    names = problem.device_names
    return Conflict(
        caps=tuple(
            CapInConflict(
                device=names[device],
                peak_bytes=peak.peak_bytes,
                usable_bytes=problem.capacity_bytes[device],
            )
            for device, peak in overruns.items()
        ),
        fixes=(Fix(change="give the solver more time: --time-limit"),),
    )


PeakFinder = Callable[[Sequence[int]], Sequence[DevicePeak]]
"""From one device number per op to the predicted peak of every device."""

_FIRST_SHARE = 0.5
"""Share of the first prediction that any other takes, about."""


class Predictions:
    """The predicted peaks of placements under the caps ``capacity_bytes``; ``longest_seconds`` is
    what the longest of them took, or half of what the first did: that finds the orders as well.
    ``usual_seconds`` is the mean: of what is above a cap less is predicted."""

    def __init__(self, find_peaks: PeakFinder, capacity_bytes: Sequence[int]) -> None:
        self.capacity_bytes = capacity_bytes
        self.longest_seconds = 0.0
        self._seconds: list[float] = []
        self._find_peaks = find_peaks
        self._judged = lru_cache(32)(self._judge)

    @property
    def usual_seconds(self) -> float:
        """The seconds that a prediction takes on average; zero before the first."""
        return sum(self._seconds) / max(1, len(self._seconds))

    def __call__(self, device_of: Sequence[int]) -> Sequence[DevicePeak]:
        """The peak of every device."""
        return self._judged(tuple(device_of))

    def overruns(self, device_of: Sequence[int]) -> dict[int, DevicePeak]:
        """The peaks that are above the caps."""
        caps = self.capacity_bytes
        peaks = enumerate(self(device_of))
        return {device: peak for device, peak in peaks if peak.peak_bytes > caps[device]}

    def bytes_over(self, device_of: Sequence[int]) -> list[int]:
        """The bytes that each device peaks above its cap, below zero if below."""
        both = zip(self(device_of), self.capacity_bytes, strict=True)
        return [peak.peak_bytes - cap for peak, cap in both]

    def _judge(self, device_of: tuple[int, ...]) -> Sequence[DevicePeak]:
        began = clock.monotonic()
        peaks = self._find_peaks(device_of)
        spent = clock.monotonic() - began
        if not self.longest_seconds:
            spent *= _FIRST_SHARE
        self.longest_seconds = max(self.longest_seconds, spent)
        self._seconds.append(spent)
        return peaks
