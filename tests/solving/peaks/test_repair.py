"""Placements above some caps, mended move by move."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from small_problems import problem_of

from placer.prediction.orders.possible_lifetimes import PossibleLifetimes
from placer.solving.peaks.repair import repair
from placer.solving.reduction.unit_problem import reduce_to_units
from placer.solving.search.peak_problem import PeakProblem, to_peak_problem

CHEAP = (3, 7)
"""After which ops of the chain little is handed on."""


def chain(*caps: int, host_bytes: int = 0, allowed: Sequence[int] = (0, 1)) -> PeakProblem:
    """Twelve ops in a row, of a byte each, for two devices with ``caps`` beside a host.

    0 -> 1 -> 2 -> 3 - 4 -> 5 -> 6 -> 7 - 8 -> 9 -> 10 -> 11         -> nine bytes, - one
    """
    tensors = [(op, [op + 1], 1 if op in CHEAP else 9) for op in range(11)]
    problem = problem_of(
        resident=[1] * 12, tensors=tensors, capacity=[12, 12, host_bytes], allowed=[[*allowed]] * 12
    )
    units = reduce_to_units(problem)
    lifetimes = PossibleLifetimes(orders=1, length=12)
    positions = [np.arange(12.0)]
    return to_peak_problem(problem, units, lifetimes, (*caps, host_bytes), positions=positions)


def test_a_border_moves_to_the_next_that_is_as_cheap() -> None:
    """A device that has eight ops in a row is one above what the prediction lets it have: any one
    op that leaves it makes the step send nine bytes more, half of them none."""
    judged: list[list[int]] = []

    def judge(device_of: Sequence[int]) -> list[int]:
        judged.append([*device_of])
        return [judged[-1].count(0) - 7, judged[-1].count(1) - 9, 0]

    peaks = chain(7, 9)
    begun = [0] * 8 + [1] * 4
    mended = repair(peaks, [begun], judge, lambda: False, most_bytes=peaks.value(begun) + 1)
    assert mended == [0] * 4 + [1] * 8
    assert peaks.value(mended) == peaks.value(begun) == 1
    assert len(judged) == 2


def test_what_sends_too_much_is_no_move() -> None:
    """Where no border as cheap is left, a placement above the caps stays as it is."""
    peaks = chain(3, 9)
    begun = [0] * 4 + [1] * 8

    def judge(device_of: Sequence[int]) -> list[int]:
        return [[*device_of].count(0) - 3, [*device_of].count(1) - 9, 0]

    assert repair(peaks, [begun], judge, lambda: False, most_bytes=1) == begun
    assert peaks.value(repair(peaks, [begun], judge, lambda: False)) >= 9


def test_where_no_accelerator_has_room_the_host_takes_what_is_cheapest_there() -> None:
    """Either device is one above what the prediction lets it have.  The first op sends nine bytes
    from the host, and as few as any; of the others two go, up to where little is handed on."""
    peaks = chain(5, 5, host_bytes=12, allowed=(0, 1, 2))
    begun = [0] * 6 + [1] * 6

    def judge(device_of: Sequence[int]) -> list[int]:
        return [[*device_of].count(0) - 5, [*device_of].count(1) - 5, -1]

    mended = repair(peaks, [begun], judge, lambda: False)
    assert mended == [2, *[0] * 5, 2, 2, *[1] * 4]
    assert peaks.value(mended) == peaks.value(begun) + 9 + 1


def test_what_an_allocator_finds_no_room_for_is_moved_though_nothing_less_is_counted() -> None:
    """The device is above its cap as long as the sixth or the seventh op is there: nothing that is
    counted says so.  The host takes both, with their neighbours, as that sends the least."""
    peaks = chain(12, 0, host_bytes=12, allowed=(0, 2))
    begun = [0] * 12

    def judge(device_of: Sequence[int]) -> list[int]:
        return [5 if 0 in device_of[5:7] else -1, -1, -1]

    mended = repair(peaks, [begun], judge, lambda: False)
    assert mended == [*[0] * 4, *[2] * 4, *[0] * 4]


def test_a_cheaper_start_that_is_further_above_is_mended_too() -> None:
    """The nearest has no move that helps; from the other one any device without the last op
    fits."""
    peaks = chain(12, 12, host_bytes=0)
    nearest, cheaper = [0, 1] * 6, [0] * 12

    def judge(device_of: Sequence[int]) -> list[int]:
        is_cheap = [*device_of[:11]] == [0] * 11
        return [(0 if device_of[11] else 2) if is_cheap else 1, -1, -1]

    assert repair(peaks, [nearest, cheaper], judge, lambda: False) == [*[0] * 11, 1]
