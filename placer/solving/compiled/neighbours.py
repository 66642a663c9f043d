"""Units that share a net."""

import numpy as np

from placer.machine_code.jit import compiled_part
from placer.solving.compiled.arrays import Arrays, Ints, Nets, Units


@compiled_part
def degree(units: Units, unit: int) -> int:
    """How many nets a unit reads and sends."""
    ins = units.in_start[unit + 1] - units.in_start[unit]
    return int(ins + units.out_start[unit + 1] - units.out_start[unit])


@compiled_part
def net_at(units: Units, unit: int, place: int) -> int:
    """The nets of a unit one by one: those that it reads, then those that it sends."""
    ins = units.in_start[unit + 1] - units.in_start[unit]
    if place < ins:
        return int(units.ins[units.in_start[unit] + place])
    return int(units.outs[units.out_start[unit] + place - ins])


@compiled_part
def is_small(nets: Nets, net: int) -> bool:
    """Whether a net has few consumers."""
    # nets with more consumers pull everything together and say little, and take long to go through
    return bool(nets.pin_start[net + 1] - nets.pin_start[net] < 64)


@compiled_part
def has_nets(units: Units, unit: int) -> bool:
    """Whether a unit sends or reads anything."""
    return bool(
        units.out_start[unit + 1] > units.out_start[unit]
        or units.in_start[unit + 1] > units.in_start[unit]
    )


@compiled_part
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
