"""An order in which less is in use, by moves at its fullest moments.

An op runs before a buffer is made that it does not read, or after that is freed; a buffer is made
just before it is read next, or read for the last time before the moment.  Each move takes along
what has to run before or after, is followed through the whole step, and stays if there is less over
the budget, summed over all moments.

    a (8 MB) --> b --> d        a c b d: c runs while a is held
    c (8 MB) ---------'         a b c d: c moved to after a's last reader
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from placer.prediction.memory.buffers import Lifetime
from placer.prediction.memory.lifetimes import find_lifetimes
from placer.prediction.memory.timelines import StepMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class DescentSchedule:
    """Limits of the moves that are tried."""

    ops_in_all: int = 1_000_000  # followed over all tries: a second or two
    most_moments: int = 8  # from each order: the fullest one of so many stretches over the budget
    most_buffers: int = 24  # at each moment, the largest
    least_share: float = 0.01  # of the budget: smaller buffers are left alone


_SCHEDULE = DescentSchedule()


class OrderDescent:
    """Lowers what is over ``budgets`` (bytes by device, without what is resident) along ``order``
    (ops by number) until it ``is_late``; ``successors`` has the ops that wait for each op."""

    def __init__(
        self,
        step: StepMemory,
        successors: Sequence[Sequence[int]],
        order: Sequence[int],
        budgets: Mapping[str, int],
        is_late: Callable[[], bool] = lambda: False,
    ) -> None:
        self.step, self.budgets, self.is_late = step, budgets, is_late
        self.before: list[list[int]] = [[] for _ in order]
        for op, after in enumerate(successors[: len(order)]):
            for other in after:
                if other < len(order):
                    self.before[other].append(op)
        self.left = _SCHEDULE.ops_in_all
        self._take(list(order))
        self.over = self._over(self._in_use(self.order))

    def run(self) -> tuple[int, ...]:
        """The order with less over the budgets; as it was where nothing is over or helps."""
        while self.over and self._improve():
            pass
        return tuple(self.order)

    def _take(self, order: list[int]) -> None:
        self.order = order
        self.place = [0] * len(order)
        for place, op in enumerate(order):
            self.place[op] = place

    def _in_use(self, order: Sequence[int]) -> dict[str, list[int]]:
        """The bytes in use at every moment, by device."""
        self.left -= len(order)
        in_use = self.step.in_use(order)
        return {name: in_use[name].tolist() for name in self.budgets}

    def _over(self, in_use: Mapping[str, Sequence[int]]) -> int:
        return sum(
            size - budget
            for name, budget in self.budgets.items()
            for size in in_use[name]
            if size > budget
        )

    def _improve(self) -> bool:
        """Takes the first move that helps, if there is one."""
        in_use = self._in_use(self.order)
        for device, moment in self._fullest(in_use):
            for order in self._moves(device, moment):
                if self.left < 0 or self.is_late():
                    return False
                if order == self.order:
                    continue
                over = self._over(self._in_use(order))
                if over < self.over:
                    self.over = over
                    self._take(order)
                    return True
        return False

    def _fullest(self, in_use: Mapping[str, Sequence[int]]) -> list[tuple[str, int]]:
        """The moments at which most is over, one of each stretch."""
        found: list[tuple[int, str, int]] = []
        for device, budget in self.budgets.items():
            above = False
            for moment, size in enumerate(in_use[device]):
                if size <= budget:
                    above = False
                    continue
                if not above:
                    found.append((size - budget, device, moment))
                elif size - budget > found[-1][0]:
                    found[-1] = size - budget, device, moment
                above = True
        found.sort(reverse=True)
        return [(device, moment) for _, device, moment in found[: _SCHEDULE.most_moments]]

    def _moves(self, device: str, moment: int) -> Iterator[list[int]]:
        """Orders in which less may be in use at the ``moment``."""
        lifetimes = find_lifetimes(self.step.layout, self.order, with_reads=True)
        self.left -= len(self.order)
        least = _SCHEDULE.least_share * self.budgets[device]
        there = [
            lifetime
            for lifetime in lifetimes
            if lifetime.device == device
            and lifetime.first <= moment <= lifetime.last
            and lifetime.bytes >= least
        ]
        there.sort(key=lambda lifetime: -lifetime.bytes)
        for lifetime in there[: _SCHEDULE.most_buffers]:
            yield from self._moves_for(lifetime, moment)

    def _moves_for(self, lifetime: Lifetime, moment: int) -> Iterator[list[int]]:
        """Orders in which the buffer and the op at the ``moment`` are not there at once."""
        order, now = self.order, self.order[moment]
        ends = lifetime.last < len(order)
        if lifetime.first < moment:
            yield self._earlier([now], lifetime.first)
        if ends and lifetime.last > moment:
            yield self._later([now], lifetime.last)
        reads = sorted({read.last for read in lifetime.reads if read.last < len(order)})
        late = [place for place in reads if place > moment]
        if not late or moment in reads or lifetime.first >= moment:
            return
        yield self._later([order[lifetime.first]], late[0] - 1)
        if ends:
            readers = [order[place] for place in late]
            yield self._earlier(readers, moment)
            early = [place for place in reads if place < moment]
            yield self._earlier(readers, max(early, default=lifetime.first) + 1)

    def _earlier(self, ops: Iterable[int], place: int) -> list[int]:
        """The order with ``ops``, and what they wait for, moved to ``place``."""
        order, chosen = self.order, set(ops)
        last = max(self.place[op] for op in chosen)
        needed = {other for op in chosen for other in self.before[op]}
        for op in reversed(order[place : last + 1]):
            if op in needed or op in chosen:
                chosen.add(op)
                needed.update(self.before[op])
        moved = order[place : last + 1]
        return [
            *order[:place],
            *(op for op in moved if op in chosen),
            *(op for op in moved if op not in chosen),
            *order[last + 1 :],
        ]

    def _later(self, ops: Iterable[int], place: int) -> list[int]:
        """The order with ``ops``, and what waits for them, moved behind ``place``."""
        order, chosen = self.order, set(ops)
        first = min(self.place[op] for op in chosen)
        moved = order[first : place + 1]
        for op in moved:
            if not chosen.isdisjoint(self.before[op]):
                chosen.add(op)
        return [
            *order[:first],
            *(op for op in moved if op not in chosen),
            *(op for op in moved if op in chosen),
            *order[place + 1 :],
        ]
