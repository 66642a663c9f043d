"""Contiguous segments of an order of units, one per device, cut where little crosses."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from placer.solving.reduction.unit_problem import UnitProblem

Order = npt.NDArray[np.int64]
Room = Sequence[Sequence[float]] | npt.NDArray[np.float64]


def split(
    problem: UnitProblem, order: Order, devices: Sequence[int], room: Room
) -> list[int] | None:
    """The split of :meth:`LinearSplit.over`."""
    return LinearSplit(problem, order).over(devices, room)


class LinearSplit:
    """Splits of the units of ``order`` into contiguous segments, one per device.

    Dynamic programming: ``best[k][j]`` is the least cost of giving the first j units to the first k
    devices, the sum over the cuts of the bytes of all nets that cross the cut.  Weights are added
    as floats: beyond 2**53 bytes a split may be over by rounding, so the caller checks.
    """

    def __init__(self, problem: UnitProblem, order: Order) -> None:
        self.length = len(order)
        self.crossing = crossing_bytes(problem, order)
        self.prefixes = [
            np.concatenate(([0.0], np.cumsum(np.asarray(row.weights, dtype=np.float64)[order])))
            for row in problem.rows
        ]

    def over(self, devices: Sequence[int], room: Room) -> list[int] | None:
        """The device of each unit (by position in the order), or ``None`` if no split fits.

        Device ``devices[k]`` takes the k-th segment (which may be empty); ``room[row][device]`` is
        what its segment may weigh.
        """
        choices, best = [], np.full(self.length + 1, np.inf)
        for best, choice in self._segments(devices, room):  # noqa: B007 (the last one is asked)
            choices.append(choice)
        return self._chosen(choices, devices) if np.isfinite(best[-1]) else None

    def over_fewest(self, devices: Sequence[int], room: Room) -> tuple[list[int] | None, int]:
        """The same over as few of the first ``devices`` as hold all, and how many these are."""
        choices = []
        for best, choice in self._segments(devices, room):
            choices.append(choice)
            if np.isfinite(best[-1]):
                return self._chosen(choices, devices[: len(choices)]), len(choices)
        return None, len(devices)

    def _segments(
        self, devices: Sequence[int], room: Room
    ) -> Iterator[tuple[npt.NDArray[np.float64], Order]]:
        """Device after device, the least costs, and where its segment starts for every end."""
        best = np.full(self.length + 1, np.inf)
        best[0] = 0.0
        for device in devices:
            starts = np.zeros(self.length + 1, dtype=np.int64)
            for number, prefix in enumerate(self.prefixes):
                least = prefix - room[number][device]
                starts = np.maximum(starts, np.searchsorted(prefix, least, side="left"))
            best, choice = _append_segment(best, starts, self.crossing)
            yield best, choice

    def _chosen(self, choices: Sequence[Order], devices: Sequence[int]) -> list[int]:
        device_at, end = [0] * self.length, self.length
        for choice, device in zip(reversed(choices), reversed(devices), strict=True):
            start = int(choice[end])
            device_at[start:end] = [device] * (end - start)
            end = start
        return device_at


def crossing_bytes(problem: UnitProblem, order: Order) -> npt.NDArray[np.float64]:
    """At index i, the bytes of the nets with units both before position i and from i on."""
    position = [-1] * problem.unit_count
    for place, unit in enumerate(order.tolist()):
        position[unit] = place
    change = np.zeros(len(order) + 2)
    for net in problem.nets:
        places = [p for unit in (net.producer, *net.consumers) if (p := position[unit]) >= 0]
        if len(places) > 1:
            change[min(places) + 1] += net.bytes
            change[max(places) + 1] -= net.bytes
    return np.cumsum(change)[: len(order) + 1]


def _append_segment(
    best: npt.NDArray[np.float64], starts: Order, crossing: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], Order]:
    """The costs with one more segment, and where that segment starts for every end: of those from
    ``starts`` on the one where the least is cut, the last of several; at the end itself if none is
    better."""
    entry = best + crossing
    ends = np.arange(1, len(best))
    first = np.minimum(starts[1:], ends - 1)
    # the least of two overlapping blocks, each of the largest power of two that there is room for
    levels = np.frexp(ends - first)[1] - 1
    least = [np.arange(len(entry))]
    for level in range(int(levels.max(initial=0))):
        left, right = least[-1][: -(1 << level)], least[-1][1 << level :]
        least.append(np.where(entry[right] <= entry[left], right, left))
    choice = np.arange(len(best))
    result = best.copy()
    for level in np.unique(levels):
        at = np.flatnonzero(levels == level)
        left = least[level][first[at]]
        right = least[level][ends[at] - (1 << int(level))]
        start = np.where(entry[right] <= entry[left], right, left)
        better = (starts[1:][at] < ends[at]) & (entry[start] < best[ends[at]])
        result[ends[at][better]] = entry[start[better]]
        choice[ends[at][better]] = start[better]
    return result, choice
