"""TensorFlow's executors of several processes side by side, one thread each.

Every process runs the ops of one device as :mod:`placer.prediction.step.executor` says, its own
queue first, then what it put aside last.  What arrives is given to its pool by another thread,
which puts it behind all that is there: what reads it runs once the process has nothing else to do.

    CPU:1   |-a-|                        a is sent: it arrives at r's process while b1 runs
    CPU:2   |----b1----|-b2-|-b3-|-r-|   b1 put b2 and b3 aside, and r waits for them, too

To send is an op, too, an expensive one, which is where the first consumer in the other process was
in the graph.  So it may be put aside while the process goes on, and what is made later may be sent
first::

    CPU:1   |-a-|-b-|    a put its sending aside, since b comes after it in the graph: b is sent
    CPU:2                 first

Who sends may write to the socket itself, and so be busy until after the answer has arrived.

So a process may hold what it received for long, and what it made before.  A tensor that is sent is
held where it is until it is written to a socket, which is as it is sent or as it arrives.
``Schedule`` of Eigen's ``NonBlockingThreadPool.h`` (``PushBack`` where the caller is no thread of
the pool), ``ScheduleReady`` of ``tensorflow/core/common_runtime/executor.cc`` (of an op that is
done asynchronously), ``SendOp`` of ``core/kernels/sendrecv_ops.h`` (which does not say that it is
inexpensive), ``Partition`` of ``core/graph/graph_partition.cc``.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from placer.prediction.step.executor import ExecutorGraph


class Passage(NamedTuple):
    """The tensor that an op sends to ``device`` leaves its process (``leaves``), arrives there
    (``arrives``), or both at once."""

    device: str
    leaves: bool
    arrives: bool


class SeparateOrder(NamedTuple):
    """The names of all ops in the order in which they start, and once more where what they send to
    another process leaves or arrives: ``passages`` has these positions.  ``lasts`` has, for
    each that starts, the last position before it is done."""

    names: tuple[str, ...]
    lasts: tuple[int, ...]
    passages: Mapping[int, Passage]


class Durations(NamedTuple):
    """By op: the ``seconds`` that it takes, those of ``sending`` what it computes, those that the
    process is ``busy`` with that, and whether that is ``held`` until it is there, or only until it
    is sent."""

    seconds: Sequence[float]
    sending: Sequence[float]
    busy: Sequence[float]
    held: Sequence[bool]


class _Process:
    """``queue`` is run first in, first out, then the last of ``pool``, sends with ops;
    ``position`` is that of the op that runs, or ran last."""

    def __init__(self) -> None:
        self.queue: deque[int] = deque()
        self.pool: deque[int] = deque()
        self.is_busy = False
        self.position = 0

    def next_task(self) -> int | None:
        """Returns the task that runs next, if there is any."""
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
    return SeparateOrder(names, tuple(run.lasts), run.passages)


class _Send(NamedTuple):
    """A tensor on its way to the ``consumers`` in a process."""

    op: int
    target: str
    consumers: list[int]


class _Run:
    """A step: ``order``, ``lasts`` and ``passages`` as in :class:`SeparateOrder`.  ``sends`` have
    the numbers after those of ops.  ``events`` are (when, number, the op that is done, the send
    that arrives, or ``~op`` where its process has sent what it computed)."""

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
        self.passages: dict[int, Passage] = {}
        self.sends: list[_Send] = []
        self.events: list[tuple[float, int, int]] = []
        self.count = 0
        self.processes = {name: _Process() for name in dict.fromkeys(process_of)}
        first: dict[str, list[int]] = {}
        for op in successors[len(graph.names)]:
            first.setdefault(process_of[op], []).append(op)
        for name, ready in first.items():
            self._notify(self._ready(ready), self.processes[name])
        for process in self.processes.values():
            self._start(process, 0.0)
        while self.events:
            now, _, task = heapq.heappop(self.events)
            if task < 0:
                self._free(self.processes[process_of[~task]], now)
            elif task < len(process_of):
                self._finish(task, now)
            else:
                self._arrive(self.sends[task - len(process_of)], now)

    def _start(self, process: _Process, now: float) -> None:
        """Sends what comes first, and starts the next op, if the process has any and is free."""
        while not process.is_busy and (task := process.next_task()) is not None:
            if task < len(self.process_of):
                process.is_busy, process.position = True, self._append(task)
                seconds = 0.0 if self.inexpensive[task] else self.durations.seconds[task]
                self._at(now + seconds, task)
            else:
                process.is_busy = self._send(task, now)

    def _send(self, task: int, now: float) -> bool:
        """Sends the op's result, which is held until it is there or given away; returns whether
        that keeps the process busy."""
        op, target, _ = self.sends[task - len(self.process_of)]
        if not self.durations.held[op]:
            self.passages[self._append(op)] = Passage(target, leaves=True, arrives=False)
        self._at(now + self.durations.sending[op], task)
        if busy := self.durations.busy[op]:
            self._at(now + busy, ~op)
        return busy > 0

    def _finish(self, op: int, now: float) -> None:
        """Notifies the consumers, for those of another process what sends to it."""
        process = self.processes[self.process_of[op]]
        self.lasts[process.position] = len(self.order) - 1
        self._notify(self._with_sends(op), process)
        self._free(process, now)

    def _free(self, process: _Process, now: float) -> None:
        """The process goes on."""
        process.is_busy = False
        self._start(process, now)

    def _with_sends(self, op: int) -> list[int]:
        """The op's consumers that are ready, and where the first of each other process would be
        what sends to it."""
        own, found = self.process_of[op], []
        sends: dict[str, _Send] = {}
        for consumer in self.successors[op]:
            target = self.process_of[consumer]
            if target == own:
                found += self._ready([consumer])
            elif target in sends:
                sends[target].consumers.append(consumer)
            else:
                sends[target] = _Send(op, target, [consumer])
                found.append(len(self.process_of) + len(self.sends))
                self.sends.append(sends[target])
        return found

    def _arrive(self, send: _Send, now: float) -> None:
        """Delivers a result: ops that become ready go behind all others, even inexpensive ones."""
        held, process = self.durations.held[send.op], self.processes[send.target]
        self.passages[self._append(send.op)] = Passage(send.target, leaves=held, arrives=True)
        process.pool.extendleft(self._ready(send.consumers))
        self._start(process, now)

    def _notify(self, ready: Iterable[int], process: _Process) -> None:
        """Gives what is ready to the process's own thread."""
        expensive: list[int] = []
        for task in ready:
            is_cheap = task < len(self.process_of) and self.inexpensive[task]
            (process.queue if is_cheap else expensive).append(task)
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

    def _at(self, when: float, task: int) -> None:
        self.count += 1
        heapq.heappush(self.events, (when, self.count, task))
