"""The bytes that placements of a search hold along all orders, and the moments at which it judges
moves: those at which the placements so far were fullest."""

from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np

from placer.prediction.orders.execution_orders import highest_peak
from placer.solving.compiled.arrays import Flags, Floats, Ints
from placer.solving.compiled.held_bytes import Held, hold, hold_moved
from placer.solving.search.peak_problem import Buffers, PeakProblem, regroup

_MOST_MOMENTS = 96
"""Moments followed at once: a move costs the time of going through all of them."""


class Watched(NamedTuple):
    """The bytes that the units of a level hold at the moments that are followed, and by how much
    each device peaked ``beyond`` the orders under the placement that the cycle began at."""

    buffers: Buffers
    own: Floats
    held: Held
    moments: int
    beyond: Floats

    def joined(self, new_of: Ints) -> Watched:
        """Returns what the units of a coarser level hold."""
        buffers = regroup(self.buffers, new_of)
        own = np.zeros((int(new_of.max()) + 1, self.own.shape[1]))
        np.add.at(own, new_of, self.own)
        return Watched(buffers, own, to_held(buffers, own), self.moments, self.beyond)


class Watch:
    """The moments of one search, to which every placement that it follows adds; several threads may
    use it."""

    def __init__(self, problem: PeakProblem) -> None:
        self.problem = problem
        self.held = to_held(problem.buffers, problem.steady())
        self.capacity = np.array(problem.capacity, np.float64)
        times = problem.orders * problem.length
        self.times = dict.fromkeys(range(times) if times <= _MOST_MOMENTS else ())
        self.beyond = np.zeros(len(self.capacity))
        self.lock = threading.Lock()

    def follow(self, device_of: Ints) -> Floats:
        """The bytes by which every device peaks above its cap; the fullest times of this placement
        become moments, in the place of the oldest ones where those are too many."""
        along, highest = self.hold(device_of)
        length = self.problem.length
        times: list[int] = []
        for device in np.flatnonzero(highest > 0.8 * self.capacity):  # nearly full
            order = int(along[device].max(axis=1).argmax())
            here = along[device, order]
            # the fullest moment of each part of the order is followed
            for part in np.array_split(np.arange(length), min(24, length)):
                fullest = int(part[0] + here[part].argmax())
                if here[fullest] > 0.7 * self.capacity[device]:
                    times.append(order * length + fullest)
        with self.lock:
            self.times.update(dict.fromkeys(times))
            for time in list(self.times)[: max(0, len(self.times) - _MOST_MOMENTS)]:
                del self.times[time]
            self.beyond = highest - along.max(axis=(1, 2))
        return highest - self.capacity

    def share_above(self, device_of: Ints) -> float:
        """The same as shares of the caps, summed over the devices that are above."""
        above = np.maximum(0.0, self.follow(device_of))
        return float((above / np.maximum(1.0, self.capacity)).sum())

    def hold(self, device_of: Ints) -> tuple[Floats, Floats]:
        """The bytes on every device along every order, and its highest peak."""
        orders, length = self.problem.orders, self.problem.length
        devices = len(self.capacity)
        along = hold(self.held, device_of, devices, orders * length)
        along = along.reshape(devices, orders, length)
        if self.problem.rows is not None:
            return along, along.max(axis=(1, 2))
        resident = np.bincount(device_of, self.problem.resident, minlength=devices)
        peaks = zip(along.max(axis=2), resident, strict=True)
        return along, np.array([highest_peak(*each) for each in peaks])

    def hold_moved(
        self, device_of: Ints, along: Floats, units: Ints, target: int
    ) -> tuple[float, float]:
        """The highest peaks of the device that some units are on and of another one, once they are
        all there; ``along`` is what :meth:`hold` says of the placement before."""
        in_use = along.reshape(len(along), -1)
        source = int(device_of[units[0]])
        both = hold_moved(self.held, device_of, in_use, units, target)
        moved = device_of.copy()
        moved[units] = target
        low, high = (
            float(highest_peak(held.reshape(along.shape[1:]).max(axis=1), resident))
            for device, held in zip((source, target), both, strict=True)
            for resident in [self.problem.resident[moved == device].sum()]
        )
        return low, high

    def watched(self, device_of: Ints | None) -> Watched:
        """Returns what the units hold at the moments known by now, also those of a placement."""
        if device_of is not None:
            self.follow(device_of)
        with self.lock:
            moments, beyond = np.array(sorted(self.times) or [0], np.int64), self.beyond
        steady = self.problem.steady()
        own = steady[:, moments if steady.shape[1] > 1 else np.zeros_like(moments)]
        buffers = at_moments(self.problem.buffers, moments)
        return Watched(buffers, own, to_held(buffers, own), len(moments), beyond)


