"""Units that share a net."""

from __future__ import annotations

import numpy as np

from placer.solving.compiled.arrays import Arrays, Ints, Nets, Units
from placer.solving.compiled.jit import compiled

_MOST_PINS = 64
"""Larger nets say little about who belongs together, and take long to go through."""


@compiled
def small_nets(units: Units, nets: Nets, unit: int) -> Ints:
    """The nets that a unit reads and sends, without those of many consumers."""
    ins = units.ins[units.in_start[unit] : units.in_start[unit + 1]]
    outs = units.outs[units.out_start[unit] : units.out_start[unit + 1]]
    found = np.concatenate((ins, outs))
    count = 0
    for net in found:
        if nets.pin_start[net + 1] - nets.pin_start[net] < _MOST_PINS:
            found[count] = net
            count += 1
    return found[:count]


@compiled
def has_nets(units: Units, unit: int) -> bool:
    """Whether a unit sends or reads anything."""
    return bool(
        units.out_start[unit + 1] > units.out_start[unit]
        or units.in_start[unit + 1] > units.in_start[unit]
    )


@compiled
def neighbour_device(arrays: Arrays, device_of: Ints, unit: int) -> int:
    """The device at the other end of a random net of a unit that has some."""
    units, nets = arrays.units, arrays.nets
    outs = units.out_start[unit + 1] - units.out_start[unit]
    ins = units.in_start[unit + 1] - units.in_start[unit]
    chosen = np.random.randint(outs + ins)
    if chosen >= outs:
        net = units.ins[units.in_start[unit] + chosen - outs]
        return int(device_of[nets.producer[net]])
    net = units.outs[units.out_start[unit] + chosen]
    pin = np.random.randint(nets.pin_start[net], nets.pin_start[net + 1])
    return int(device_of[nets.pins[pin]])
