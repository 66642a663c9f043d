"""Control edges that hold a step to a known order, as far as memory goes.

The ops that allocate or read a large buffer run one after another as in the order; all others are
free.  So what is in use is nearly what it is along that order, whichever one the executor takes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise

from placer.graph.control_edges import ControlEdge, joinable_ops
from placer.prediction.memory.lifetimes import find_lifetimes
from placer.prediction.memory.timelines import StepMemory

_LEAST_SHARE = 0.004
"""Of the peak without what is resident: smaller buffers are left alone."""


def edges_along(
    step: StepMemory, order: Sequence[str], floors: Mapping[str, float]
) -> list[ControlEdge]:
    """The edges between neighbours of ``order`` on each device of ``floors``: of the ops that touch
    a large buffer which is there while more than so many bytes are in use."""
    joinable = joinable_ops(step.graph)
    numbers = step.numbers(order)
    devices = step.layout.devices
    lifetimes = find_lifetimes(step.layout, numbers, with_reads=True)
    edges: list[ControlEdge] = []
    for device, floor in floors.items():
        own = [lifetime for lifetime in lifetimes if lifetime.device == device]
        change = [0] * (len(order) + 1)
        for lifetime in own:
            change[lifetime.first] += lifetime.bytes
            change[lifetime.last + 1] -= lifetime.bytes
        in_use = [*accumulate(change[:-1])]
        least = _LEAST_SHARE * max(in_use, default=0)
        full = [*_runs(in_use, floor - step.resident_bytes(device))]
        touched = {
            place
            for lifetime in own
            if lifetime.bytes >= least and _overlaps(full, lifetime.first, lifetime.last)
            for place in (lifetime.first, *(read.last for read in lifetime.reads), lifetime.last)
        }
        chain = [
            order[place]
            for place in sorted(touched)
            if place < len(order) and order[place] in joinable and devices[numbers[place]] == device
        ]
        edges += pairwise(chain)
    return edges


def _runs(in_use: Sequence[int], floor: float) -> Iterator[tuple[int, int]]:
    """The stretches of places at which more than ``floor`` is in use."""
    first = None
    for place, size in enumerate([*in_use, -math.inf]):
        if size > floor and first is None:
            first = place
        elif size <= floor and first is not None:
            yield first, place - 1
            first = None


def _overlaps(runs: Sequence[tuple[int, int]], first: int, last: int) -> bool:
    return any(begin <= last and end >= first for begin, end in runs)
