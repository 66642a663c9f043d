"""Where segments of an order of units may begin so that none holds too much.

A device holds what its own units ask for, wherever the others are; and more units hold no less.  So
for every end of a segment there is a first start from which it fits, and starts never fall.
"""

from __future__ import annotations

import numpy as np

from placer.solving.compiled.arrays import Arrays, Floats, Ints
from placer.solving.compiled.held_bytes import Held, hold, shift
from placer.solving.compiled.jit import compiled


@compiled
def first_held_starts(
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
