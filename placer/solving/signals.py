"""Ops that only wait and signal, each where most of what it waits for is.

A control edge between devices is a message without bytes, and so is an empty tensor (the shape of a
scalar): the least transfer does not mind where an op sits that has no others, and hundreds of
messages can hang on one (the op that stands for a function call waits for everything in it).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from placer.problem.placement_problem import PlacementProblem

_PASSES = 2


def settle_signals(problem: PlacementProblem, device_of: Sequence[int]) -> tuple[int, ...]:
    """``device_of`` with groups that hold nothing and neither send nor read a byte moved, within
    what they are allowed, to where fewer of their edges cross; bytes and loads stay what they are.
    Where messages have a price the search has seen to that.
    """
    if problem.message_bytes:
        return tuple(device_of)
    empty = [tensor for tensor in problem.tensors if not tensor.bytes]
    signals = [(tensor.producer, consumer) for tensor in empty for consumer in tensor.consumers]
    before: dict[int, list[int]] = {}
    after: dict[int, list[int]] = {}
    for source, target in (*problem.control_edges, *signals):
        before.setdefault(target, []).append(source)
        after.setdefault(source, []).append(target)
    settled = list(device_of)
    groups = _idle_groups(problem)
    for _ in range(_PASSES):
        for ops in groups:
            near = Counter(
                settled[other] for op in ops for other in (*before.get(op, ()), *after.get(op, ()))
            )
            here = settled[ops[0]]
            best = max(problem.allowed[ops[0]], key=lambda device: (near[device], device == here))
            if near[best] > near[here] and here in problem.allowed[ops[0]]:
                for op in ops:
                    settled[op] = best
    return tuple(settled)


def _idle_groups(problem: PlacementProblem) -> list[list[int]]:
    """The groups of ops without bytes that have a choice of devices."""
    sized = (tensor for tensor in problem.tensors if tensor.bytes)
    busy = {op for tensor in sized for op in (tensor.producer, *tensor.consumers)}
    busy |= {op for moment in problem.live_bytes for op in moment}
    busy |= {op for op, size in enumerate(problem.footprint_bytes()) if size}
    busy |= {op for op, costs in enumerate(problem.slower_bytes) if any(costs)}
    members: dict[int, list[int]] = {}
    for op, group in enumerate(problem.group):
        members.setdefault(group, []).append(op)
    return [
        ops
        for ops in members.values()
        if not busy.intersection(ops) and len(problem.allowed[ops[0]]) > 1
    ]
