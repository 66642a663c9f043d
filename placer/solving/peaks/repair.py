"""A placement above some caps, mended move by move, each judged by the prediction itself.

What an allocator needs beyond the bytes that it is asked for depends on all that a device holds,
and no search along the orders knows it.  So what is left above the caps is looked for by moves of
single units and of stretches along the depth of the model, from the device that is the most above
its cap to others.  Those are tried first that leave the least above the caps as far as is counted,
and of these the ones that send the least.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from placer.problem.placement_problem import ProblemTensor
from placer.solving.compiled.arrays import Floats, Ints
from placer.solving.peaks.problem import PeakProblem

Judge = Callable[[Sequence[int]], Sequence[int]]
"""From one device number per unit to the bytes that each device is predicted to be above its cap;
zero or less where it is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairSchedule:
    """How many moves are counted, and how many of them the prediction then judges."""

    parts: tuple[int, ...] = (4, 8, 16, 32)  # of what a device holds, in stretches
    most_single: int = 40  # units, the largest, that move alone
    most_border: int = 40  # the same, of those whose move sends no more
    most_left: int = 24  # of all these, by what they leave above the caps where they were
    most_judged: int = 8  # from one placement, until one is better
    most_worse: int = 8  # steps without a better one, each to the best of those judged


SCHEDULE = RepairSchedule()


def repair(
    peaks: PeakProblem, device_of_unit: Sequence[int], judge: Judge, is_late: Callable[[], bool]
) -> list[int]:
    """The placement nearest to within all caps that moves led to; ``peaks.capacity`` are those of
    the prediction."""
    here = np.array(device_of_unit, np.int64)
    over, seen = np.array(judge(here.tolist()), np.float64), {here.tobytes()}
    moves, best, worse = _Moves(peaks), (_above(over), here), 0
    while best[0] > 0.0 and worse <= SCHEDULE.most_worse:
        judged: list[tuple[float, int, Ints, Floats]] = []
        for moved in moves.likely(here, over, is_late):
            if moved.tobytes() in seen or is_late():
                continue
            seen.add(moved.tobytes())
            then = np.array(judge(moved.tolist()), np.float64)
            judged.append((_above(then), len(judged), moved, then))
            if judged[-1][0] < best[0]:
                break
        if not judged:
            break
        above, _, here, over = min(judged, key=lambda each: each[:2])
        worse = 0 if above < best[0] else worse + 1
        best = min(best, (above, here), key=lambda each: each[0])
    return [int(device) for device in best[1]]


def _above(over: Floats) -> float:
    return float(np.maximum(0.0, over).sum())


class _Moves:
    """Moves from the device that is the most above its cap, as far as is counted."""

    def __init__(self, peaks: PeakProblem) -> None:
        self.peaks = peaks
        self.capacity = np.array(peaks.capacity, np.float64)
        self.nets_of: list[list[ProblemTensor]] = [[] for _ in range(peaks.units.unit_count)]
        for net in peaks.units.nets:
            for unit in _pins(net):
                self.nets_of[unit].append(net)

    def likely(self, here: Ints, over: Floats, is_late: Callable[[], bool]) -> list[Ints]:
        """Placements one move away: what is counted above the caps, less what the prediction says
        beyond that on devices above them, is the least; and then what is sent."""
        counted = np.array(self.peaks.peaks(here.tolist()))
        gap = np.maximum(0.0, self.capacity + over - counted)
        limit = self.capacity - np.where(over > 0.0, gap, 0.0)
        worst = int(over.argmax())
        left: list[tuple[float, int, Ints]] = []
        for units in chain(self.border(here, worst), self.stretches(np.flatnonzero(here == worst))):
            if is_late():
                break
            stays = here == worst
            stays[units] = False
            above = max(0.0, self.peaks.peak(stays) - limit[worst])
            left.append((above, len(left), units))
        ranked: list[tuple[float, int, int, Ints]] = []
        for above, _, units in sorted(left, key=lambda each: each[:2])[: SCHEDULE.most_left]:
            allowed = set.intersection(*(set(self.peaks.units.allowed[unit]) for unit in units))
            for target in sorted(allowed - {worst, self.peaks.units.host}):
                if is_late():
                    break
                moved = _moved(here, units, target)
                more = max(0.0, self.peaks.peak(moved == target) - limit[target])
                ranked.append((above + more, self.sent(units, here, moved), len(ranked), moved))
        ranked.sort(key=lambda each: each[:3])
        return [moved for *_, moved in ranked[: SCHEDULE.most_judged]]

    def border(self, here: Ints, device: int) -> Iterator[Ints]:
        """Units of a device that another may take for nothing, one by one: what is a little above
        a cap may be all there, whoever runs an op at the border."""
        found = 0
        for unit in np.flatnonzero(here == device):
            near = {int(here[pin]) for net in self.nets_of[unit] for pin in _pins(net)}
            targets = near & set(self.peaks.units.allowed[unit]) - {device, self.peaks.units.host}
            alone = np.array([unit])
            if any(self.sent(alone, here, _moved(here, alone, to)) <= 0 for to in targets):
                found += 1
                yield alone
            if found == SCHEDULE.most_border:
                return

    def stretches(self, units: Ints) -> Iterator[Ints]:
        """The largest units of a device one by one, and stretches of them all along the depth."""
        order = np.argsort(-self.peaks.resident[units], kind="stable")
        yield from units[order[: SCHEDULE.most_single], None]
        for position in self.peaks.positions[:1]:
            along = units[np.argsort(position[units], kind="stable")]
            for parts in SCHEDULE.parts:
                yield from (part for part in np.array_split(along, parts) if len(part) > 1)

    def sent(self, units: Ints, here: Ints, moved: Ints) -> int:
        """The bytes that are sent more once ``units`` have moved."""
        nets = {id(net): net for unit in units for net in self.nets_of[unit]}
        return sum(
            net.bytes * (_receivers(net, moved) - _receivers(net, here)) for net in nets.values()
        )


def _pins(net: ProblemTensor) -> set[int]:
    return {net.producer, *net.consumers}


def _moved(here: Ints, units: Ints, target: int) -> Ints:
    """The placement with some units elsewhere."""
    moved = here.copy()
    moved[units] = target
    return moved


def _receivers(net: ProblemTensor, device_of: Ints) -> int:
    return len({int(device_of[unit]) for unit in net.consumers} - {int(device_of[net.producer])})
