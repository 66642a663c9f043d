"""The savings of every move, kept up to date while units move.

With pins[n, d] = units of net n (its producer among them) on device d, moving unit u from s to d
saves

    benefit[u] - penalty[u, d] + cost[u, s] - cost[u, d]

where benefit[u] is the sum of the bytes of its nets with one pin on s, and penalty[u, d] of those
with none on d.  A move changes them only where a count passes 0, 1 or 2, so that a table pays
(T. Maas, L. Gottesbüren, D. Seemaier, Parallel Unconstrained Local Search for Partitioning
Irregular Graphs, ALENEX 2024, doi:10.1137/1.9781611977929.3, and what they cite).
"""

from typing import NamedTuple

import numpy as np

from placer.machine_code.jit import compiled, compiled_part
from placer.solving.compiled.arrays import Arrays, Floats, Ints


class GainTable(NamedTuple):
    """``device_of[unit]``, ``used[row, device]`` in bytes, ``pins[net, device]``,
    ``benefit[unit]`` and ``penalty[unit, device]`` in bytes."""

    device_of: Ints
    used: Floats
    pins: Ints
    benefit: Floats
    penalty: Floats


@compiled
def new_gain_table(arrays: Arrays, device_of: Ints) -> GainTable:
    """The table of a placement of all units (copied)."""
    units, nets = arrays.units, arrays.nets
    used = np.zeros_like(arrays.devices.capacity)
    count, devices = device_of.shape[0], used.shape[1]
    pins = np.zeros((nets.producer.shape[0], devices), np.int64)
    benefit = np.zeros(count)
    penalty = np.zeros((count, devices))
    for unit in range(count):
        for row in range(used.shape[0]):
            used[row, device_of[unit]] += units.weights[row, unit]
    for net in range(nets.producer.shape[0]):
        first, last = nets.pin_start[net], nets.pin_start[net + 1]
        for place in range(first - 1, last):
            pins[net, device_of[_pin(arrays, net, place)]] += 1
        for place in range(first - 1, last):
            unit = _pin(arrays, net, place)
            if pins[net, device_of[unit]] == 1:
                benefit[unit] += nets.bytes[net]
            for device in range(devices):
                if pins[net, device] == 0:
                    penalty[unit, device] += nets.bytes[net]
    return GainTable(device_of.copy(), used, pins, benefit, penalty)


@compiled_part
def _pin(arrays: Arrays, net: int, place: int) -> int:
    """The producer of a net at the place before its first consumer."""
    if place < arrays.nets.pin_start[net]:
        return int(arrays.nets.producer[net])
    return int(arrays.nets.pins[place])


@compiled
def gain(arrays: Arrays, table: GainTable, unit: int, target: int) -> float:
    """The bytes that moving a unit saves."""
    cost = arrays.units.cost
    source = table.device_of[unit]
    saved = table.benefit[unit] - table.penalty[unit, target]
    return float(saved + cost[unit, source] - cost[unit, target])


@compiled
def apply_move(arrays: Arrays, table: GainTable, unit: int, target: int) -> None:
    """Move a unit to another device."""
    units = arrays.units
    source = table.device_of[unit]
    table.device_of[unit] = target
    table.benefit[unit] = 0.0
    for net in units.outs[units.out_start[unit] : units.out_start[unit + 1]]:
        _change_net(arrays, table, net, unit, source, target)
    for net in units.ins[units.in_start[unit] : units.in_start[unit + 1]]:
        _change_net(arrays, table, net, unit, source, target)
    for row in range(table.used.shape[0]):
        table.used[row, source] -= units.weights[row, unit]
        table.used[row, target] += units.weights[row, unit]


@compiled_part
def _change_net(
    arrays: Arrays, table: GainTable, net: int, unit: int, source: int, target: int
) -> None:
    """One pin of a net goes from ``source`` to ``target``."""
    size = arrays.nets.bytes[net]
    first, last = arrays.nets.pin_start[net] - 1, arrays.nets.pin_start[net + 1]
    table.pins[net, source] -= 1
    table.pins[net, target] += 1
    left, come = table.pins[net, source], table.pins[net, target]
    if come == 1:
        table.benefit[unit] += size
    if left > 1 and come > 2:
        return
    for place in range(first, last):
        other = _pin(arrays, net, place)
        if left == 0:
            table.penalty[other, source] += size
        elif left == 1 and table.device_of[other] == source:
            table.benefit[other] += size
        if come == 1:
            table.penalty[other, target] -= size
        elif come == 2 and other != unit and table.device_of[other] == target:
            table.benefit[other] -= size


@compiled_part
def fits(arrays: Arrays, table: GainTable, unit: int, device: int, share: float) -> bool:
    """Whether the rows of a device, times ``share``, hold with one more unit."""
    for row in range(table.used.shape[0]):
        used = table.used[row, device] + arrays.units.weights[row, unit]
        if used > share * arrays.devices.capacity[row, device]:
            return False
    return True


@compiled_part
def overload(arrays: Arrays, table: GainTable, device: int) -> float:
    """The largest share of a row by which a device holds too much; 0 if all rows hold."""
    most = 0.0
    for row in range(table.used.shape[0]):
        excess = table.used[row, device] - arrays.devices.capacity[row, device]
        if excess > 0.0:
            most = max(most, excess / max(1.0, arrays.devices.capacity[row, device]))
    return most


@compiled_part
def best_target(arrays: Arrays, table: GainTable, unit: int, overfull: float) -> tuple[int, float]:
    """The device where moving a unit saves most, and how much; -1 if it can go nowhere."""
    best, most = -1, -np.inf
    source = table.device_of[unit]
    for device in range(table.used.shape[1]):
        if device != source and arrays.units.allowed[unit, device]:
            value = gain(arrays, table, unit, device)
            if value > most and fits(arrays, table, unit, device, overfull):
                best, most = device, value
    return best, most


@compiled_part
def most_crowded(arrays: Arrays, table: GainTable) -> int:
    """The device that holds most above its capacity, or -1."""
    most, found = 0.0, -1
    for device in range(table.used.shape[1]):
        excess = overload(arrays, table, device)
        if excess > most:
            most, found = excess, device
    return found


@compiled
def transfer_of(arrays: Arrays, device_of: Ints) -> float:
    """The bytes of a placement: every net once per device but one that has pins of it, and what
    the units cost where they are."""
    nets = arrays.nets
    total = 0.0
    for unit in range(device_of.shape[0]):
        total += arrays.units.cost[unit, device_of[unit]]
    seen = np.full(arrays.devices.capacity.shape[1], -1, np.int64)
    for net in range(nets.producer.shape[0]):
        seen[device_of[nets.producer[net]]] = net
        for pin in nets.pins[nets.pin_start[net] : nets.pin_start[net + 1]]:
            if seen[device_of[pin]] != net:
                seen[device_of[pin]] = net
                total += nets.bytes[net]
    return total


def excess(arrays: Arrays, device_of: Ints) -> float:
    """By how much rows are broken, in shares of their capacity."""
    capacity = arrays.devices.capacity
    used = np.zeros_like(capacity)
    for row, weights in enumerate(arrays.units.weights):
        used[row] = np.bincount(device_of, weights, minlength=capacity.shape[1])
    over = np.maximum(0.0, used - capacity)
    return float((over / np.maximum(1.0, capacity)).sum())
