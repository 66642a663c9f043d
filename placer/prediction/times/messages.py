"""What the ops of a bare placement problem send to each other, and an order to run them in."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from placer.problem.placement_problem import PlacementProblem


@dataclass(frozen=True, slots=True)
class Message:
    """A tensor, or the signal of a control edge (no bytes)."""

    producer: int
    consumers: tuple[int, ...]
    bytes: int


def list_messages(problem: PlacementProblem) -> list[Message]:
    """What the ops of a problem send: tensors that are read, then one signal per op that others
    wait for by control edges."""
    signals: dict[int, dict[int, None]] = {}
    for before, after in problem.control_edges:
        signals.setdefault(before, {})[after] = None
    return [
        *(
            Message(t.producer, tuple(dict.fromkeys(t.consumers)), t.bytes)
            for t in problem.tensors
            if t.consumers
        ),
        *(Message(before, tuple(after), 0) for before, after in signals.items()),
    ]


def forward_order(count: int, messages: Sequence[Message]) -> list[int]:
    """The ops after what they wait for; a cycle is cut at its op with the lowest number.

    A message to an op that comes before its sender is for the next round of a loop: nothing waits
    for it.

    >>> forward_order(3, [Message(2, (0,), 8), Message(0, (1,), 8)])
    [2, 0, 1]
    """
    waiting = [0] * count
    after: list[list[int]] = [[] for _ in range(count)]
    for message in messages:
        for op in message.consumers:
            waiting[op] += 1
            after[message.producer].append(op)
    ready = deque(op for op in range(count) if not waiting[op])
    order: list[int] = []
    done = [False] * count
    lowest = 0
    while len(order) < count:
        if not ready:
            while done[lowest]:
                lowest += 1
            ready.append(lowest)
        op = ready.popleft()
        if done[op]:
            continue
        done[op] = True
        order.append(op)
        for other in after[op]:
            waiting[other] -= 1
            if not waiting[other] and not done[other]:
                ready.append(other)
    return order
