"""Improvement of a placement unit by unit, after Fiduccia and Mattheyses.

C. M. Fiduccia, R. M. Mattheyses, A Linear-Time Heuristic for Improving Network Partitions,
DAC 1982, doi:10.1109/DAC.1982.1585498; here for any number of devices, the connectivity objective
and several rows of weights.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable

from placer.solving.search.occupancy import Occupancy

_MOST_READERS = 64
"""Units that share a larger net are not told of each other's moves: it would cost more than it
brings; their gains are computed again when their turn comes."""


def improve(occupancy: Occupancy, deadline: float, most_passes: int = 12) -> None:
    """Lower the value of a complete placement in place, keeping every row that holds.

    ``deadline`` is a time of ``time.monotonic()``.
    """
    for _ in range(most_passes):
        before = occupancy.value
        _Pass(occupancy, deadline).run()
        if occupancy.value >= before or time.monotonic() > deadline:
            return


class _Pass:
    """Every unit moves at most once; the best state on the way is kept."""

    def __init__(self, occupancy: Occupancy, deadline: float) -> None:
        self.state = occupancy
        self.deadline = deadline
        self.moved = [False] * occupancy.problem.unit_count
        self.heap: list[tuple[int, int, int]] = []
        self.patience = 150 + occupancy.problem.unit_count // 20

    def run(self) -> None:
        self.push(self.boundary())
        history: list[tuple[int, int]] = []
        best_value = self.state.value
        best_length = 0
        while self.heap and len(history) - best_length < self.patience:
            step = self.pop()
            if step is None:
                break
            unit, target = step
            history.append((unit, self.state.device_of[unit]))
            self.state.move(unit, target)
            self.moved[unit] = True
            if self.state.value < best_value:
                best_value, best_length = self.state.value, len(history)
            if time.monotonic() > self.deadline:
                break
            self.push(
                other
                for other in self.state.incidence.neighbours(unit, _MOST_READERS)
                if not self.moved[other]
            )
        for unit, source in reversed(history[best_length:]):
            self.state.move(unit, source)

    def boundary(self) -> list[int]:
        """Units with a net that is cut, and those that pay for being on the host."""
        state = self.state
        found: dict[int, None] = {}
        for net, readers in zip(state.problem.nets, state.readers, strict=True):
            home = state.device_of[net.producer]
            if any(count and device != home for device, count in enumerate(readers)):
                found[net.producer] = None
                found.update(dict.fromkeys(net.consumers))
        for unit, cost in enumerate(state.problem.host_cost):
            if cost and state.device_of[unit] == state.problem.host:
                found[unit] = None
        return list(found)

    def push(self, units: Iterable[int]) -> None:
        for unit in units:
            step = self.best_step(unit)
            if step is not None:
                heapq.heappush(self.heap, (step[0], unit, step[1]))

    def best_step(self, unit: int) -> tuple[int, int] | None:
        """The cheapest move of a unit that fits: (cost, device)."""
        state = self.state
        source = state.device_of[unit]
        best: tuple[int, int] | None = None
        for device in state.problem.allowed[unit]:
            if device != source and state.fits(unit, device):
                cost = state.moving_cost(unit, device)
                if best is None or cost < best[0]:
                    best = (cost, device)
        return best

    def pop(self) -> tuple[int, int] | None:
        """The best move now: entries whose cost has changed go back with the new one."""
        while self.heap:
            cost, unit, _ = heapq.heappop(self.heap)
            if self.moved[unit]:
                continue
            step = self.best_step(unit)
            if step is None:
                continue
            if step[0] <= cost:
                return unit, step[1]
            heapq.heappush(self.heap, (step[0], unit, step[1]))
        return None
