"""The bytes that every device holds at some moments of a step, kept up to date while units move.

A buffer is held on the device of its owner from when it is written until its last reader there is
done, and on every other device with a reader from when it is sent until its last reader there is
done (:mod:`placer.prediction.orders.possible_lifetimes`).
"""

from typing import NamedTuple

import numpy as np

from placer.machine_code.jit import compiled, compiled_part
from placer.solving.compiled.arrays import Floats, Ints


class Held(NamedTuple):
    """Buffers as units keep them; times are numbers of moments.

    Buffer b is written by ``owner[b]`` (-1: it arrives) at ``first[b]`` and held until ``done[b]``
    at least, ``size[b]`` bytes; ``reader`` (no unit twice), ``read_first``, ``read_last`` and
    ``read_size`` from ``read_start[b]`` to ``read_start[b + 1]`` are its readers.  The buffers of
    unit u are ``buffers[start[u]:start[u + 1]]``.  ``own[u, moment]`` are the bytes that a unit
    holds wherever the others are, from ``own_first[u]`` to ``own_last[u]``; with one column, the
    same at all moments.
    """

    owner: Ints
    first: Ints
    done: Ints
    size: Floats
    read_start: Ints
    reader: Ints
    read_first: Ints
    read_last: Ints
    read_size: Floats
    start: Ints
    buffers: Ints
    own: Floats
    own_first: Ints
    own_last: Ints


Span = tuple[int, int, float]
"""From when to when a device holds a buffer, and how much of it."""

_NEVER = 1 << 60

_RISE = 1.1
"""The price is multiplied or divided by this each time."""

PRICES = 400
"""How often the price of an annealing changes."""

TINY = 0.5
"""Bytes: sums of whole numbers are exact up to 2**53."""


@compiled
def hold(held: Held, device_of: Ints, devices: int, moments: int) -> Floats:
    """The bytes on every device at every moment."""
    in_use = np.zeros((devices, moments + 1))
    seen = np.full(devices, -1, np.int64)
    for buffer in range(held.owner.shape[0]):
        for place in range(held.read_start[buffer] - 1, held.read_start[buffer + 1]):
            is_owner = place < held.read_start[buffer]
            unit = held.owner[buffer] if is_owner else held.reader[place]
            if unit < 0 or seen[device_of[unit]] == buffer:
                continue
            device = device_of[unit]
            seen[device] = buffer
            first, last, size = _span(held, device_of, buffer, device)
            if first <= last:
                in_use[device, first] += size
                in_use[device, last + 1] -= size
    for device in range(devices):
        for moment in range(1, moments):
            in_use[device, moment] += in_use[device, moment - 1]
    _hold_own(held, device_of, in_use, moments)
    return in_use[:, :moments]


@compiled_part
def _hold_own(held: Held, device_of: Ints, in_use: Floats, moments: int) -> None:
    """Adds what units hold by themselves."""
    constant = np.zeros(in_use.shape[0])
    for unit in range(device_of.shape[0]):
        device = device_of[unit]
        if held.own.shape[1] == 1:
            constant[device] += held.own[unit, 0]
        else:
            in_use[device, :moments] += held.own[unit]
    for device in range(in_use.shape[0]):
        in_use[device] += constant[device]


@compiled_part
def _span(held: Held, device_of: Ints, buffer: int, device: int) -> tuple[int, int, float]:
    """From when to when a device holds a buffer, and how much of it."""
    owner = held.owner[buffer]
    is_home = owner >= 0 and device_of[owner] == device
    first, last, size = _NEVER, -1, 0.0
    if is_home:
        first, last, size = held.first[buffer], held.done[buffer], held.size[buffer]
    for place in range(held.read_start[buffer], held.read_start[buffer + 1]):
        if device_of[held.reader[place]] == device:
            last = max(last, held.read_last[place])
            if not is_home:
                first = min(first, held.read_first[place])
                size = max(size, held.read_size[place])
    return first, last, size


@compiled
def shift(
    held: Held,
    device_of: Ints,
    in_use: Floats,
    limit: Floats,
    unit: int,
    target: int,
    change: Floats,
) -> float:
    """Moves a unit to another device; by how much more the devices hold above their ``limit``,
    summed over all moments.  ``change`` as for :func:`look`."""
    if device_of[unit] == target:
        return 0.0
    more, first, last = look(held, device_of, in_use, limit, unit, target, change)
    take(device_of, in_use, unit, target, change, first, last)
    return more


@compiled
def hold_moved(
    held: Held, device_of: Ints, in_use: Floats, units: Ints, target: int
) -> tuple[Floats, Floats]:
    """The bytes at every moment on the device of some units and on another one, once they are all
    there; ``in_use`` is what devices hold before."""
    source, moments, columns = device_of[units[0]], in_use.shape[1], held.own.shape[1]
    moved, change = device_of.copy(), np.zeros((2, moments + 1))
    moved[units] = target
    seen = np.zeros(held.owner.shape[0], np.bool_)
    for unit in units:
        for buffer in held.buffers[held.start[unit] : held.start[unit + 1]]:
            if not seen[buffer]:
                seen[buffer] = True
                for side, device in ((0, source), (1, target)):
                    before = _span(held, device_of, buffer, device)
                    _put(change[side], before, _span(held, moved, buffer, device))
    left, come = in_use[source].copy(), in_use[target].copy()
    gone, more = 0.0, 0.0
    own = np.zeros(columns)
    for unit in units:
        own += held.own[unit]
    for moment in range(moments):
        gone += change[0, moment]
        more += change[1, moment]
        size = own[min(moment, columns - 1)]
        left[moment] += gone - size
        come[moment] += more + size
    return left, come


