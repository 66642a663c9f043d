"""A placement above some caps, mended move by move, each judged by the prediction itself.

What an allocator needs beyond the bytes that it is asked for depends on all that a device holds,
and no search along the orders knows it.  So what is left above the caps is looked for by moves of
single units, of stretches along the depth of the model and of what lies between one border and
another that is as cheap, from the device that is the most above its cap to others, the host among
them.  Those are tried first that leave the least above the caps as far as is counted, and of these
the ones that cost the least.  Then a few heavy units next to each other go elsewhere whatever is
counted, the cheapest moves first: a pooling whose input is a little larger than what was freed
before it, say.  All borders along the depth are moved together, too
(:mod:`placer.solving.peaks.sliding`): of layers that are alike many divisions send as much.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import islice, zip_longest

import numpy as np

from placer.solving.compiled.arrays import Floats, Ints
from placer.solving.compiled.gain_table import apply_move, gain, new_gain_table, transfer_of
from placer.solving.peaks.sliding import slides
from placer.solving.search.peak_problem import PeakProblem
from placer.solving.search.unit_arrays import transfer_arrays
from placer.solving.search.watch import Watch

_MOST_UNITS = 5_000
"""Units; of a larger program a prediction takes too long to judge dozens."""

Judge = Callable[[Sequence[int]], Sequence[int]]
"""From one device number per unit to the bytes that each device is predicted to be above its cap;
zero or less where it is not."""


def repair(
    peaks: PeakProblem,
    starts: Sequence[Sequence[int]],
    judge: Judge,
    is_late: Callable[[], bool],
    most_bytes: float = math.inf,
) -> list[int]:
    """The placement nearest to within all caps that moves led to from ``starts``, which are above
    some cap, the nearest first; ``peaks.capacity`` are those of the prediction.  One that sends
    ``most_bytes`` or more is of no use."""
    mending = _Mending(peaks, starts[0], judge, is_late, most_bytes)
    mending.move(1)
    neighbours = mending.neighbours(starts)
    mending.take_any(islice(neighbours, 60))
    mending.slide()
    mending.move(24)  # from so many placements, always the best that was not yet
    mending.take_any(neighbours)
    return [int(device) for device in mending.best]


class _Mending:
    """The placements that were judged: ``best`` is the least above the caps, by ``above``;
    ``waiting`` are those that no move was made from.  Placements count as one where all ``heavy``
    units are where they were: what is light is everywhere, and the same would be judged again and
    again."""

    def __init__(
        self,
        peaks: PeakProblem,
        device_of_unit: Sequence[int],
        judge: Judge,
        is_late: Callable[[], bool],
        most_bytes: float,
    ) -> None:
        self.peaks, self.judge = peaks, judge
        self.begun = self.best = np.array(device_of_unit, np.int64)
        self.above = math.inf
        self.moves = _Moves(peaks, most_bytes)
        self.heavy = peaks.heavy()
        self.seen: set[bytes] = set()
        self.above_caps: set[bytes] = set()
        self.waiting: list[tuple[float, int, Ints, Floats]] = []
        self.is_time_over = is_late
        self.take(self.best)

    def is_late(self) -> bool:
        """Whether nothing is left to do, or no time."""
        return self.above <= 0.0 or self.is_time_over()

    def take(self, device_of: Ints) -> float:
        """By how much a placement is above the caps."""
        self.seen.add(self.key(device_of))
        over = np.array(self.judge(device_of.tolist()), np.float64)
        above = float(np.maximum(0.0, over).sum())
        self.above_caps |= self.heavy_on(device_of, np.flatnonzero(over > 0.0).tolist())
        heappush(self.waiting, (above, len(self.seen), device_of, over))
        if above < self.above:
            self.above, self.best = above, device_of
        return above

    def key(self, device_of: Ints) -> bytes:
        """The same for placements that count as one."""
        return device_of[self.heavy].tobytes()

    def move(self, most_left_from: int) -> None:
        """Moves from so many placements, always the best that is waiting, until one is better."""
        for _ in range(most_left_from):
            if not self.waiting or self.is_late():
                return
            above, _, here, over = heappop(self.waiting)
            for moved in self.moves.likely(here, over, self.is_late):
                if self.key(moved) in self.seen or self.is_late():
                    continue
                if self.take(moved) < above:
                    break

    def neighbours(self, starts: Sequence[Sequence[int]]) -> Iterator[Ints]:
        """Yields placements where heavy units next to each other along the depth left a start for
        elsewhere, in turn from each start, the cheapest first, whatever is counted: which sizes
        come after each other decides what an allocator loses."""
        found: list[Iterator[Ints]] = []
        if len(self.peaks.units.allowed) <= _MOST_UNITS:
            for start in map(np.array, starts):
                if not self.is_late():
                    worst = int(np.argmax(self.judge(start.tolist())))
                    found.append(self.moves.of_neighbours(start, worst))
        for turn in zip_longest(*found):
            yield from (moved for moved in turn if moved is not None)

    def take_any(self, placements: Iterable[Ints]) -> None:
        """Takes placements that are not known yet, until one is within all caps."""
        for moved in placements:
            if self.is_late():
                return
            if self.key(moved) not in self.seen:
                self.take(moved)

    def slide(self) -> None:
        """All borders along the depth, where that sends hardly more and no device has what was
        above its cap."""
        # as much as was sent, where all borders move at once
        most = min(self.moves.most_bytes, 1.001 * self.peaks.value(self.begun.tolist()))
        for moved in slides(self.peaks, self.begun, self.is_late):
            if self.is_late():
                return
            is_known = self.key(moved) in self.seen
            if not is_known and self.above_caps.isdisjoint(self.heavy_on(moved, {*moved.tolist()})):
                self.seen.add(self.key(moved))
                if self.peaks.value(moved.tolist()) < most:
                    self.take(moved)

    def heavy_on(self, device_of: Ints, devices: Collection[int]) -> set[bytes]:
        """The heavy units on each of some devices."""
        return {(device_of[self.heavy] == device).tobytes() for device in devices}


class _Moves:
    """Moves from the device that is the most above its cap, as far as is counted."""

    def __init__(self, peaks: PeakProblem, most_bytes: float) -> None:
        self.peaks, self.most_bytes = peaks, most_bytes
        self.capacity = np.array(peaks.capacity, np.float64)
        self.held = peaks.most_held()
        self.watch, self.arrays = Watch(peaks), transfer_arrays(peaks.units)

    def likely(self, here: Ints, over: Floats, is_late: Callable[[], bool]) -> list[Ints]:
        """Placements one move away: what is counted above the caps, less what the prediction says
        beyond that on devices above them, is the least; and then what it costs."""
        along, counted = self.watch.hold(here)
        gap = np.maximum(0.0, self.capacity + over - counted)
        limit = self.capacity - np.where(over > 0.0, gap, 0.0)
        worst = int(over.argmax())
        ranked: list[tuple[float, float, int, Ints]] = []
        for units, targets in self.leaving(here, worst, is_late):
            for target in sorted(targets - {worst}):
                if is_late():
                    break
                left, come = self.watch.hold_moved(here, along, units, target)
                above = max(0.0, left - limit[worst])
                moved = _moved(here, units, target)
                cost = float(transfer_of(self.arrays, moved))
                # a move that leaves more above a cap is none
                if above < 0.9 * over[worst] and cost < self.most_bytes:
                    more = max(0.0, come - limit[target])
                    ranked.append((above + more, cost, len(ranked), moved))
        ranked.sort(key=lambda each: each[:3])
        return [moved for *_, moved in ranked[:6]]  # so many are judged, until one is better

    def of_neighbours(self, here: Ints, device: int) -> Iterator[Ints]:
        """Yields placements with up to four heavy units of a device, next to each other along the
        depth, on another one, by their cost."""
        mine = np.flatnonzero(here == device)
        is_heavy = self.held > 0.01 * self.capacity[device]
        found: list[tuple[float, int, Ints, int]] = []
        for position in self.peaks.positions[:1]:
            along = mine[np.argsort(position[mine], kind="stable")]
            heavy = np.flatnonzero(is_heavy[along])
            for count in range(4):
                for first, last in zip(heavy, heavy[count:], strict=False):
                    units = along[first : last + 1]
                    for target in sorted(self.targets(units) - {device}):
                        cost = float(transfer_of(self.arrays, _moved(here, units, target)))
                        if cost < self.most_bytes:
                            found.append((cost, len(found), units, target))
        for _, _, units, target in sorted(found, key=lambda each: each[:2]):
            yield _moved(here, units, target)

    def targets(self, units: Ints) -> set[int]:
        """The devices where all of these units may be."""
        return set.intersection(*(set(self.peaks.units.allowed[unit]) for unit in units))

    def leaving(
        self, here: Ints, device: int, is_late: Callable[[], bool]
    ) -> Iterator[tuple[Ints, set[int]]]:
        """Yields units that may leave a device, with where they may go."""
        for units, target in self.up_to_borders(here, device, is_late):
            yield units, {target}
        for units in self.stretches(np.flatnonzero(here == device)):
            yield units, self.targets(units)

    def up_to_borders(
        self, here: Ints, device: int, is_late: Callable[[], bool]
    ) -> Iterator[tuple[Ints, int]]:
        """Yields stretches of a device next to another one along the depth, with that device, up to
        where they part from the rest as cheaply as can be, for some sizes: half a layer, say, as
        what is handed on within it is as large as between two."""
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
        table, total, size = new_gain_table(self.arrays, here), 0.0, 0.0
        best: dict[int, tuple[float, int]] = {}
        for count, unit in enumerate(units.tolist(), start=1):
            size += float(self.peaks.resident[unit])
            if size > room or target not in self.peaks.units.allowed[unit]:
                break
            total -= gain(self.arrays, table, unit, target)
            apply_move(self.arrays, table, unit, target)
            part = int(12 * size / max(1.0, room))  # for each, the cheapest border
            best[part] = min(best.get(part, (total, count)), (total, count))
        return [count for _, count in best.values()]

    def stretches(self, units: Ints) -> Iterator[Ints]:
        """The largest units of a device one by one, and stretches of them all along the depth."""
        order = np.argsort(-self.held[units], kind="stable")
        yield from units[order[:160], None]
        for position in self.peaks.positions[:1]:
            along = units[np.argsort(position[units], kind="stable")]
            for parts in (4, 8, 16, 32):
                yield from (part for part in np.array_split(along, parts) if len(part) > 1)


def _moved(here: Ints, units: Ints, target: int) -> Ints:
    """The placement with some units elsewhere."""
    moved = here.copy()
    moved[units] = target
    return moved