def at_moments(buffers: Buffers, moments: Ints) -> Buffers:
    """The buffers with times counted in ``moments`` (sorted): those that a device may hold at one
    of them."""
    first = np.searchsorted(moments, buffers.first)
    done = np.searchsorted(moments, buffers.done, "right") - 1
    read_first = np.searchsorted(moments, buffers.read_first)
    read_last = np.searchsorted(moments, buffers.read_last, "right") - 1
    begin, end = first.copy(), done.copy()
    np.minimum.at(begin, buffers.read_of, read_first)
    np.maximum.at(end, buffers.read_of, read_last)
    kept = np.flatnonzero(begin <= end)
    number = np.full(len(first), -1, np.int64)
    number[kept] = np.arange(len(kept))
    reads = number[buffers.read_of] >= 0
    return Buffers(
        buffers.owner[kept],
        first[kept].astype(np.int64),
        done[kept].astype(np.int64),
        buffers.size[kept],
        number[buffers.read_of][reads],
        buffers.reader[reads],
        read_first[reads].astype(np.int64),
        read_last[reads].astype(np.int64),
        buffers.read_size[reads],
    )


def to_held(buffers: Buffers, own: Floats) -> Held:
    """The buffers of units (:func:`~placer.solving.search.peak_problem.regroup`) beside what each
    unit holds by itself.

    With a column per moment in ``own``, buffers that one unit has to itself are added there.
    """
    count, moments = own.shape
    owner, read_of = buffers.owner, buffers.read_of
    others = np.bincount(read_of, buffers.reader != owner[read_of], minlength=len(owner))
    is_shared = np.ones(len(owner), np.bool_)
    if moments > 1:
        is_alone = (others == 0) & (owner >= 0) | (others == 1) & (owner < 0)
        own = own + _profile(buffers, is_alone, count, moments)
        is_shared = ~is_alone & (others > 0)
    shared = np.flatnonzero(is_shared)
    number = np.full(len(owner), -1, np.int64)
    number[shared] = np.arange(len(shared))
    of_shared = number[read_of] >= 0
    read_of = number[read_of][of_shared]
    reader = buffers.reader[of_shared]
    unit = np.concatenate((reader, owner[shared]))
    touched = np.concatenate((read_of, np.arange(len(shared))))
    pairs = np.unique((unit * len(shared) + touched)[unit >= 0])
    unit, touched = np.divmod(pairs, max(1, len(shared)))
    is_held = own > 0.0
    own_last = np.where(is_held.any(axis=1), moments - 1 - is_held[:, ::-1].argmax(axis=1), -1)
    return Held(
        owner[shared],
        buffers.first[shared],
        buffers.done[shared],
        buffers.size[shared],
        _starts(read_of, len(shared)),
        reader,
        buffers.read_first[of_shared],
        buffers.read_last[of_shared],
        buffers.read_size[of_shared],
        _starts(unit, count),
        touched,
        own,
        is_held.argmax(axis=1),
        own_last,
    )


def _profile(buffers: Buffers, is_alone: Flags, count: int, moments: int) -> Floats:
    """``[unit, moment]`` of the buffers that one unit has to itself."""
    unit, first, size = buffers.owner.copy(), buffers.first.copy(), buffers.size.copy()
    last = buffers.done.copy()
    np.maximum.at(last, buffers.read_of, buffers.read_last)
    reads = np.flatnonzero((buffers.owner < 0)[buffers.read_of] & is_alone[buffers.read_of])
    arrived = buffers.read_of[reads]  # read by one unit, once
    unit[arrived] = buffers.reader[reads]
    first[arrived] = buffers.read_first[reads]
    last[arrived] = buffers.read_last[reads]
    size[arrived] = buffers.read_size[reads]
    kept = np.flatnonzero(is_alone & (first <= last))
    row, width = unit[kept] * (moments + 1), count * (moments + 1)
    change = np.bincount(row + first[kept], size[kept], minlength=width)
    change -= np.bincount(row + last[kept] + 1, size[kept], minlength=width)
    profile = np.cumsum(change.reshape(count, moments + 1), axis=1)[:, :moments]
    return np.asarray(profile, np.float64)


def _starts(keys: Ints, count: int) -> Ints:
    """Where each key from 0 to ``count - 1`` begins in ``keys``, which are sorted."""
    return np.searchsorted(keys, np.arange(count + 1)).astype(np.int64)
