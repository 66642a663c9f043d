"""Borders along the depth that all move at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from small_problems import problem_of

from placer.prediction.orders.possible_lifetimes import PossibleLifetimes
from placer.solving.peaks import repair as repair_module
from placer.solving.peaks.repair import repair
from placer.solving.peaks.sliding import slides
from placer.solving.reduction.unit_problem import reduce_to_units
from placer.solving.search.peak_problem import PeakProblem, to_peak_problem

OPS, CAP, SPARE = 11, 4, 5


def chain() -> PeakProblem:
    """Eleven ops in a row, of a byte each, a byte between any two: three devices of four bytes
    hold them, and two more are there beside the host."""
    tensors = [(op, [op + 1], 1) for op in range(OPS - 1)]
    problem = problem_of(
        resident=[1] * OPS,
        tensors=tensors,
        capacity=[CAP] * SPARE + [0],
        allowed=[list(range(SPARE))] * OPS,
    )
    lifetimes = PossibleLifetimes(orders=1, length=OPS)
    positions = [np.arange(float(OPS))]
    units = reduce_to_units(problem)
    return to_peak_problem(problem, units, lifetimes, problem.capacity_bytes, positions=positions)


def stages(*sizes: int) -> list[int]:
    """Devices in turn, each with so many ops."""
    return [device for device, size in enumerate(sizes) for _ in range(size)]


def test_slides_keep_the_caps_and_the_devices_in_use() -> None:
    """Stages of a chain go on one after the other, each within its cap."""
    peaks, here = chain(), np.array(stages(4, 4, 3))
    found = [moved.tolist() for moved in slides(peaks, here, lambda: False)]
    assert stages(4, 3, 4) in found
    assert stages(3, 4, 4) in found
    for moved in found:
        assert set(moved) == {0, 1, 2}
        assert max(peaks.peaks(moved)) <= CAP


def test_nothing_slides_on_one_device() -> None:
    """A single stage has no border."""
    assert slides(chain(), np.zeros(OPS, np.int64), lambda: False) == []


@pytest.mark.parametrize("sizes", [(4, 3, 4), (3, 4, 4)])
def test_fewer_devices_are_mended_by_moving_all_borders(
    sizes: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an allocator loses depends on all that a device holds: of all stages on three devices
    one division keeps the caps, and what keeps them on four sends more.  It is found without a
    single move, from stages that do not."""
    peaks, fitting = chain(), stages(*sizes)
    whole = [[op for op, device in enumerate(fitting) if device == each] for each in range(3)]

    def judge(device_of: Sequence[int]) -> list[int]:
        ops = [[op for op, on in enumerate(device_of) if on == device] for device in range(SPARE)]
        return [len(held) - CAP + (len(held) == CAP and held not in whole) for held in ops]

    def fits(*divided: int) -> bool:
        return sum(divided) == OPS and max(judge(stages(*divided))) <= 0

    counts = range(1, CAP + 1)
    assert [each for each in product(counts, repeat=3) if fits(*each)] == [sizes]
    known = min(peaks.value(stages(*each)) for each in product(counts, repeat=4) if fits(*each))
    monkeypatch.setattr(repair_module._Moves, "likely", lambda *_: [])
    mended = repair(peaks, [stages(4, 4, 3)], judge, lambda: False, most_bytes=known)
    in_turn = list(dict.fromkeys(mended))  # the devices are alike
    assert [in_turn.index(device) for device in mended] == fitting
    assert peaks.value(mended) < known
