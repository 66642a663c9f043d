"""A placement above some caps, mended move by move, each judged by the prediction itself.

What an allocator needs beyond the bytes that it is asked for depends on all that a device holds,
and no search along the orders knows it.  So what is left above the caps is looked for by moves of
single units, of stretches along the depth of the model and of what lies between one border and
another that is as cheap, from the device that is the most above its cap to others.  Those are tried
first that leave the least above the caps as far as is counted,
and of these the ones that send the least.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

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
    worth: float = 0.9  # of what is above a cap: a move that leaves more there is none
    room_parts: int = 12  # of what another device has: for each, the cheapest border
    most_left: int = 24  # of all these, by what they leave above the caps where they were
    most_judged: int = 6  # from one placement, until one is better
    most_left_from: int = 24  # placements, always the best that was not yet


SCHEDULE = RepairSchedule()


def repair(
    peaks: PeakProblem,
    device_of_unit: Sequence[int],
    judge: Judge,
    is_late: Callable[[], bool],
    most_bytes: float = math.inf,
) -> list[int]:
    """The placement nearest to within all caps that moves led to; ``peaks.capacity`` are those of
    the prediction.  One that sends ``most_bytes`` or more is of no use."""
    here = np.array(device_of_unit, np.int64)
    over = np.array(judge(here.tolist()), np.float64)
    moves, seen = _Moves(peaks, most_bytes), {here.tobytes()}
    best, waiting = (_above(over), here), [(_above(over), 0, here, over)]
    for _ in range(SCHEDULE.most_left_from):
        if not waiting or best[0] <= 0.0 or is_late():
            break
        above, _, here, over = heappop(waiting)
        for moved in moves.likely(here, over, is_late):
            if moved.tobytes() in seen or is_late():
                continue
            seen.add(moved.tobytes())
            then = np.array(judge(moved.tolist()), np.float64)
            heappush(waiting, (_above(then), len(seen), moved, then))
            best = min(best, (_above(then), moved), key=lambda each: each[0])
            if _above(then) < above:
                break
    return [int(device) for device in best[1]]


def _above(over: Floats) -> float:
    return float(np.maximum(0.0, over).sum())


class _Moves:
    """Moves from the device that is the most above its cap, as far as is counted."""

    def __init__(self, peaks: PeakProblem, most_bytes: float) -> None:
        self.peaks, self.most_bytes = peaks, most_bytes
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
        most_more = self.most_bytes - self.peaks.value(here.tolist())
        ranked: list[tuple[float, int, int, Ints]] = []
        for above, units, targets in self.leaving(here, worst, limit[worst], is_late):
            for target in sorted(targets if above < SCHEDULE.worth * over[worst] else ()):
                moved = _moved(here, units, target)
                sent = self.sent(units, here, moved)
                if sent < most_more and not is_late():
                    more = max(0.0, self.peaks.peak(moved == target) - limit[target])
                    ranked.append((above + more, sent, len(ranked), moved))
        ranked.sort(key=lambda each: each[:3])
        return [moved for *_, moved in ranked[: SCHEDULE.most_judged]]

    def leaving(
        self, here: Ints, device: int, limit: float, is_late: Callable[[], bool]
    ) -> Iterator[tuple[float, Ints, set[int]]]:
        """What may leave a device, where to, and what is then counted there above a limit."""
        for units, target in self.up_to_borders(here, device, is_late):
            yield self.above(here, device, units, limit), units, {target}
        left: list[tuple[float, int, Ints]] = []
        for units in self.stretches(np.flatnonzero(here == device)):
            if is_late():
                break
            left.append((self.above(here, device, units, limit), len(left), units))
        for above, _, units in sorted(left, key=lambda each: each[:2])[: SCHEDULE.most_left]:
            allowed = set.intersection(*(set(self.peaks.units.allowed[unit]) for unit in units))
            yield above, units, allowed - {device, self.peaks.units.host}

    def above(self, here: Ints, device: int, units: Ints, limit: float) -> float:
        """By how much a device is counted above a limit without some of its units."""
        stays = here == device
        stays[units] = False
        return max(0.0, self.peaks.peak(stays) - limit)

    def up_to_borders(
        self, here: Ints, device: int, is_late: Callable[[], bool]
    ) -> Iterator[tuple[Ints, int]]:
        """Of a device what is next to each other one along the depth, up to where it parts from the
        rest as cheaply as can be, for some sizes: half a layer, say, as what is handed on within it
        is as large as between two."""
        mine = np.flatnonzero(here == device)
        for position in self.peaks.positions[:1]:
            for other in sorted({*here.tolist()} - {device, self.peaks.units.host}):
                middle = float(np.median(position[here == other]))
                before, after = mine[position[mine] <= middle], mine[position[mine] > middle]
                for units in (
                    before[np.argsort(-position[before], kind="stable")],
                    after[np.argsort(position[after], kind="stable")],
                ):
                    if not is_late():
                        yield from ((units[:end], other) for end in self.ends(here, units, other))

    def ends(self, here: Ints, units: Ints, target: int) -> list[int]:
        """How many of ``units``, in this order, may go to a device so that least is sent, for every
        part of the room that it has."""
        room = self.capacity[target] - self.peaks.peak(here == target)
        moved, total, size = here.copy(), 0, 0.0
        best: dict[int, tuple[int, int]] = {}
        for count, unit in enumerate(units.tolist(), start=1):
            size += float(self.peaks.resident[unit])
            if size > room or target not in self.peaks.units.allowed[unit]:
                break
            total += self.sent_by(unit, moved, target)
            moved[unit] = target
            part = int(SCHEDULE.room_parts * size / max(1.0, room))
            best[part] = min(best.get(part, (total, count)), (total, count))
        return [count for _, count in best.values()]

    def sent_by(self, unit: int, here: Ints, target: int) -> int:
        """The bytes that are sent more once a unit has moved."""
        alone = np.array([unit])
        return self.sent(alone, here, _moved(here, alone, target))

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
