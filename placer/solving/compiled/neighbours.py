"""Units that share a net."""

from __future__ import annotations

import numpy as np

from placer.solving.compiled.arrays import Arrays, Ints, Units
from placer.solving.compiled.jit import compiled


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
