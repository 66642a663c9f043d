"""The messages between ops of a bare placement problem."""

from __future__ import annotations

from placer.graph.passes.levels import Message
from placer.problem.placement_problem import PlacementProblem


def list_messages(problem: PlacementProblem) -> list[Message]:
    """Returns the messages of a problem: tensors that are read, then one signal per op that others
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
