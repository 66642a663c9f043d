"""The time of one step of a bare placement problem, as :mod:`placer.prediction.schedule` has it
for a graph."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from placer.prediction.messages import forward_order, list_messages
from placer.prediction.schedule import TaskGraph, run_tasks
from placer.problem import PlacementProblem


def step_seconds(problem: PlacementProblem, device_of: Sequence[int]) -> float:
    """The seconds of one step with op ``i`` on device ``device_of[i]``.

    Devices run ready ops first come, first served, ``parallel_ops`` at once; a message is sent once
    per receiving device; a link carries one at a time.  What a loop sends to its next round is
    left out.
    """
    tasks = TaskGraph()
    for device, times in zip(device_of, problem.seconds, strict=True):
        tasks.add(device, times[device])
    messages = list_messages(problem)
    place = {op: i for i, op in enumerate(forward_order(len(device_of), messages))}
    for message in messages:
        source = device_of[message.producer]
        arrival: dict[int, int] = {source: message.producer}
        for op in message.consumers:
            if place[op] < place[message.producer]:
                continue
            target = device_of[op]
            if target not in arrival:
                arrival[target] = len(tasks.seconds)
                bandwidth = problem.bandwidth[source][target]
                sending = message.bytes / bandwidth if message.bytes else 0.0
                tasks.add((source, target), problem.latency[source][target] + sending)
                tasks.join(message.producer, arrival[target])
            if op != message.producer:
                tasks.join(arrival[target], op)
    parallel = problem.parallel_ops or (1,) * len(problem.device_names)
    capacity: dict[Hashable, int] = dict(enumerate(parallel))
    return max(run_tasks(tasks, capacity).finish, default=0.0)
