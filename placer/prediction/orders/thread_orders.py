"""Orders in which the threads of TensorFlow's pool may start the ops of all devices.

What an op makes ready on its device joins the queue of the thread that ran it, first in, first out.
What has no inputs, and what an arrival from another device makes ready, is handed to the pool op by
op: whichever thread is free takes it, and goes on with what follows from it::

    thread 1   a0  a1  a2  a3  ...        a long queue
    thread 2           r0  b1  b2  ...    r0 reads what has arrived: as late as the copy takes,
                                          and as soon as a thread is free

So the ops of a device come in another order in every step, and which chunk a request gets depends
on it: a few orders are drawn.  In every other one, consumers of an op come by their types, which is
how they lie in a graph that was made layer by layer.

``ScheduleReady`` and ``NodeDone`` of ``tensorflow/core/common_runtime/executor.cc``, ``Schedule``
and ``Steal`` of Eigen's ``NonBlockingThreadPool.h``.
"""

import heapq
import random
from collections import deque
from collections.abc import Iterator, Sequence

from placer.graph.op_graph import OpGraph
from placer.prediction.orders.execution_orders import OPS_IN_ALL
from placer.prediction.step.executor import ExecutorGraph, prepare
from placer.prediction.step.routes import Routes, is_cpu

_THREADS = (2, 4)
_LATENCIES = (1.0, 3.0, 10.0, 30.0, 100.0)
"""How many ops are started, on average, while a copy is on its way."""

_FEWEST_ORDERS, _MOST_ORDERS = 2, 8


def orders_on_threads(graph: OpGraph, routes: Routes) -> Iterator[tuple[str, ...]]:
    """Yields orders in which the ops of ``graph`` may start; the same ones at every call."""
    prepared = prepare(graph)
    device_of = [routes.device_of[name] for name in prepared.names]
    affordable = OPS_IN_ALL // max(len(prepared.names), 1)
    for seed in range(max(_FEWEST_ORDERS, min(affordable, _MOST_ORDERS))):
        rng = random.Random(seed)
        successors = [[consumer for _, consumer, _ in reversed(e)] for e in prepared.successors]
        if seed % 2:
            _sort_by_type(successors, [graph.ops[name].op_type for name in prepared.names], rng)
        threads, latency = _THREADS[seed % len(_THREADS)], _LATENCIES[seed % len(_LATENCIES)]
        pool = _Pool(prepared, device_of, threads, latency, rng)
        yield tuple([prepared.names[op] for op in pool.run(successors)])


def _sort_by_type(
    successors: Sequence[list[int]], types: Sequence[str], rng: random.Random
) -> None:
    """Types come in an order that is drawn, ops of one type as they did."""
    rank = {op_type: rng.random() for op_type in sorted({*types})}
    for consumers in successors:
        consumers.sort(key=lambda op: rank[types[op]])


class _Pool:
    """Threads that start ops: ``queues`` has what each goes on with, ``tasks`` what it was handed
    and others may steal; ``waiting`` for how many inputs each op waits."""

    def __init__(
        self,
        graph: ExecutorGraph,
        device_of: Sequence[str],
        threads: int,
        latency: float,
        rng: random.Random,
    ) -> None:
        self.graph, self.device_of, self.latency, self.rng = graph, device_of, latency, rng
        self.waiting = list(graph.waiting)
        self.queues: list[deque[int]] = [deque() for _ in range(threads)]
        self.tasks: list[deque[int]] = [deque() for _ in range(threads)]
        self.events: list[tuple[float, int, int, Sequence[int]]] = []
        self.count = 0

    def run(self, successors: Sequence[Sequence[int]]) -> list[int]:
        """The ops in the order in which they start."""
        order: list[int] = []
        now, free = 0.0, [*range(len(self.queues))]
        self._hand_over(successors[len(self.graph.names)])
        while True:
            idle = []
            for thread in free:
                op = self._next_op(thread)
                if op is None:
                    idle.append(thread)
                else:
                    order.append(op)
                    self._add(now + self.rng.expovariate(1.0), thread, (op,))
            if not self.events:
                return order
            now, _, thread, ops = heapq.heappop(self.events)
            free = idle
            if thread < 0:
                self._hand_over(ops)
            else:
                free.append(thread)
                self._notify(now, thread, ops[0], successors[ops[0]])

    def _add(self, time: float, thread: int, ops: Sequence[int]) -> None:
        """An op is done on a thread, or (-1) a tensor arrives that these ops read."""
        self.count += 1
        heapq.heappush(self.events, (time, self.count, thread, ops))

    def _notify(self, now: float, thread: int, op: int, consumers: Sequence[int]) -> None:
        """Consumers elsewhere wait for a copy, one for each device; those here may be ready."""
        away: dict[str, list[int]] = {}
        for consumer in consumers:
            device = self.device_of[consumer]
            if device != self.device_of[op] or consumer in self.graph.arrivals:
                away.setdefault(device, []).append(consumer)
                continue
            self.waiting[consumer] -= 1
            if self.waiting[consumer]:
                continue
            if is_cpu(device) and not self.graph.inexpensive[consumer] and self.queues[thread]:
                self.tasks[thread].appendleft(consumer)
            else:
                self.queues[thread].append(consumer)
        for readers in away.values():
            self._add(now + self.rng.expovariate(1.0 / self.latency), -1, readers)

    def _hand_over(self, ops: Sequence[int]) -> None:
        """Gives those that wait for nothing else to some threads."""
        for op in ops:
            self.waiting[op] -= 1
            if not self.waiting[op]:
                self.rng.choice(self.tasks).append(op)

    def _next_op(self, thread: int) -> int | None:
        if self.queues[thread]:
            return self.queues[thread].popleft()
        if self.tasks[thread]:
            return self.tasks[thread].popleft()
        return next((tasks.pop() for tasks in self.tasks if tasks), None)
