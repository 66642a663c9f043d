"""Binary heaps of units, one per device, whose keys can change."""

from typing import NamedTuple

import numpy as np

from placer.machine_code.jit import compiled, compiled_part
from placer.solving.compiled.arrays import Floats, Ints

ABSENT = -1


class Queues(NamedTuple):
    """``items[device, :size[device]]`` is a heap with the largest ``key[unit]`` first;
    ``place[unit]`` is where a unit is in its heap, or :data:`ABSENT`."""

    items: Ints
    size: Ints
    place: Ints
    key: Floats


@compiled
def new_queues(device_count: int, unit_count: int) -> Queues:
    """Empty queues."""
    return Queues(
        np.zeros((device_count, unit_count), np.int64),
        np.zeros(device_count, np.int64),
        np.full(unit_count, ABSENT, np.int64),
        np.zeros(unit_count),
    )


@compiled
def put(queues: Queues, device: int, unit: int, key: float) -> None:
    """Add a unit to a queue that is in none, or change its key in that queue."""
    at = queues.place[unit]
    if at == ABSENT:
        at = queues.size[device]
        queues.size[device] += 1
        queues.items[device, at] = unit
        queues.place[unit] = at
        queues.key[unit] = key
        _rise(queues, device, at)
    elif key > queues.key[unit]:
        queues.key[unit] = key
        _rise(queues, device, at)
    elif key < queues.key[unit]:
        queues.key[unit] = key
        _sink(queues, device, at)


@compiled
def remove(queues: Queues, device: int, unit: int) -> None:
    """Take a unit out of the queue that it is in."""
    at = queues.place[unit]
    queues.place[unit] = ABSENT
    queues.size[device] -= 1
    last = queues.size[device]
    if at != last:
        moved = queues.items[device, last]
        queues.items[device, at] = moved
        queues.place[moved] = at
        _rise(queues, device, at)
        _sink(queues, device, queues.place[moved])


@compiled_part
def clear(queues: Queues) -> None:
    """Empty all queues."""
    for device in range(queues.size.shape[0]):
        for at in range(queues.size[device]):
            queues.place[queues.items[device, at]] = ABSENT
        queues.size[device] = 0


@compiled
def fullest_first(queues: Queues) -> int:
    """The device with the largest key of all, or -1."""
    best = -1
    for device in range(queues.size.shape[0]):
        if queues.size[device] and (
            best < 0 or queues.key[queues.items[device, 0]] > queues.key[queues.items[best, 0]]
        ):
            best = device
    return best


@compiled_part
def _rise(queues: Queues, device: int, at: int) -> None:
    items, place, key = queues.items[device], queues.place, queues.key
    unit = items[at]
    while at > 0:
        above = (at - 1) // 2
        if key[items[above]] >= key[unit]:
            break
        items[at] = items[above]
        place[items[at]] = at
        at = above
    items[at] = unit
    place[unit] = at


@compiled_part
def _sink(queues: Queues, device: int, at: int) -> None:
    items, place, key = queues.items[device], queues.place, queues.key
    size = queues.size[device]
    unit = items[at]
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and key[items[below + 1]] > key[items[below]]:
            below += 1
        if key[items[below]] <= key[unit]:
            break
        items[at] = items[below]
        place[items[at]] = at
        at = below
    items[at] = unit
    place[unit] = at
