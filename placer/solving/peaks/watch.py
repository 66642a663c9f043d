"""What the placements of a search hold along all orders, and the moments at which it judges moves:
those at which the placements so far were fullest."""

from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np

from placer.prediction.orders.execution_orders import highest_peak
from placer.solving.compiled.arrays import Flags, Floats, Ints
from placer.solving.compiled.held_bytes import Held, hold
from placer.solving.peaks.moments import at_moments, to_held
from placer.solving.peaks.problem import Buffers, PeakProblem, regroup

_STRETCHES = 24
"""Of every order; the fullest moment of each is followed."""


class Watched(NamedTuple):
    """What the units of a level hold at the ``moments`` that are followed, and by how much each
    device peaked ``beyond`` the orders under the placement that the cycle began at."""

    buffers: Buffers
    resident: Floats
    held: Held
    moments: int
    beyond: Floats

    def joined(self, new_of: Ints) -> Watched:
        """What the units of a coarser level hold."""
        buffers = regroup(self.buffers, new_of)
        resident = np.asarray(np.bincount(new_of, self.resident), np.float64)
        held = to_held(buffers, resident)
        return Watched(buffers, resident, held, self.moments, self.beyond)


class Watch:
    """The moments of one search, to which every placement that it follows adds; several threads may
    use it."""

    def __init__(self, problem: PeakProblem) -> None:
        self.problem = problem
        self.held = to_held(problem.buffers, problem.resident)
        self.capacity = np.array(problem.capacity, np.float64)
        self.times: set[int] = set()
        self.beyond = np.zeros(len(self.capacity))
        self.lock = threading.Lock()

    def follow(self, device_of: Ints) -> Floats:
        """The bytes by which every device peaks above its cap; the fullest times of this placement
        become moments."""
        orders, length = self.problem.orders, self.problem.length
        along, highest, is_held = self.hold(device_of)
        stretches = np.array_split(np.arange(length), min(_STRETCHES, length))
        fullest = [part[0] + along[:, :, part].argmax(axis=2) for part in stretches]
        times = np.stack(fullest, axis=2) + (np.arange(orders) * length)[None, :, None]
        with self.lock:
            self.times.update(np.unique(times[is_held]).tolist())
            self.beyond = highest - along.max(axis=(1, 2))
        return highest - self.capacity

    def share_above(self, device_of: Ints) -> float:
        """The same as shares of the caps, summed over the devices that are above."""
        above = np.maximum(0.0, self.follow(device_of))
        return float((above / np.maximum(1.0, self.capacity)).sum())

    def hold(self, device_of: Ints) -> tuple[Floats, Floats, Flags]:
        """The bytes on every device along every order, its highest peak, and whether it holds
        anything but what is there all the time."""
        orders, length = self.problem.orders, self.problem.length
        devices = len(self.capacity)
        along = hold(self.held, device_of, devices, orders * length)
        along = along.reshape(devices, orders, length)
        resident = np.bincount(device_of, self.problem.resident, minlength=devices)
        peaks = zip(along.max(axis=2), resident, strict=True)
        highest = np.array([highest_peak(*each) for each in peaks])
        return along, highest, highest > resident

    def watched(self, device_of: Ints | None) -> Watched:
        """What the units hold at the moments known by now, those of a placement among them."""
        if device_of is not None:
            self.follow(device_of)
        with self.lock:
            moments, beyond = np.array(sorted(self.times), np.int64), self.beyond
        buffers, resident = at_moments(self.problem.buffers, moments), self.problem.resident
        return Watched(buffers, resident, to_held(buffers, resident), len(moments), beyond)
