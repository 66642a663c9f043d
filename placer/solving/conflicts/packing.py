"""Does anything fit?  Sums that say no, a bounded search that says either, or nobody knows."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

MOST_NODES = 2_000
"""Nodes of the search beyond its first descent, which has one per unit.  Of 39 tight packings of 8
to 40 units that CP-SAT proves impossible it decides 37, in a hundredth of a second (sums alone:
6)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """Units that have to be packed into devices with caps.

    ``unit_of`` has the unit of each op, ``allowed[unit, device]`` where it may be and is not too
    large for; ``weights[row, unit]`` and ``capacity[device]`` are bytes, the capacity of a device
    without a cap is that of all units together.
    """

    unit_of: Any
    allowed: Any
    weights: Any
    capacity: Any
    capped: Any


class Overfull(NamedTuple):
    """``devices`` can hold ``usable_bytes``, and the units confined to them, ``inside``, need
    ``needed_bytes`` at the moment ``row``."""

    devices: tuple[int, ...]
    inside: Any
    row: int
    needed_bytes: int
    usable_bytes: int


def overfull_devices(packing: Packing) -> Overfull | None:
    """A smallest set of devices that the units confined to it overfill; ``None`` if sums show
    none."""
    for devices in _sets(packing):
        others = np.delete(packing.allowed, devices, axis=1)
        inside = ~others.any(axis=1)
        needed = packing.weights[:, inside].sum(axis=1)
        usable = int(packing.capacity[list(devices)].sum())
        row = int(needed.argmax())
        if needed[row] > usable:
            return Overfull(devices, inside, row, int(needed[row]), usable)
    return None


def _sets(packing: Packing) -> list[tuple[int, ...]]:
    """Each device with a cap, and the sets of them that units are confined to with their unions,
    the smallest first: of any other set a part is overfull too."""
    kinds = {row.tobytes(): row for row in packing.allowed}.values()
    capped = [kind for kind in kinds if kind.any() and packing.capped[kind].all()]
    found: set[tuple[int, ...]] = set()
    for kind in capped:
        devices = {int(device) for device in np.flatnonzero(kind)}
        unions = {tuple(sorted(devices.union(other))) for other in [(), *found]}
        found |= unions if len(found) < 256 else {tuple(sorted(devices))}
    singles = {(int(device),) for device in np.flatnonzero(packing.capped)}
    return sorted(found | singles, key=lambda devices: (len(devices), devices))


def fits(packing: Packing, most: int | None = None) -> bool | None:
    """Whether there is a device for every unit, or for the ``most`` largest of those with a choice;
    ``None`` if the search ends before it knows."""
    allowed, weights = packing.allowed, packing.weights
    if not allowed.any(axis=1).all() or overfull_devices(packing) is not None:
        return False
    has_room = (allowed & ~packing.capped).any(axis=1)
    waiting = np.flatnonzero(~has_room & (weights > 0).any(axis=0))
    # what may go to one device only is there, all others follow: the largest first, of those that
    # are alike in that groups before single ops
    is_forced = allowed[waiting].sum(axis=1) == 1
    forced, free = waiting[is_forced], waiting[~is_forced]
    room = np.repeat(packing.capacity[:, None], len(weights), axis=1)
    np.subtract.at(room, allowed[forced].argmax(axis=1), weights[:, forced].T)
    largest = np.maximum(1, weights.max(axis=1, initial=0)).astype(float)
    shares = (weights[:, free].astype(float) / largest[:, None]).max(axis=0, initial=0)
    order = free[np.lexsort((np.bincount(packing.unit_of)[free] == 1, -shares))][:most]
    return _have_room(weights[:, order].T, allowed[order], room)


def _have_room(weights: Any, allowed: Any, room: Any) -> bool | None:
    """Whether there is a device for every unit, with ``weights[unit, row]`` and ``allowed[unit,
    device]``; ``room[device, row]`` is used up.  ``None`` if the search ends before it knows.

    Depth first, each unit where the most room is left: the first descent is a greedy packing.
    """
    left = np.cumsum(weights[::-1], axis=0)[::-1]
    columns = [column.tobytes() for column in allowed.T]
    twins = [columns.index(column) for column in columns]  # the first that the same units may use
    nodes = len(weights) + MOST_NODES
    choices: list[list[int]] = []
    chosen: list[int] = []
    while len(chosen) < len(weights):
        unit = len(chosen)
        if len(choices) == unit:
            if not nodes:
                return None
            nodes -= 1
            after = (room - weights[unit]).min(axis=1)
            free = np.flatnonzero(allowed[unit] & (after >= 0))
            alike = {(twins[device], room[device].tobytes()): int(device) for device in free}
            is_lost = (left[unit] > room.sum(axis=0)).any()
            ranked = sorted(alike.values(), key=lambda device: (after[device], -device))
            choices.append([] if is_lost else ranked)
        if choices[-1]:
            device = choices[-1].pop()
            room[device] -= weights[unit]
            chosen.append(device)
        elif chosen:
            choices.pop()
            room[chosen.pop()] += weights[unit - 1]
        else:
            return False
    return True
