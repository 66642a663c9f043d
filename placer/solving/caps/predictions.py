"""Predictions of placements: each is computed once, however often it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from placer.problem.device_peaks import DevicePeak
from placer.solving.process import clock

PeakFinder = Callable[[Sequence[int]], Sequence[DevicePeak]]
"""From one device number per op to the predicted peak of every device."""

_MOST_KEPT = 32

_FIRST_SHARE = 0.5
"""Share of the first prediction that any other takes, about."""


class Predictions:
    """The predicted peaks of placements under the caps ``capacity_bytes``; ``longest_seconds`` is
    what the longest of them took, or half of what the first did: that finds the orders as well."""

    def __init__(self, find_peaks: PeakFinder, capacity_bytes: Sequence[int]) -> None:
        self.capacity_bytes = capacity_bytes
        self.longest_seconds = 0.0
        self._find_peaks = find_peaks
        self._judged = lru_cache(_MOST_KEPT)(self._judge)

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
        return peaks
