"""What is predicted of placements."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from solving.virtual_time import VirtualTime

from placer.problem.device_peaks import DevicePeak
from placer.solving.caps.predictions import Predictions


def test_a_placement_is_judged_once() -> None:
    """However it is asked for: the peaks, those above the caps, or by how much they are."""
    judged: list[Sequence[int]] = []

    def find_peaks(device_of: Sequence[int]) -> list[DevicePeak]:
        judged.append(device_of)
        return [DevicePeak(peak_bytes=device_of.count(each), moment={}) for each in range(2)]

    predict = Predictions(find_peaks, [2, 2])
    assert [peak.peak_bytes for peak in predict([0, 0, 0, 1])] == [3, 1]
    assert predict.overruns((0, 0, 0, 1)).keys() == {0}
    assert predict.bytes_over([0, 0, 0, 1]) == [1, -1]
    assert judged == [(0, 0, 0, 1)]
    assert predict.overruns([0, 0, 1, 1]) == {}
    assert len(judged) == 2


def test_the_first_prediction_takes_longer_than_others(virtual_time: VirtualTime) -> None:
    """It finds the orders of the step: half of it is what the next is expected to take, until one
    takes longer."""
    seconds = [0.2, 0.15]

    def find_peaks(_: Sequence[int]) -> list[DevicePeak]:
        virtual_time.sleep(seconds.pop(0))
        return [DevicePeak(peak_bytes=0, moment={})]

    predict = Predictions(find_peaks, [2])
    predict([0])
    assert predict.longest_seconds == pytest.approx(0.1)
    predict([0, 0])
    assert predict.longest_seconds == pytest.approx(0.15)
