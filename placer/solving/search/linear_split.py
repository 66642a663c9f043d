"""Contiguous segments of an order of units, one per device, cut where little crosses."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from placer.solving.reduction.unit_problem import UnitProblem

Order = npt.NDArray[np.int64]


def split(
    problem: UnitProblem,
    order: Order,
    devices: Sequence[int],
    room: Sequence[Sequence[float]] | npt.NDArray[np.float64],
) -> list[int] | None:
    """The device of each unit of ``order`` (by position), or ``None`` if no split fits.

    Device ``devices[k]`` takes the k-th segment (which may be empty); ``room[row][device]`` is
    what its segment may weigh.  Minimises the sum, over the cuts, of the bytes of all nets that
    cross the cut, by dynamic programming: ``best[k][j]`` is the least cost of giving the first j
    units to the first k devices.  Weights are added as floats: beyond 2**53 bytes a split may be
    over by rounding, so the caller checks.
    """
    length = len(order)
    crossing = _crossing_bytes(problem, order)
    prefixes = [
        np.concatenate(([0.0], np.cumsum(np.asarray(row.weights, dtype=np.float64)[order])))
        for row in problem.rows
    ]
    best = np.full(length + 1, np.inf)
    best[0] = 0.0
    choices = []
    for device in devices:
        starts = np.zeros(length + 1, dtype=np.int64)
        for number, prefix in enumerate(prefixes):
            least = prefix - room[number][device]
            starts = np.maximum(starts, np.searchsorted(prefix, least, side="left"))
        best, choice = _append_segment(best, starts, crossing)
        choices.append(choice)
    if not np.isfinite(best[length]):
        return None
    return _segments(choices, devices, length)


def _crossing_bytes(problem: UnitProblem, order: Order) -> npt.NDArray[np.float64]:
    """At index i, the bytes of the nets with units both before position i and from i on."""
    position = np.full(problem.unit_count, -1, dtype=np.int64)
    position[order] = np.arange(len(order))
    change = np.zeros(len(order) + 2)
    for net in problem.nets:
        places = [p for p in position[[net.producer, *net.consumers]].tolist() if p >= 0]
        if len(places) > 1:
            change[min(places) + 1] += net.bytes
            change[max(places) + 1] -= net.bytes
    return np.cumsum(change)[: len(order) + 1]


def _append_segment(
    best: npt.NDArray[np.float64],
    starts: npt.NDArray[np.int64],
    crossing: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.float64], list[int]]:
    """The costs with one more segment, and where that segment starts for every end.

    ``starts`` never falls, so the least cost of a start is kept in a monotone queue.
    """
    entry = best + crossing
    result = best.copy()
    choice = list(range(len(best)))
    window: deque[int] = deque()
    for end in range(1, len(best)):
        while window and entry[window[-1]] >= entry[end - 1]:
            window.pop()
        window.append(end - 1)
        while window and window[0] < starts[end]:
            window.popleft()
        if window and entry[window[0]] < result[end]:
            result[end] = entry[window[0]]
            choice[end] = window[0]
    return result, choice


def _segments(choices: Sequence[Sequence[int]], devices: Sequence[int], length: int) -> list[int]:
    device_at = [0] * length
    end = length
    for choice, device in zip(reversed(choices), reversed(devices), strict=True):
        start = choice[end]
        device_at[start:end] = [device] * (end - start)
        end = start
    return device_at
