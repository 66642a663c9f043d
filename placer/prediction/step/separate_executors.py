"""TensorFlow's executors of several processes side by side, one thread each.

Every process runs the ops of one device as :mod:`placer.prediction.step.executor` says, its own
queue first, then what it put aside last.  What arrives is given to its pool by another thread,
which puts it behind all that is there: what reads it runs once the process has nothing else to do.

    CPU:1   |-a-|                        a is sent: it arrives at r's process while b1 runs
    CPU:2   |----b1----|-b2-|-b3-|-r-|   b1 put b2 and b3 aside, and r waits for them, too

So a process may hold what it received for long, and what it made before.  A tensor that is sent is
held where it is until it is written to a socket, which is at once or as it arrives.  ``Schedule``
of Eigen's ``NonBlockingThreadPool.h`` (``PushBack`` where the caller is no thread of the pool),
``ScheduleReady`` of ``tensorflow/core/common_runtime/executor.cc`` (of an op that is done
asynchronously).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from placer.prediction.step.executor import ExecutorGraph


class Arrival(NamedTuple):
    """What an op sent is there, on ``device``; ``held`` says whether the sender held it until then,
    or gave it away as soon as it was made."""

    device: str
    held: bool


class SeparateOrder(NamedTuple):
    """The names of all ops in the order in which they start, and once more where what they sent to
    another process arrives: ``arrivals`` has these positions.  ``lasts`` has, for
    each that starts, the last position before it is done."""

    names: tuple[str, ...]
    lasts: tuple[int, ...]
    arrivals: Mapping[int, Arrival]


class Durations(NamedTuple):
    """By op: the ``seconds`` that it takes, those of ``sending`` what it computes, and whether that
    is ``held`` so long or not at all."""

    seconds: Sequence[float]
    sending: Sequence[float]
    held: Sequence[bool]


class _Process:
    """``queue`` is run first in, first out, then the last of ``pool``; ``position`` is that of the
    op that runs, or ran last."""

    def __init__(self) -> None:
        self.queue: deque[int] = deque()
        self.pool: deque[int] = deque()
        self.is_busy = False
        self.position = 0

    def next_op(self) -> int | None:
        """What runs next, if there is anything."""
        if self.queue:
            return self.queue.popleft()
        return self.pool.pop() if self.pool else None


def run_separately(
    graph: ExecutorGraph,
    successors: Sequence[Sequence[int]],
    process_of: Sequence[str],
    durations: Durations,
) -> SeparateOrder:
    """The ops as the processes start them, if each takes as long as ``durations`` say and notifies
    its consumers in the order of ``successors``."""
    run = _Run(graph, successors, process_of, durations)
    names = tuple([graph.names[op] for op in run.order])
    return SeparateOrder(names, tuple(run.lasts), run.arrivals)


class _Run:
    """A step: ``order``, ``lasts`` and ``arrivals`` as in :class:`SeparateOrder`.  ``events`` are
    (when, number, op, the process where what it sends arrives, or none where it is done, the
    consumers there)."""

    def __init__(
        self,
        graph: ExecutorGraph,
        successors: Sequence[Sequence[int]],
        process_of: Sequence[str],
        durations: Durations,
    ) -> None:
        self.inexpensive, self.waiting = graph.inexpensive, list(graph.waiting)
        self.successors, self.process_of = successors, process_of
        self.durations = durations
        self.order: list[int] = []
        self.lasts: list[int] = []
        self.arrivals: dict[int, Arrival] = {}
        self.events: list[tuple[float, int, int, str, Sequence[int]]] = []
        self.count = 0
        self.processes = {name: _Process() for name in dict.fromkeys(process_of)}
        first = self._by_process(successors[len(graph.names)])
        for name, ready in first.items():
            self._notify(ready, self.processes[name])
        for process in self.processes.values():
            self._start(process, 0.0)
        while self.events:
            now, _, op, target, consumers = heapq.heappop(self.events)
            if target:
                self._arrive(op, target, consumers, now)
            else:
                self._finish(op, now)

    def _by_process(self, ops: Iterable[int]) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for op in ops:
            found.setdefault(self.process_of[op], []).append(op)
        return found

    def _start(self, process: _Process, now: float) -> None:
        """Starts the next op if the process has one and is free."""
        op = None if process.is_busy else process.next_op()
        if op is None:
            return
        process.is_busy, process.position = True, self._append(op)
        self._at(now + (0.0 if self.inexpensive[op] else self.durations.seconds[op]), op)

    def _finish(self, op: int, now: float) -> None:
        """Notifies the consumers of the process, and sends to the others."""
        found, own = self._by_process(self.successors[op]), self.process_of[op]
        process = self.processes[own]
        self.lasts[process.position] = len(self.order) - 1
        process.is_busy = False
        self._notify(found.pop(own, ()), process)
        for target, consumers in found.items():
            self._at(now + self.durations.sending[op], op, target, consumers)
        self._start(process, now)

    def _arrive(self, op: int, target: str, consumers: Sequence[int], now: float) -> None:
        """What the op sent is there: what is ready goes behind all else, the inexpensive too."""
        process = self.processes[target]
        self.arrivals[self._append(op)] = Arrival(target, self.durations.held[op])
        process.pool.extendleft(self._ready(consumers))
        self._start(process, now)

    def _notify(self, consumers: Iterable[int], process: _Process) -> None:
        """Gives the consumers that are ready to the process's own thread."""
        expensive: list[int] = []
        for consumer in self._ready(consumers):
            (process.queue if self.inexpensive[consumer] else expensive).append(consumer)
        if expensive and not process.queue:
            process.queue.append(expensive.pop())
        process.pool.extend(expensive)

    def _ready(self, consumers: Iterable[int]) -> list[int]:
        found = []
        for consumer in consumers:
            self.waiting[consumer] -= 1
            if not self.waiting[consumer]:
                found.append(consumer)
        return found

    def _append(self, op: int) -> int:
        self.order.append(op)
        self.lasts.append(len(self.lasts))
        return len(self.lasts) - 1

    def _at(self, when: float, op: int, target: str = "", consumers: Sequence[int] = ()) -> None:
        self.count += 1
        heapq.heappush(self.events, (when, self.count, op, target, consumers))
