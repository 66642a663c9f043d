"""The transfer of a placement, kept up to date while units move, and its annealing.

Here ``units.seconds`` are costs in bytes (what a unit costs on the host), and devices and links
are all alike.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placer.solving.compiled.arrays import Arrays, Floats, Ints
from placer.solving.compiled.jit import compiled
from placer.solving.compiled.neighbours import has_nets, neighbour_device

_SWAP_SHARE = 0.1
_RANDOM_SHARE = 0.02
_LAST_TEMPERATURE = 0.01


class TransferState(NamedTuple):
    """``device_of[unit]``, ``used[row, device]`` in bytes, ``readers[net, device]``: how many
    consumers of the net are there."""

    device_of: Ints
    used: Floats
    readers: Ints


@compiled
def new_transfer_state(arrays: Arrays, device_of: Ints) -> TransferState:
    """The state of a placement of all units (copied)."""
    units, nets = arrays.units, arrays.nets
    used = np.zeros_like(arrays.devices.capacity)
    readers = np.zeros((nets.producer.shape[0], used.shape[1]), np.int64)
    for unit in range(device_of.shape[0]):
        for row in range(used.shape[0]):
            used[row, device_of[unit]] += units.weights[row, unit]
    for net in range(nets.producer.shape[0]):
        for pin in nets.pins[nets.pin_start[net] : nets.pin_start[net + 1]]:
            readers[net, device_of[pin]] += 1
    return TransferState(device_of.copy(), used, readers)


@compiled
def transfer_bytes(arrays: Arrays, state: TransferState) -> float:
    """The bytes of every net, times the devices other than its producer's that read it, and what
    the units cost where they are."""
    total = 0.0
    nets = arrays.nets
    for net in range(nets.producer.shape[0]):
        home = state.device_of[nets.producer[net]]
        for device in range(state.used.shape[1]):
            if device != home and state.readers[net, device] > 0:
                total += nets.bytes[net]
    for unit in range(state.device_of.shape[0]):
        total += arrays.units.seconds[unit, state.device_of[unit]]
    return total


@compiled
def change_by_move(arrays: Arrays, state: TransferState, unit: int, target: int) -> float:
    """By how much moving a unit would raise the transfer."""
    units, nets = arrays.units, arrays.nets
    source = state.device_of[unit]
    change = units.seconds[unit, target] - units.seconds[unit, source]
    for net in units.ins[units.in_start[unit] : units.in_start[unit + 1]]:
        home = state.device_of[nets.producer[net]]
        if source != home and state.readers[net, source] == 1:
            change -= nets.bytes[net]
        if target != home and state.readers[net, target] == 0:
            change += nets.bytes[net]
    for net in units.outs[units.out_start[unit] : units.out_start[unit + 1]]:
        if state.readers[net, source] > 0:
            change += nets.bytes[net]
        if state.readers[net, target] > 0:
            change -= nets.bytes[net]
    return float(change)


@compiled
def shift(arrays: Arrays, state: TransferState, unit: int, target: int) -> None:
    """Move a unit to another device."""
    units = arrays.units
    source = state.device_of[unit]
    for net in units.ins[units.in_start[unit] : units.in_start[unit + 1]]:
        state.readers[net, source] -= 1
        state.readers[net, target] += 1
    for row in range(state.used.shape[0]):
        state.used[row, source] -= units.weights[row, unit]
        state.used[row, target] += units.weights[row, unit]
    state.device_of[unit] = target


@compiled
def keeps_capacity(arrays: Arrays, state: TransferState, device: int) -> bool:
    """Whether a device holds no more than it may."""
    for row in range(state.used.shape[0]):
        if state.used[row, device] > arrays.devices.capacity[row, device]:
            return False
    return True


@compiled
def anneal_transfer(
    arrays: Arrays, device_of: Ints, free: Ints, seed: int, steps: int, heat: float
) -> tuple[float, Ints]:
    """The least transfer found, and its placement.

    ``device_of`` keeps all rows; ``free`` are the units that may move; the temperature falls
    geometrically from ``heat`` (bytes) to a hundredth of it over the ``steps``.
    """
    np.random.seed(seed)
    state = new_transfer_state(arrays, device_of)
    value = transfer_bytes(arrays, state)
    least = value
    best = state.device_of.copy()
    improved = False
    cooling = _LAST_TEMPERATURE ** (1.0 / max(1, steps))
    for _ in range(steps):
        heat *= cooling
        unit, target, other = _proposal(arrays, state, free)
        source = state.device_of[unit]
        if target == source:
            continue
        change = change_by_move(arrays, state, unit, target)
        shift(arrays, state, unit, target)
        if other >= 0:
            change += change_by_move(arrays, state, other, source)
            shift(arrays, state, other, source)
        if not _accepts(arrays, state, source, target, change, heat):
            if other >= 0:
                shift(arrays, state, other, target)
            shift(arrays, state, unit, source)
            continue
        if change > 0.0 and improved:
            best[:] = state.device_of
            best[unit] = source
            if other >= 0:
                best[other] = target
            improved = False
        value += change
        if value < least:
            least = value
            improved = True
    if improved:
        best[:] = state.device_of
    return least, best


@compiled
def _accepts(
    arrays: Arrays, state: TransferState, source: int, target: int, change: float, heat: float
) -> bool:
    """Whether a move that is made may stay: it improves or is hot enough, and both ends hold."""
    if change > 0.0 and np.random.random() >= np.exp(-change / heat):
        return False
    return keeps_capacity(arrays, state, target) and keeps_capacity(arrays, state, source)


@compiled
def _fits(arrays: Arrays, state: TransferState, unit: int, device: int) -> bool:
    """Whether the rows of a device hold with one more unit."""
    for row in range(state.used.shape[0]):
        used = state.used[row, device] + arrays.units.weights[row, unit]
        if used > arrays.devices.capacity[row, device]:
            return False
    return True


@compiled
def _proposal(arrays: Arrays, state: TransferState, free: Ints) -> tuple[int, int, int]:
    """A unit, a device for it (its own: no move), and a unit there to swap with (or -1)."""
    unit = int(free[np.random.randint(free.shape[0])])
    source = int(state.device_of[unit])
    target = _target(arrays, state, unit)
    if target == source or not arrays.units.allowed[unit, target]:
        return unit, source, -1
    if np.random.random() >= _SWAP_SHARE and _fits(arrays, state, unit, target):
        return unit, target, -1
    other = int(free[np.random.randint(free.shape[0])])
    if state.device_of[other] != target or not arrays.units.allowed[other, source]:
        return unit, source, -1
    return unit, target, other


@compiled
def _target(arrays: Arrays, state: TransferState, unit: int) -> int:
    """The device of a unit that shares a net with this one; now and then any device."""
    if has_nets(arrays.units, unit) and np.random.random() >= _RANDOM_SHARE:
        return neighbour_device(arrays, state.device_of, unit)
    return np.random.randint(state.used.shape[1])
