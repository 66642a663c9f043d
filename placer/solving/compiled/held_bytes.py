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
    holds wherever the others are; with one column, the same at all moments.
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


_NEVER = 1 << 60

_RISE = 1.1
"""The price is multiplied or divided by this each time."""

PRICES = 400
"""How often the price of an annealing changes."""

TINY = 0.5
"""Bytes: sums of whole numbers are exact up to 2**53."""


def nothing_held(units: int) -> Held:
    """Units that hold nothing."""
    none, no_bytes = np.zeros(0, np.int64), np.zeros(0)
    start = np.zeros(units + 1, np.int64)
    return Held(
        owner=none,
        first=none,
        done=none,
        size=no_bytes,
        read_start=start[:1],
        reader=none,
        read_first=none,
        read_last=none,
        read_size=no_bytes,
        start=start,
        buffers=none,
        own=np.zeros((units, 1)),
    )


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
    held: Held, device_of: Ints, in_use: Floats, limit: Floats, unit: int, target: int
) -> float:
    """Move a unit to another device; by how much more the devices hold above their ``limit``,
    summed over all moments."""
    source = device_of[unit]
    here, there = in_use[source], in_use[target]
    more = 0.0
    columns = held.own.shape[1]
    for moment in range(in_use.shape[1]):
        size = held.own[unit, min(moment, columns - 1)]
        if size > 0.0:
            more += _add(here, limit[source], moment, moment, -size)
            more += _add(there, limit[target], moment, moment, size)
    for buffer in held.buffers[held.start[unit] : held.start[unit + 1]]:
        first, last, size = _span(held, device_of, buffer, source)
        begin, end, bytes_ = _span(held, device_of, buffer, target)
        device_of[unit] = target
        new_first, new_last, new_size = _span(held, device_of, buffer, source)
        new_begin, new_end, new_bytes = _span(held, device_of, buffer, target)
        device_of[unit] = source
        if first != new_first or last != new_last or size != new_size:
            more += _add(here, limit[source], first, last, -size)
            more += _add(here, limit[source], new_first, new_last, new_size)
        if begin != new_begin or end != new_end or bytes_ != new_bytes:
            more += _add(there, limit[target], begin, end, -bytes_)
            more += _add(there, limit[target], new_begin, new_end, new_bytes)
    device_of[unit] = target
    return more


@compiled_part
def _add(in_use: Floats, limit: float, first: int, last: int, size: float) -> float:
    """Hold more bytes for a while; by how much more that is above the limit, summed."""
    more = 0.0
    for moment in range(first, last + 1):
        before = in_use[moment]
        in_use[moment] = before + size
        more += max(0.0, before + size - limit) - max(0.0, before - limit)
    return more


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
