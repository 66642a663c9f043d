"""Control edges that hold a step to a known order, as far as memory goes.

An op that allocates a large buffer, or writes over one, waits until what is free by then along the
order has been let go; nothing else waits.  So ops run at once where there is room for it, and yet
large buffers never take more than along the order: when the last of their allocations begins, what
the order has freed before it is free, and nothing after it is there.

    order:   a1 r1 a2 a3 r2 a4        a: allocates, r: reads last what was allocated
    edges:      r1->a2, r1->a3, r2->a4; a2 and a3 may run at once
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from placer.graph.control_edges import ControlEdge, joinable_ops
from placer.graph.order import predecessors
from placer.prediction.memory.buffers import Lifetime, bytes_in_use
from placer.prediction.memory.lifetimes import find_lifetimes
from placer.prediction.memory.timelines import StepMemory
from placer.prediction.step.step_layout import StepLayout

_MOST_WAITS = 4
"""Edges to one op; where more ops have to be waited for, the allocation before them all is."""


def edges_along(
    step: StepMemory, order: Sequence[str], floors: Mapping[str, float], least_share: float
) -> list[ControlEdge]:
    """The edges along ``order``, on each device of ``floors``, for large buffers that are there
    while more than so many bytes are in use.

    Large is what has ``least_share`` of the peak without what is resident.
    """
    waits = _Waits(step, order)
    for device, large in _large_buffers(step, order, floors, least_share):
        waits.add(device, large)
    return waits.edges()


def edges_in_line(
    step: StepMemory, order: Sequence[str], floors: Mapping[str, float], least_share: float
) -> list[ControlEdge]:
    """The edges between neighbours of ``order``, of all ops that touch a large buffer: nothing else
    can be in another order, so that addresses, too, are mostly as along it; ops that could run at
    once no longer do."""
    joinable = joinable_ops(step.graph)
    devices, numbers = _worked_in(step.layout), step.numbers(order)
    edges: list[ControlEdge] = []
    for device, large in _large_buffers(step, order, floors, least_share):
        touched = {
            place
            for lifetime in large
            for place in (lifetime.first, *(read.last for read in lifetime.reads), lifetime.last)
        }
        edges += pairwise(
            order[place]
            for place in sorted(touched)
            if place < len(order) and order[place] in joinable and devices[numbers[place]] == device
        )
    return edges


def _worked_in(layout: StepLayout) -> list[str]:
    """Returns the device whose memory each op allocates or frees; a swap's ops, which are on the
    host, have the one that is relieved."""
    found, relieved = list(layout.devices), dict[int, str]()
    for op in layout.arrivals:
        found[op] = relieved[layout.outputs[op][0]] = layout.memory[layout.inputs[op][-1]]
    for op, inputs in enumerate(layout.inputs):
        if inputs and inputs[0] in relieved:
            found[op] = relieved[inputs[0]]
    return found


def _large_buffers(
    step: StepMemory, order: Sequence[str], floors: Mapping[str, float], least_share: float
) -> Iterator[tuple[str, list[Lifetime]]]:
    """The large buffers of each device."""
    lifetimes = find_lifetimes(step.layout, step.numbers(order), with_reads=True)
    for device, floor in floors.items():
        own = [lifetime for lifetime in lifetimes if lifetime.device == device]
        in_use = bytes_in_use(own, len(order))
        least = least_share * max(in_use, default=0)
        full = [*_runs(in_use, floor - step.resident_bytes(device))]
        yield (
            device,
            [
                lifetime
                for lifetime in own
                if lifetime.bytes >= least
                and any(lifetime.first <= last and lifetime.last >= first for first, last in full)
            ],
        )


class _Waits:
    """The ops that have to be done before each one begins, by place in the order.

    Sets of places are whole numbers, a bit a place.
    """

    def __init__(self, step: StepMemory, order: Sequence[str]) -> None:
        self.step, self.order = step, order
        devices = _worked_in(step.layout)
        self.device_of = [devices[op] for op in step.numbers(order)]
        joinable = joinable_ops(step.graph)
        self.joined: dict[str, int] = defaultdict(int)
        for place, name in enumerate(order):
            if name in joinable:
                self.joined[self.device_of[place]] |= 1 << place
        self.freed: dict[tuple[str, int], int] = defaultdict(int)
        self.overwritten: dict[int, int] = defaultdict(int)
        self.allocated: dict[int, int] = defaultdict(int)

    def add(self, device: str, large: Sequence[Lifetime]) -> None:
        """Buffers of a device.  One that is written over ends just before the op that does so, and
        another one begins with it."""
        for lifetime in large:
            after = lifetime.last + 1
            self.allocated[lifetime.first] += 1
            readers = 0
            for read in lifetime.reads:
                if read.last < after:
                    readers |= 1 << read.last
            if any(read.last == after for read in lifetime.reads):
                self.overwritten[after] |= readers
                self.allocated[after] -= 1
            else:
                self.freed[device, lifetime.last] |= readers or 1 << lifetime.last

    def edges(self) -> list[ControlEdge]:
        """None of them is implied by the ones before it."""
        place_of = {name: place for place, name in enumerate(self.order)}
        ops = self.step.graph.ops
        before: list[int] = []
        gone: dict[str, int] = defaultdict(int)
        last_allocation: dict[str, int] = {}
        edges: list[ControlEdge] = []
        for place, name in enumerate(self.order):
            known = 0
            for each in predecessors(ops[name], ops):
                if place_of[each] < place:
                    known |= before[place_of[each]] | 1 << place_of[each]
            device = self.device_of[place]
            allocates = self.allocated[place] > 0
            if self.joined[device] >> place & 1:
                wanted = self.overwritten[place] | (gone[device] if allocates else 0)
                wanted &= self.joined[device] & ~known
                for wait in _waits(wanted, before, last_allocation.get(device)):
                    known |= before[wait] | 1 << wait
                    edges.append((self.order[wait], name))
                if allocates:
                    last_allocation[device] = place
            gone[device] |= self.freed[device, place]
            before.append(known)
        return edges


def _waits(wanted: int, before: Sequence[int], allocation: int | None) -> list[int]:
    """Few places that come after all that are ``wanted``."""
    few = _latest(wanted, before)
    if len(few) <= _MOST_WAITS or allocation is None:
        return few
    return [allocation, *_latest(wanted & ~(before[allocation] | 1 << allocation), before)]


def _latest(wanted: int, before: Sequence[int]) -> list[int]:
    """Those that no other one of them waits for."""
    found = []
    while wanted:
        place = wanted.bit_length() - 1
        wanted &= ~(before[place] | 1 << place)
        found.append(place)
    return found


def _runs(in_use: Sequence[int], floor: float) -> Iterator[tuple[int, int]]:
    """The stretches of places at which more than ``floor`` is in use."""
    first = None
    for place, size in enumerate([*in_use, -math.inf]):
        if size > floor and first is None:
            first = place
        elif size <= floor and first is not None:
            yield first, place - 1
            first = None
