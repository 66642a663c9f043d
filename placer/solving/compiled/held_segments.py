"""Contiguous segments of an order of units, cut where little crosses, none holding too much.

A device holds what its own units ask for, wherever the others are; and more units hold no less.  So
for every end of a segment there is a first start from which it fits, and starts never fall.
"""

from __future__ import annotations

import numpy as np

from placer.solving.compiled.arrays import Arrays, Floats, Ints
from placer.solving.compiled.cuts_of_orders import crossing_bytes
from placer.solving.compiled.held_bytes import Held, hold, shift
from placer.solving.compiled.jit import compiled


@compiled
def cut(arrays: Arrays, order: Ints, starts: Ints) -> tuple[Ints, float]:
    """The segment of every unit of ``order`` (by position) for the least sum of what crosses the
    cuts; infinite if there are no segments that fit.

    ``starts[k]`` are the :func:`first_starts` of the k-th segment, which may be empty.  Dynamic
    programming over the segments: ``best[j]`` is the least cost of giving the first j units to
    those so far.
    """
    crossing = crossing_bytes(arrays, order)
    length = order.shape[0]
    best = np.full(length + 1, np.inf)
    best[0] = 0.0
    choice = np.zeros(starts.shape, np.int64)
    for step in range(starts.shape[0]):
        best = _append(best, starts[step], crossing, choice[step])
    segment = np.zeros(length, np.int64)
    if np.isfinite(best[length]):
        end = length
        for step in range(starts.shape[0] - 1, -1, -1):
            start = choice[step, end]
            segment[start:end] = step
            end = start
    return segment, float(best[length])


@compiled
def first_starts(
    arrays: Arrays, held: Held, limit: Floats, moments: int, order: Ints, device: int
) -> Ints:
    """For every end, the first start of a segment of ``order`` that the device can hold.

    The other units are on their first devices; what is nowhere is on one device more, without a
    limit.
    """
    devices = limit.shape[0]
    limits = np.full(devices + 1, np.inf)
    limits[device] = limit[device]
    device_of = np.zeros(arrays.units.allowed.shape[0], np.int64)
    for unit in range(device_of.shape[0]):
        device_of[unit] = arrays.units.allowed[unit].argmax()
    device_of[order] = devices
    in_use = hold(held, device_of, devices + 1, moments)
    above = 0.0
    for moment in range(moments):
        above += max(0.0, in_use[device, moment] - limit[device])
    tiny = 1e-9 * limit[device]
    starts = np.zeros(order.shape[0] + 1, np.int64)
    start = 0
    for end in range(1, order.shape[0] + 1):
        above += shift(held, device_of, in_use, limits, order[end - 1], device)
        while above > tiny and start < end:
            above += shift(held, device_of, in_use, limits, order[start], devices)
            start += 1
        starts[end] = start
    return starts


@compiled
def _append(best: Floats, starts: Ints, crossing: Floats, choice: Ints) -> Floats:
    """The costs with one more segment, which may be empty; ``choice`` gets where it starts.

    The least cost of a start is kept in a monotone queue.
    """
    length = best.shape[0]
    entry = best + crossing
    result = best.copy()
    window = np.zeros(length, np.int64)
    head = tail = 0
    choice[:] = np.arange(length)
    for end in range(1, length):
        while tail > head and entry[window[tail - 1]] >= entry[end - 1]:
            tail -= 1
        window[tail] = end - 1
        tail += 1
        while head < tail and window[head] < starts[end]:
            head += 1
        if head < tail and entry[window[head]] < result[end]:
            result[end] = entry[window[head]]
            choice[end] = window[head]
    return result
