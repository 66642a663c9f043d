"""The load of every device, kept up to date while units move.

The load of a device is the seconds of its units and of what it sends and receives: the time that a
pipeline spends on it per sample.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placer.solving.compiled.arrays import Arrays, Floats, Ints
from placer.solving.compiled.jit import compiled, compiled_part


class State(NamedTuple):
    """``device_of[unit]``, ``load[device]`` in seconds, ``used[row, device]`` in bytes,
    ``readers[net, device]``: how many consumers of the net are there."""

    device_of: Ints
    load: Floats
    used: Floats
    readers: Ints


@compiled
def new_state(arrays: Arrays, device_of: Ints) -> State:
    """The state of a placement of all units (copied)."""
    units, nets, devices = arrays.units, arrays.nets, arrays.devices
    device_count = devices.capacity.shape[1]
    load = np.zeros(device_count)
    used = np.zeros_like(devices.capacity)
    readers = np.zeros((nets.producer.shape[0], device_count), np.int64)
    for unit in range(device_of.shape[0]):
        device = device_of[unit]
        load[device] += units.seconds[unit, device]
        for row in range(used.shape[0]):
            used[row, device] += units.weights[row, unit]
    for net in range(nets.producer.shape[0]):
        for pin in nets.pins[nets.pin_start[net] : nets.pin_start[net + 1]]:
            readers[net, device_of[pin]] += 1
    state = State(device_of.copy(), load, used, readers)
    for net in range(nets.producer.shape[0]):
        charge(arrays, state, net, 1.0)
    return state


@compiled_part
def charge(arrays: Arrays, state: State, net: int, sign: float) -> None:
    """Add (or with ``sign`` -1 take away) what a net costs its two ends."""
    nets, devices = arrays.nets, arrays.devices
    home = state.device_of[nets.producer[net]]
    total = 0.0
    dearest = 0.0
    for device in range(state.load.shape[0]):
        if device != home and state.readers[net, device] > 0:
            seconds = (
                nets.messages[net] * devices.latency[home, device]
                + nets.bytes[net] * devices.seconds_per_byte[home, device]
            )
            if devices.occupied[device]:
                state.load[device] += sign * seconds
            total += seconds
            dearest = max(dearest, seconds)
    if devices.occupied[home]:
        state.load[home] += sign * (dearest if devices.multicast else total)


@compiled_part
def move(arrays: Arrays, state: State, unit: int, target: int) -> None:
    """Move a unit to another device."""
    units = arrays.units
    source = state.device_of[unit]
    outs = units.outs[units.out_start[unit] : units.out_start[unit + 1]]
    for net in outs:
        charge(arrays, state, net, -1.0)
    for net in units.ins[units.in_start[unit] : units.in_start[unit + 1]]:
        changes = state.readers[net, source] == 1 or state.readers[net, target] == 0
        if changes:
            charge(arrays, state, net, -1.0)
        state.readers[net, source] -= 1
        state.readers[net, target] += 1
        if changes:
            charge(arrays, state, net, 1.0)
    state.device_of[unit] = target
    state.load[source] -= units.seconds[unit, source]
    state.load[target] += units.seconds[unit, target]
    for row in range(state.used.shape[0]):
        state.used[row, source] -= units.weights[row, unit]
        state.used[row, target] += units.weights[row, unit]
    for net in outs:
        charge(arrays, state, net, 1.0)


@compiled
def keeps_rows(arrays: Arrays, state: State, device: int) -> bool:
    """Whether a device holds no more than it may."""
    for row in range(state.used.shape[0]):
        if state.used[row, device] > arrays.devices.capacity[row, device]:
            return False
    return True
