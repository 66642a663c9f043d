"""Placements without debris: no device holds a handful of ops that could sit elsewhere for nothing.

A *piece* is what hangs together on one device: units that share a tensor or wait for each other
there.  All that has to do with a tensor on its device is in one piece, so a piece that goes to
another device never makes the step send more: either the tensor is there already, and is sent once
less, or it has one place for another.  What decides is, in this order:

1. the cost: never more than before;
2. devices in use;
3. messages, tensors and signals, sent;
4. the highest share of a cap that a device takes.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import numpy as np

from placer.graph.passes.levels import Message
from placer.prediction.times.step_time import list_messages
from placer.problem.placement_problem import PlacementProblem
from placer.solving.compiled.arrays import Floats
from placer.solving.reduction.unit_problem import reduce_to_units

_MOST_TRIED = 7
"""Placements without debris that the prediction may judge: as rows have it, with what that was
above the caps reserved, with all that the prediction has beyond the rows, and then with nothing
more on devices that came out above their caps."""

_RESERVING = 3
"""The first of these, which reserve."""

Rank = tuple[int, int, float]

Overruns = Callable[[Sequence[int]], Sequence[int]]
"""From one device number per op to the bytes that each device is predicted to peak above its cap,
less than zero where it is below."""


def tidy_within(
    problem: PlacementProblem,
    device_of: Sequence[int],
    find_overruns: Overruns,
    is_late: Callable[[int], bool] = lambda _: False,
) -> tuple[tuple[int, ...], Sequence[int]]:
    """``device_of`` with its overruns; without debris where it keeps the caps so: first pieces are
    moved that devices surely have room for, then any by the rows, then what that left has room for;
    nothing once it ``is_late`` for so many predictions."""
    found = tuple(device_of)
    kept = find_overruns(found)
    if max(kept) > 0:
        return found, kept
    found, kept = _tidy_surely(problem, found, kept, find_overruns, is_late)
    bolder = _tidy_by_rows(problem, found, kept, find_overruns, is_late)
    return _tidy_surely(problem, *bolder, find_overruns, is_late) if bolder else (found, kept)


def _tidy_surely(
    problem: PlacementProblem,
    found: tuple[int, ...],
    kept: Sequence[int],
    find_overruns: Overruns,
    is_late: Callable[[int], bool],
) -> tuple[tuple[int, ...], Sequence[int]]:
    """``found`` with devices that one has room for merged, and pieces moved one by one to where
    there is room for all that they hold, until there are none: what leaves makes room."""
    while not is_late(1):
        merged, room = _merge_lightest(problem, found, [-over for over in kept])
        tidied = tidy(problem, merged, room=room)
        if tidied == found or is_late(1):
            break
        overruns = find_overruns(tidied)
        if max(overruns) > 0:
            break
        found, kept = tidied, overruns
    return found, kept


def _merge_lightest(
    problem: PlacementProblem, device_of: tuple[int, ...], room: Sequence[int]
) -> tuple[tuple[int, ...], list[int]]:
    """All of the lightest device on the next as long as that has room for what the other peaks at,
    and what room is left: two devices in one never send more."""
    left, caps = list(room), problem.capacity_bytes
    while True:
        used = set(device_of) - {problem.host}
        lightest = sorted(used, key=lambda device: (caps[device] - left[device], device))[:2]
        if len(lightest) < 2:
            return device_of, left
        source, target = lightest
        taken = caps[source] - left[source]
        ops = [op for op, device in enumerate(device_of) if device == source]
        slower = sum(
            problem.slower_bytes[op][target] - problem.slower_bytes[op][source]
            for op in (ops if problem.slower_bytes else ())
        )
        barred = any(target not in problem.allowed[op] for op in ops)
        if taken > left[target] or barred or slower > 0:
            return device_of, left
        device_of = tuple(target if device == source else device for device in device_of)
        left[target], left[source] = left[target] - taken, caps[source]


def _tidy_by_rows(
    problem: PlacementProblem,
    found: tuple[int, ...],
    kept: Sequence[int],
    find_overruns: Overruns,
    is_late: Callable[[int], bool],
) -> tuple[tuple[int, ...], Sequence[int]] | None:
    """``found`` tidied by the rows, if need be with what it was above the caps, or what the
    prediction has beyond the rows, then reserved, or with what has room elsewhere than on devices
    that came out above them."""
    reserved, full = problem, frozenset[int]()
    for tried in range(1, _MOST_TRIED + 1):
        if is_late(3):  # one for this, others for what it leaves
            return None
        tidied = tidy(reserved, found, full)
        if (tidied == found and reserved is problem) or is_late(1):
            return None
        overruns = kept if tidied == found else find_overruns(tidied)
        if max(overruns) <= 0 and tidied != found:
            return tidied, overruns
        if tried < _RESERVING:
            more = overruns if reserved is problem else _beyond_rows(problem, found, kept)
            both = zip(reserved.transient_bytes, more, strict=True)
            reserved = replace(reserved, transient_bytes=tuple(a + max(0, b) for a, b in both))
        else:
            above = (device for device, over in enumerate(overruns) if over > 0)
            reserved, full = problem, full.union(above)
    return None


def _beyond_rows(
    problem: PlacementProblem, device_of: Sequence[int], overruns: Sequence[int]
) -> list[int]:
    """Returns what the prediction says of every device beyond its fullest row."""
    loads = _Tidying(problem, device_of).loads.max(axis=0, initial=0.0)
    peaks = (cap + over for cap, over in zip(problem.capacity_bytes, overruns, strict=True))
    return [int(peak - load) for peak, load in zip(peaks, loads, strict=True)]


def tidy(
    problem: PlacementProblem,
    device_of: Sequence[int],
    full: Collection[int] = (),
    room: Sequence[int] | None = None,
) -> tuple[int, ...]:
    """``device_of`` with whole pieces moved between the devices in use, the host aside, as long as
    the rows of ``problem`` hold and that is better by the list above; none to those that are
    ``full``, and with ``room`` only where there is that for all that a piece keeps, writes and
    receives."""
    tidied = _Tidying(problem, device_of, full, room)
    while (room is None and tidied.empty_a_device()) or tidied.move_pieces():
        pass
    return tidied.units.expand(tidied.device_of)


class _Tidying:
    """One placement of the units, with what every device holds (``loads[row, device]``)."""

    def __init__(
        self,
        problem: PlacementProblem,
        device_of: Sequence[int],
        full: Collection[int] = (),
        room: Sequence[int] | None = None,
    ) -> None:
        self.host = problem.host
        self.full = full
        self.room = None if room is None else list(room)
        self.units = reduce_to_units(problem)
        self.message_bytes = problem.message_bytes
        unit_of = self.units.unit_of
        self.device_of = list(self.units.project(device_of))
        self.footprint = np.bincount(
            unit_of, problem.footprint_bytes(), minlength=len(self.device_of)
        )
        self.messages_of: list[list[Message]] = [[] for _ in self.device_of]
        for message in list_messages(problem):
            producer = unit_of[message.producer]
            readers = dict.fromkeys(unit_of[op] for op in message.consumers)
            readers.pop(producer, None)
            joined = Message(producer, tuple(readers), message.bytes)
            for unit in (producer, *readers) if readers else ():
                self.messages_of[unit].append(joined)
        self.weights = np.array([row.weights for row in self.units.rows], np.float64)
        capacity = np.array([row.capacity for row in self.units.rows], np.float64)
        self.capacity = np.maximum(capacity, 1.0)
        self.loads = np.zeros_like(self.capacity)
        np.add.at(self.loads.T, np.array(self.device_of, np.int64), self.weights.T)

    def devices(self) -> list[int]:
        """Those in use but the host, the least full first."""
        used = sorted(set(self.device_of) - {self.host})
        return sorted(used, key=lambda device: self.share(device, 0.0))

    def share(self, device: int, more: Floats | float) -> float:
        """The highest share of a row that a device takes, with more on it."""
        loads = self.loads[:, device] + more
        return float((loads / self.capacity[:, device]).max(initial=0.0))

    def pieces(self) -> dict[int, list[list[int]]]:
        """The pieces of every device."""
        found: dict[int, list[list[int]]] = {}
        seen = [False] * len(self.device_of)
        followed: set[tuple[int, int]] = set()  # a message joins all its units on a device at once
        for first, device in enumerate(self.device_of):
            if seen[first]:
                continue
            piece, seen[first] = [first], True
            for unit in piece:
                for message in self.messages_of[unit]:
                    if (id(message), device) in followed:
                        continue
                    followed.add((id(message), device))
                    for other in (message.producer, *message.consumers):
                        if not seen[other] and self.device_of[other] == device:
                            seen[other] = True
                            piece.append(other)
            found.setdefault(device, []).append(piece)
        return found

    def weight(self, piece: Sequence[int]) -> Floats:
        """Returns what a piece takes of every row."""
        return np.asarray(self.weights[:, list(piece)].sum(axis=1), np.float64)

    def targets(self, piece: Sequence[int], devices: Sequence[int]) -> list[tuple[Rank, int]]:
        """Where else a piece may go and has room, the best first: the cost and messages saved (both
        negative), and how full that makes the device.  None costs more."""
        source = self.device_of[piece[0]]
        costs = [self.units.cost[unit] for unit in piece if any(self.units.cost[unit])]
        saved = {
            device: (sum(each[device] - each[source] for each in costs), 0) for device in devices
        }
        touched = {id(m): m for unit in piece for m in self.messages_of[unit]}
        for message in touched.values():
            pins = (message.producer, *message.consumers)
            for device in {self.device_of[unit] for unit in pins} & saved.keys():
                size, count = saved[device]
                saved[device] = size - message.bytes - self.message_bytes, count - 1
        allowed = {device for device in devices if saved[device][0] <= 0} - {source, *self.full}
        for unit in piece:
            allowed &= set(self.units.allowed[unit])
        weight = self.weight(piece)
        if self.room is not None:
            size = self.most_bytes(piece)
            allowed = {device for device in allowed if size <= self.room[device]}
        found = [((*saved[device], self.share(device, weight)), device) for device in allowed]
        return sorted(each for each in found if each[0][2] <= 1.0 or not weight.any())

    def most_bytes(self, piece: Sequence[int]) -> int:
        """Returns what a piece keeps, writes and receives, at most."""
        inside = set(piece)  # what they write is in the footprint
        received = {
            id(m): m.bytes
            for unit in piece
            for m in self.messages_of[unit]
            if m.producer not in inside
        }
        return int(self.footprint[list(piece)].sum()) + sum(received.values())

    def move(self, piece: Sequence[int], target: int) -> None:
        """Puts a piece elsewhere."""
        if self.room is not None:  # what a device is rid of may not be of its fullest moment
            self.room[target] -= self.most_bytes(piece)
        weight = self.weight(piece)
        self.loads[:, self.device_of[piece[0]]] -= weight
        self.loads[:, target] += weight
        for unit in piece:
            self.device_of[unit] = target

    def empty_a_device(self) -> bool:
        """Whether all pieces of some device went to others."""
        devices, pieces = self.devices(), self.pieces()
        for device in devices:
            others = [other for other in devices if other != device]
            waiting = sorted(pieces[device], key=lambda piece: -float(self.weight(piece).sum()))
            if others and self.place_all(waiting, others):
                return True
        return False

    def place_all(self, pieces: Sequence[Sequence[int]], devices: Sequence[int]) -> bool:
        """Whether all pieces of a device found room on others; if not, they are where they were.

        Depth first, without recursion: there may be thousands of pieces that weigh nothing.
        """
        source = self.device_of[pieces[0][0]]
        trials = 2_000 + len(pieces)  # of places, until the device keeps them
        choices = [self.targets(pieces[0], devices)]
        while choices:
            piece, trials = pieces[len(choices) - 1], trials - 1
            if self.device_of[piece[0]] != source:
                self.move(piece, source)
            if not choices[-1] or trials < 0:
                choices.pop()
                continue
            self.move(piece, choices[-1].pop(0)[1])
            if len(choices) == len(pieces):
                return True
            choices.append(self.targets(pieces[len(choices)], devices))
        return False

    def move_pieces(self) -> bool:
        """Whether some piece went where it is better; pieces that the move of another has touched
        are left for the next time."""
        devices, touched, moved = self.devices(), set[int](), False
        pieces = self.pieces()
        movable = [piece for device in devices for piece in pieces[device]]
        for piece in sorted(movable, key=lambda piece: float(self.weight(piece).sum())):
            choices = [] if touched.intersection(piece) else self.targets(piece, devices)
            if choices and self.is_better(piece, choices[0][0], devices):
                self.move(piece, choices[0][1])
                near = [m for unit in piece for m in self.messages_of[unit]]
                touched.update(u for m in near for u in (m.producer, *m.consumers))
                moved = True
        return moved

    def is_better(self, piece: Sequence[int], rank: Rank, devices: Sequence[int]) -> bool:
        """Whether less is sent once a piece has moved, or as much and the highest share of a cap is
        lower."""
        if rank[:2] < (0, 0):
            return True
        source = self.device_of[piece[0]]
        here = self.share(source, 0.0)
        highest_then = max(rank[2], self.share(source, -self.weight(piece)))
        is_fullest = here >= max(self.share(device, 0.0) for device in devices)
        return is_fullest and highest_then < 0.99 * here  # less than that counts for nothing
