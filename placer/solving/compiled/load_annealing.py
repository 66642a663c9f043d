"""Simulated annealing of the largest load: the seconds of a device's units and of what it sends and
receives, the time that a pipeline spends on it per sample.

S. Kirkpatrick, C. D. Gelatt, M. P. Vecchi, Optimization by Simulated Annealing, Science 220 (1983),
doi:10.1126/science.220.4598.671.  The energy is a power mean of the loads, so that moves between
devices other than the fullest count too; the placement kept is the one with the least maximum.
"""

from typing import NamedTuple

import numpy as np

from placer.machine_code.jit import compiled, compiled_part
from placer.solving.compiled.arrays import Arrays, Floats, Ints
from placer.solving.compiled.neighbours import has_nets, neighbour_device


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
        load[device] += units.cost[unit, device]
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
    state.load[source] -= units.cost[unit, source]
    state.load[target] += units.cost[unit, target]
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


_SWAP_SHARE = 0.15
_NEIGHBOUR_SHARE = 0.7
_LAST_TEMPERATURE = 1e-4


@compiled
def anneal_loads(
    arrays: Arrays,
    device_of: Ints,
    free: Ints,
    seed: int,
    steps: int,
    temperature: float,
    power: float,
) -> tuple[float, Ints]:
    """The least maximum load found, and its placement.

    ``device_of`` keeps all rows; ``free`` are the units that may move.  ``temperature`` is a share
    of the first maximum and falls geometrically over the ``steps``.
    """
    np.random.seed(seed)
    state = new_state(arrays, device_of)
    best = state.device_of.copy()
    least = state.load.max()
    scale = max(least, 1e-300)
    energy = _energy(state, scale, power)
    cooling = (_LAST_TEMPERATURE / temperature) ** (1.0 / steps)
    heat = temperature * scale
    for _ in range(steps):
        heat *= cooling
        unit = free[np.random.randint(free.shape[0])]
        source = state.device_of[unit]
        target = _target(arrays, state, unit)
        if target == source or not arrays.units.allowed[unit, target]:
            continue
        other = -1
        if np.random.random() < _SWAP_SHARE:
            other = free[np.random.randint(free.shape[0])]
            if state.device_of[other] != target or not arrays.units.allowed[other, source]:
                other = -1
        move(arrays, state, unit, target)
        if other >= 0:
            move(arrays, state, other, source)
        changed = energy
        accepted = keeps_rows(arrays, state, target) and (
            other < 0 or keeps_rows(arrays, state, source)
        )
        if accepted:
            changed = _energy(state, scale, power)
            accepted = changed <= energy or np.random.random() < np.exp((energy - changed) / heat)
        if accepted:
            energy = changed
            if state.load.max() < least * (1.0 - 1e-12):
                least = state.load.max()
                best[:] = state.device_of
        else:
            if other >= 0:
                move(arrays, state, other, target)
            move(arrays, state, unit, source)
    return least, best


@compiled_part
def _energy(state: State, scale: float, power: float) -> float:
    total = 0.0
    for load in state.load:
        total += max(0.0, load / scale) ** power
    return float(scale * total ** (1.0 / power))


@compiled_part
def _target(arrays: Arrays, state: State, unit: int) -> int:
    """Mostly the device of a unit that shares a net with this one."""
    if has_nets(arrays.units, unit) and np.random.random() <= _NEIGHBOUR_SHARE:
        return neighbour_device(arrays, state.device_of, unit)
    return np.random.randint(state.load.shape[0])
