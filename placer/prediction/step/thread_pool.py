"""Which ops run at once: TensorFlow's executor with several threads.

Each thread runs its queue as :mod:`placer.prediction.step.executor` says, then takes what it last
put aside, then what another thread put aside first.

    thread 1   conv_grad_input ------>  conv_grad_input ---->        it notified both
    thread 2        conv_grad_filter ------------>  apply ->         stolen as soon as it was ready

So kernels that take much memory for themselves take it at the same time: what is in use is more
than one op after another would have.  ``Schedule``, ``Steal`` and ``PopBack`` of Eigen's
``NonBlockingThreadPool.h``.
"""

import heapq
import random
from collections import deque
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from placer.prediction.step.executor import ExecutorGraph


class ConcurrentOrder(NamedTuple):
    """The names of all ops in the order in which they start; ``lasts`` has, for each, the position
    of the last one that starts while it still runs."""

    names: tuple[str, ...]
    lasts: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class ThreadedStep:
    """The ops as so many ``threads`` start them, if each op takes ``seconds`` and notifies its
    consumers in the order of ``successors``.

    Of ops that start at the same moment that of the thread that was busy is the first.  In a
    ``race`` one of those that others took comes before it now and then: it is a matter of
    microseconds how soon they wake up.
    """

    graph: ExecutorGraph
    successors: Sequence[Sequence[int]]
    seconds: Sequence[float]
    threads: int
    race: random.Random | None = None

    @cached_property
    def order(self) -> ConcurrentOrder:
        """The order of the ops."""
        return _run(self, copy(self.race))


@dataclass(slots=True)
class _Thread:
    """``queue`` is run first in, first out; ``aside`` is what others may steal."""

    queue: deque[int] = field(default_factory=deque)
    aside: deque[int] = field(default_factory=deque)


def _run(step: ThreadedStep, race: random.Random | None) -> ConcurrentOrder:
    graph, successors, seconds = step.graph, step.successors, step.seconds
    waiting, source = list(graph.waiting), len(graph.names)
    ops: list[int] = []
    lasts: list[int] = []
    pool = [_Thread() for _ in range(step.threads)]
    _notify(graph, successors[source], waiting, pool[0])
    free = [*range(step.threads)]
    running: list[tuple[float, int, int]] = []
    now = 0.0
    while True:
        taken = [(number, _next_op(pool, number)) for number in free]
        idle = [number for number, op in taken if op is None]
        started = [(number, op) for number, op in taken if op is not None]
        # in traces of training steps a thread that had to wake up is as often faster
        if race is not None and len(started) > 1 and race.random() < 1 / 6:
            started.reverse()
        for number, op in started:
            took = 0.0 if graph.inexpensive[op] else seconds[op]
            heapq.heappush(running, (now + took, len(ops), number))
            ops.append(op)
            lasts.append(0)
        if not running:
            return ConcurrentOrder(tuple([graph.names[op] for op in ops]), tuple(lasts))
        now, position, number = heapq.heappop(running)
        lasts[position] = len(ops) - 1
        _notify(graph, successors[ops[position]], waiting, pool[number])
        free = [number, *idle]


def _next_op(pool: Sequence[_Thread], number: int) -> int | None:
    """Returns the op that the thread runs next, if there is any."""
    own = pool[number]
    if own.queue:
        return own.queue.popleft()
    if own.aside:
        return own.aside.pop()
    return next((other.aside.popleft() for other in pool if other.aside), None)


def _notify(
    graph: ExecutorGraph,
    consumers: Sequence[int],
    waiting: list[int],
    thread: _Thread,
) -> None:
    """Gives the consumers that are ready to the thread."""
    expensive: list[int] = []
    for consumer in consumers:
        waiting[consumer] -= 1
        if not waiting[consumer]:
            (thread.queue if graph.inexpensive[consumer] else expensive).append(consumer)
    if expensive and not thread.queue:
        thread.queue.append(expensive.pop())
    thread.aside.extend(expensive)
