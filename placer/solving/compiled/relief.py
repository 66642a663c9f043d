"""Making a placement fit: units leave devices that hold too much, the cheapest per byte first."""

from __future__ import annotations

from placer.solving.compiled.arrays import Arrays, Ints
from placer.solving.compiled.gain_table import (
    GainTable,
    apply_move,
    best_target,
    most_crowded,
    new_gain_table,
)
from placer.solving.compiled.jit import compiled, compiled_part
from placer.solving.compiled.priority_queues import Queues, clear, new_queues, put, remove


@compiled
def relieve(arrays: Arrays, device_of: Ints, free: Ints) -> Ints:
    """The placement after units have moved to where they fit, until every row holds or none can
    move; the caller looks which."""
    table = new_gain_table(arrays, device_of)
    queues = new_queues(table.used.shape[1], device_of.shape[0])
    for _ in range(2 * table.used.shape[1]):
        crowded = most_crowded(arrays, table)
        if crowded < 0:
            break
        for unit in free:
            if table.device_of[unit] == crowded:
                _rank(arrays, table, queues, unit)
        while queues.size[crowded] and most_crowded(arrays, table) == crowded:
            unit = queues.items[crowded, 0]
            key = queues.key[unit]
            target = _rank(arrays, table, queues, unit)
            if target < 0:
                remove(queues, crowded, unit)
            elif queues.key[unit] >= key:
                remove(queues, crowded, unit)
                apply_move(arrays, table, unit, target)
        clear(queues)
    return table.device_of


@compiled_part
def _rank(arrays: Arrays, table: GainTable, queues: Queues, unit: int) -> int:
    """Where a unit would best go (-1: nowhere); it is queued by what that saves per share of its
    device's room that it takes."""
    target, value = best_target(arrays, table, unit, 1.0)
    if target < 0:
        return -1
    source = table.device_of[unit]
    taken = 0.0
    for row in range(table.used.shape[0]):
        capacity = max(1.0, arrays.devices.capacity[row, source])
        taken = max(taken, arrays.units.weights[row, unit] / capacity)
    if taken == 0.0:
        return -1
    put(queues, source, unit, value / taken if value < 0.0 else value * taken)
    return target
