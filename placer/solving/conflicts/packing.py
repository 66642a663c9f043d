"""Does anything fit?  Sums that say no, a bounded search that says either, or nobody knows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from placer.solving.conflicts.elements import Packing

MOST_NODES = 2_000
"""Of the search beyond its first descent, which has one per unit."""

_MOST_DEVICES = 8
"""All sets of so many devices are looked at; of more, those that some unit is confined to."""


class UndecidedError(Exception):
    """Neither proven to fit nor not to, within the nodes of the search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overfull:
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
    masks = packing.allowed @ (1 << np.arange(packing.allowed.shape[1], dtype=object))
    kinds, kind_of = np.unique(masks, return_inverse=True)
    kind_of = kind_of.reshape(-1)
    weight = np.zeros((len(packing.weights), len(kinds)), dtype=packing.weights.dtype)
    for row, sums in zip(packing.weights, weight, strict=True):
        np.add.at(sums, kind_of, row)
    for devices in _sets(packing, [int(kind) for kind in kinds]):
        mask = sum(1 << device for device in devices)
        inside = np.asarray([int(kind) & ~mask == 0 for kind in kinds], dtype=bool)
        needed = weight[:, inside].sum(axis=1)
        usable = int(packing.capacity[list(devices)].sum())
        row = int(needed.argmax())
        if needed[row] > usable:
            return Overfull(
                devices=devices,
                inside=inside[kind_of],
                row=row,
                needed_bytes=int(needed[row]),
                usable_bytes=usable,
            )
    return None


def _sets(packing: Packing, masks: list[int]) -> Iterator[tuple[int, ...]]:
    capped = [int(device) for device in np.flatnonzero(packing.capped)]
    if len(capped) <= _MOST_DEVICES:
        for size in range(1, len(capped) + 1):
            yield from combinations(capped, size)
        return
    sets = {tuple(d for d in range(len(packing.capped)) if mask >> d & 1) for mask in masks}
    sets = {devices for devices in sets if devices and packing.capped[list(devices)].all()}
    yield from sorted({*sets, tuple(capped)}, key=lambda devices: (len(devices), devices))


def pack(packing: Packing, most_nodes: int = MOST_NODES) -> Any:
    """A device for every unit, or ``None`` if there is none.

    Raises :class:`UndecidedError` if the search ends before it knows.
    """
    allowed = packing.allowed
    if not allowed.any(axis=1).all() or (packing.capacity[packing.capped] < 0).any():
        return None
    roomy = allowed & ~packing.capped
    device_of = np.where(roomy.any(axis=1), roomy.argmax(axis=1), allowed.argmax(axis=1))
    weighs = packing.weights.any(axis=0)
    waiting = np.flatnonzero(~roomy.any(axis=1) & weighs)
    if not len(waiting):
        return device_of
    if overfull_devices(packing) is not None:
        return None
    forced = waiting[allowed[waiting].sum(axis=1) == 1]
    free = waiting[allowed[waiting].sum(axis=1) > 1]
    room = np.repeat(packing.capacity[:, None], len(packing.weights), axis=1)
    for unit in forced:
        room[device_of[unit]] -= packing.weights[:, unit]
    if (room < 0).any():
        return None
    largest = np.maximum(1, packing.weights.max(axis=1, initial=0)).astype(float)
    shares = (packing.weights[:, free].astype(float) / largest[:, None]).max(axis=0, initial=0)
    order = free[np.argsort(-shares, kind="stable")]
    found = _Search(packing, order, room, len(order) + most_nodes).run()
    if found is None:
        return None
    device_of[order] = found
    return device_of


class _Search:
    """Depth first, the largest unit first, each where the most room is left: the first descent is
    a greedy packing."""

    def __init__(self, packing: Packing, order: Any, room: Any, most_nodes: int) -> None:
        self.weights = packing.weights[:, order].T
        self.allowed = packing.allowed[order]
        self.room = room
        self.left = np.cumsum(self.weights[::-1], axis=0)[::-1]
        self.twins = self._interchangeable()
        self.nodes = most_nodes

    def _interchangeable(self) -> list[int]:
        """Per device, the first one that the same units may use."""
        columns = [self.allowed[:, d].tobytes() for d in range(self.allowed.shape[1])]
        return [columns.index(column) for column in columns]

    def run(self) -> list[int] | None:
        """A device per unit of the order, ``None`` if there is none."""
        choices: list[list[int]] = []
        chosen: list[int] = []
        while len(chosen) < len(self.weights):
            if len(choices) == len(chosen):
                choices.append(self._choices(len(chosen)))
            if choices[-1]:
                device = choices[-1].pop()
                self.room[device] -= self.weights[len(chosen)]
                chosen.append(device)
                continue
            choices.pop()
            if not chosen:
                return None
            device = chosen.pop()
            self.room[device] += self.weights[len(chosen)]
        return chosen

    def _choices(self, unit: int) -> list[int]:
        """Devices with room for the unit, the roomiest last; of those that are alike, one."""
        self.nodes -= 1
        if self.nodes < 0:
            raise UndecidedError
        if (self.left[unit] > self.room.sum(axis=0)).any():
            return []
        after = (self.room - self.weights[unit]).min(axis=1)
        fits = np.flatnonzero(self.allowed[unit] & (after >= 0))
        alike = {(self.twins[d], self.room[d].tobytes()): int(d) for d in fits}
        return sorted(alike.values(), key=lambda device: (after[device], -device))