@compiled_part
def look(
    held: Held,
    device_of: Ints,
    in_use: Floats,
    limit: Floats,
    unit: int,
    target: int,
    change: Floats,
) -> tuple[float, int, int]:
    """By how much more the devices would hold above their ``limit``, summed over all moments, if a
    unit were on another device, and the first and the last moment at which that changes anything.

    ``change[0 or 1, moment]``, which has zeros before, has by how much its device and the other one
    would hold more; :func:`take` or :func:`leave` sets it back.
    """
    source, columns = device_of[unit], held.own.shape[1]
    low, high = held.own_first[unit], held.own_last[unit]
    if columns == 1 and high >= 0:
        high = in_use.shape[1] - 1
    for index in range(held.start[unit], held.start[unit + 1]):
        begin, end = _differences(held, device_of, held.buffers[index], unit, target, change)
        low, high = min(low, begin), max(high, end)
    more, gone, come = 0.0, 0.0, 0.0
    for moment in range(low, high + 1):
        gone += change[0, moment]
        come += change[1, moment]
        size = held.own[unit, min(moment, columns - 1)]
        change[0, moment], change[1, moment] = gone - size, come + size
        before = in_use[source, moment] - limit[source]
        more += max(0.0, before + gone - size) - max(0.0, before)
        before = in_use[target, moment] - limit[target]
        more += max(0.0, before + come + size) - max(0.0, before)
    if low <= high:
        change[0, high + 1] = change[1, high + 1] = 0.0
    return more, low, high


@compiled_part
def take(
    device_of: Ints, in_use: Floats, unit: int, target: int, change: Floats, first: int, last: int
) -> None:
    """Moves the unit that was looked at."""
    source = device_of[unit]
    for moment in range(first, last + 1):
        in_use[source, moment] += change[0, moment]
        in_use[target, moment] += change[1, moment]
    leave(change, first, last)
    device_of[unit] = target


@compiled_part
def leave(change: Floats, first: int, last: int) -> None:
    """Leaves the unit where it is."""
    for moment in range(first, last + 1):
        change[0, moment] = change[1, moment] = 0.0


@compiled_part
def _differences(
    held: Held, device_of: Ints, buffer: int, unit: int, target: int, change: Floats
) -> tuple[int, int]:
    """Adds to ``change``, as differences from moment to moment, what a buffer takes less on the
    device of a unit and more on another one, if the unit goes there; the moments between which
    that is so."""
    source, owner = device_of[unit], held.owner[buffer]
    home = device_of[owner] if owner >= 0 else -1
    stays, there, own = (_NEVER, -1, 0.0), (_NEVER, -1, 0.0), (_NEVER, -1, 0.0)
    for place in range(held.read_start[buffer], held.read_start[buffer + 1]):
        reader = held.reader[place]
        read = (held.read_first[place], held.read_last[place], held.read_size[place])
        if reader == unit:
            own = read
        elif device_of[reader] == source:
            stays = _joined(stays, read)
        elif device_of[reader] == target:
            there = _joined(there, read)
    written = (held.first[buffer], held.done[buffer], held.size[buffer])
    now, later, came, comes = stays, stays, there, there
    if home == source:
        now = _kept(written, _joined(stays, own))
        if owner != unit:
            later = _kept(written, stays)
    else:
        now = _joined(stays, own)
    if home == target:
        came = _kept(written, there)
    if home == target or owner == unit:
        comes = _kept(written, _joined(there, own))
    else:
        comes = _joined(there, own)
    low, high = _put(change[0], now, later)
    begin, end = _put(change[1], came, comes)
    return min(low, begin), max(high, end)


@compiled_part
def _joined(one: Span, other: Span) -> Span:
    """From when to when what two read is held, and how much."""
    return min(one[0], other[0]), max(one[1], other[1]), max(one[2], other[2])


@compiled_part
def _kept(written: Span, read: Span) -> Span:
    """From when to when what is written on a device and read there is held, and how much."""
    return written[0], max(written[1], read[1]), written[2]


@compiled_part
def _put(change: Floats, before: Span, after: Span) -> tuple[int, int]:
    """Adds the difference of two spans to those of a device; the moments between which they
    differ."""
    if before == after:
        return _NEVER, -1
    low, high = _NEVER, -1
    if before[0] <= before[1]:
        change[before[0]] -= before[2]
        change[before[1] + 1] += before[2]
        low, high = before[0], before[1]
    if after[0] <= after[1]:
        change[after[0]] += after[2]
        change[after[1] + 1] -= after[2]
        low, high = min(low, after[0]), max(high, after[1])
    return low, high


@compiled_part
def excess_of(in_use: Floats, limit: Floats) -> float:
    """The bytes above the limits, summed over all moments."""
    total = 0.0
    for device in range(limit.shape[0]):
        for moment in range(in_use.shape[1]):
            total += max(0.0, in_use[device, moment] - limit[device])
    return total


@compiled_part
def next_price(price: float, first: float, highest: float, excess: float) -> float:
    """Returns what a byte above a limit costs from now on: more while something is above and less
    while nothing is; above the ``highest`` price it begins anew at the ``first``."""
    if price > highest:
        return first
    return price * (_RISE if excess > TINY else 1.0 / _RISE)


@compiled_part
def is_better(excess: float, value: float, best_excess: float, best_value: float) -> bool:
    """Whether less is above the limits, or nothing is and the value is lower."""
    if best_excess > TINY:
        return excess < best_excess - TINY
    return excess <= TINY and value < best_value
