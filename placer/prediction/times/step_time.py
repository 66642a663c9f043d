"""The time of one step of a bare placement problem, as :mod:`placer.prediction.times.schedule` has
it for a graph."""

import random
from collections.abc import Hashable, Sequence

from placer.graph.passes.levels import Message, forward_order
from placer.graph.walks import grouped
from placer.prediction.times.schedule import TaskGraph, run_tasks
from placer.problem.placement_problem import PlacementProblem


def list_messages(problem: PlacementProblem) -> list[Message]:
    """Returns the messages of a problem: tensors that are read, then one signal per op that others
    wait for by control edges."""
    signals = grouped(problem.control_edges)
    return [
        *(
            Message(t.producer, tuple(dict.fromkeys(t.consumers)), t.bytes)
            for t in problem.tensors
            if t.consumers
        ),
        *(Message(before, tuple(dict.fromkeys(after)), 0) for before, after in signals.items()),
    ]


def step_seconds(
    problem: PlacementProblem, device_of: Sequence[int], order: Sequence[int] | None = None
) -> float:
    """The seconds of one step with op ``i`` on device ``device_of[i]``.

    Devices run ready ops first come, first served, ``parallel_ops`` at once; a message is sent once
    per receiving device; a link carries one at a time.  What a loop sends to its next round is
    left out.  Of what is ready at the same time the op comes first that does in ``order`` (all op
    numbers; by default as they are numbered).
    """
    return _run(problem, forward_messages(problem)[0], device_of, order)


def longest_step_seconds(problem: PlacementProblem, device_of: Sequence[int]) -> float:
    """The longest of a few steps, each in another one of :func:`step_orders`.

    TensorFlow leaves open what runs first of what is ready at the same time: a placement that is
    fast in one order is not fast.
    """
    messages, _ = forward_messages(problem)
    orders = step_orders(len(device_of))
    return max(_run(problem, messages, device_of, order) for order in orders)


def forward_messages(problem: PlacementProblem) -> tuple[list[Message], list[int]]:
    """The messages without the consumers that do not come after the producer (in the next round of
    a loop), and the order of the ops, which is topological then."""
    messages = list_messages(problem)
    order = forward_order(len(problem.op_names), messages)
    place = {op: i for i, op in enumerate(order)}
    forward = [
        Message(
            m.producer, tuple([c for c in m.consumers if place[c] > place[m.producer]]), m.bytes
        )
        for m in messages
    ]
    return forward, order


def _run(
    problem: PlacementProblem,
    messages: Sequence[Message],
    device_of: Sequence[int],
    order: Sequence[int] | None,
) -> float:
    """The seconds of the step."""
    numbers = range(len(device_of)) if order is None else order
    task = {op: number for number, op in enumerate(numbers)}
    tasks = TaskGraph()
    for op in numbers:
        tasks.add(device_of[op], problem.seconds[op][device_of[op]])
    for message in messages if order is None else in_order(messages, order):
        source = device_of[message.producer]
        arrival: dict[int, int] = {source: task[message.producer]}
        for op in message.consumers:
            target = device_of[op]
            if target not in arrival:
                arrival[target] = len(tasks.seconds)
                bandwidth = problem.bandwidth[source][target]
                sending = message.bytes / bandwidth if message.bytes else 0.0
                tasks.add((source, target), problem.latency[source][target] + sending)
                tasks.join(task[message.producer], arrival[target])
            if op != message.producer:
                tasks.join(arrival[target], task[op])
    parallel = problem.parallel_ops or (1,) * len(problem.device_names)
    capacity: dict[Hashable, int] = dict(enumerate(parallel))
    return max(run_tasks(tasks, capacity).finish, default=0.0)


def step_orders(count: int) -> list[list[int] | None]:
    """A few orders of ``count`` ops, the same at every call: as they are numbered (``None``), and
    others at random; fewer of many ops."""
    shuffled = random.Random(0)
    # so many ops are run over all orders, which bounds the time that takes
    others = min(40_000 // max(count, 1), 4) - 1
    return [None, *(shuffled.sample(range(count), count) for _ in range(others))]


def in_order(messages: Sequence[Message], order: Sequence[int]) -> list[Message]:
    """The messages, their producers and each one's consumers as they come in ``order``.

    >>> found = in_order([Message(0, (2,), 8), Message(1, (2,), 8)], [1, 0, 2])
    >>> [message.producer for message in found]
    [1, 0]
    """
    place = {op: i for i, op in enumerate(order)}
    return [
        Message(m.producer, tuple(sorted(m.consumers, key=place.__getitem__)), m.bytes)
        for m in sorted(messages, key=lambda m: place[m.producer])
    ]
