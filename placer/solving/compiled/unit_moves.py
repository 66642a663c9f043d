"""Moves of single units, downhill and up again, of which the best prefix stays.

C. M. Fiduccia, R. M. Mattheyses, A Linear-Time Heuristic for Improving Network Partitions, DAC
1982, doi:10.1109/DAC.1982.1585498, for any number of devices; searches begin at a few units and
grow (V. Osipov, P. Sanders, n-Level Graph Partitioning, ESA 2010,
doi:10.1007/978-3-642-15775-2_24).  A device may hold too much for a while: the next unit to move
is then one of its own.  To make a placement fit, units leave devices that hold too much, the
cheapest per byte first.
"""

import numpy as np

from placer.machine_code.jit import compiled, compiled_part
from placer.solving.compiled.arrays import Arrays, Flags, Ints
from placer.solving.compiled.gain_table import (
    GainTable,
    apply_move,
    best_target,
    most_crowded,
    new_gain_table,
)
from placer.solving.compiled.neighbours import degree, is_small, net_at
from placer.solving.compiled.priority_queues import (
    Queues,
    clear,
    fullest_first,
    new_queues,
    put,
    remove,
)

_MOST_ROUNDS = 10


@compiled
def refine_transfer(
    arrays: Arrays,
    device_of: Ints,
    free: Ints,
    seed: int,
    seeds_per_search: int,
    patience: int,
    overfull: float,
) -> Ints:
    """A placement of no more transfer; ``free`` are the units that may move.

    ``device_of`` keeps all rows.  A search begins at ``seeds_per_search`` units and ends
    ``patience`` moves after its best; on the way one device may hold ``overfull`` times its
    capacity.
    """
    np.random.seed(seed)
    table = new_gain_table(arrays, device_of)
    count = device_of.shape[0]
    queues = new_queues(table.used.shape[1], count)
    may_move = np.zeros(count, np.bool_)
    log = np.zeros((2, count), np.int64)
    total = 0.0
    for net in range(arrays.nets.producer.shape[0]):
        for device in range(table.used.shape[1]):
            if table.pins[net, device] > 0:
                total += arrays.nets.bytes[net]
        total -= arrays.nets.bytes[net]
    for _ in range(_MOST_ROUNDS):
        may_move[free] = True
        border = border_units(arrays, table, free)
        saved = 0.0
        begin = 0
        while begin < border.shape[0]:
            end = min(begin + seeds_per_search, border.shape[0])
            for unit in border[begin:end]:
                if may_move[unit]:
                    _enqueue(arrays, table, queues, unit, overfull)
            begin = end
            saved += _search(arrays, table, queues, may_move, log, free, patience, overfull)
        total -= saved
        if saved <= 1e-4 * total:  # another round saves little
            break
    return table.device_of


@compiled_part
def border_units(arrays: Arrays, table: GainTable, free: Ints) -> Ints:
    """The free units with a small net that is cut or a cost where they are, in random order."""
    chosen = np.zeros(free.shape[0], np.bool_)
    units, nets = arrays.units, arrays.nets
    for index in range(free.shape[0]):
        unit = free[index]
        here = table.device_of[unit]
        chosen[index] = units.cost[unit, here] > 0.0
        for place in range(degree(units, unit)):
            net = net_at(units, unit, place)
            if is_small(nets, net):
                readers = nets.pin_start[net + 1] - nets.pin_start[net]
                chosen[index] = chosen[index] or table.pins[net, here] <= readers
    border = free[chosen]
    np.random.shuffle(border)
    return border


@compiled_part
def _search(
    arrays: Arrays,
    table: GainTable,
    queues: Queues,
    may_move: Flags,
    log: Ints,
    free: Ints,
    patience: int,
    overfull: float,
) -> float:
    """Returns what the best prefix of moves from the queued units saves; the moves after it are
    undone."""
    length = best_length = 0
    saved = best = 0.0
    crowded = -1
    while length - best_length < patience:
        device = crowded
        if crowded < 0:
            device = fullest_first(queues)
            if device < 0:
                break
        elif queues.size[device] == 0:
            _feel(arrays, table, queues, may_move, free, device, overfull)
            if queues.size[device] == 0:
                break
        unit = queues.items[device, 0]
        key = queues.key[unit]
        target, value = best_target(arrays, table, unit, overfull)
        if target < 0:
            remove(queues, device, unit)
            continue
        if value < key:
            put(queues, device, unit, value)
            continue
        remove(queues, device, unit)
        may_move[unit] = False
        log[0, length] = unit
        log[1, length] = device
        length += 1
        apply_move(arrays, table, unit, target)
        saved += value
        crowded = most_crowded(arrays, table)
        if crowded < 0 and (saved > best or (saved == best and np.random.random() < 0.5)):
            best = saved
            best_length = length
        _enqueue_neighbours(arrays, table, queues, may_move, unit, overfull)
    for step in range(length - 1, best_length - 1, -1):
        apply_move(arrays, table, log[0, step], log[1, step])
    clear(queues)
    return best


@compiled_part
def _enqueue(arrays: Arrays, table: GainTable, queues: Queues, unit: int, overfull: float) -> None:
    target, value = best_target(arrays, table, unit, overfull)
    if target >= 0:
        put(queues, table.device_of[unit], unit, value)


@compiled_part
def _enqueue_neighbours(
    arrays: Arrays,
    table: GainTable,
    queues: Queues,
    may_move: Flags,
    unit: int,
    overfull: float,
) -> None:
    """The units that share a small net with a unit that has moved."""
    units, nets = arrays.units, arrays.nets
    for place in range(degree(units, unit)):
        net = net_at(units, unit, place)
        if not is_small(nets, net):
            continue
        if may_move[nets.producer[net]]:
            _enqueue(arrays, table, queues, nets.producer[net], overfull)
        for other in nets.pins[nets.pin_start[net] : nets.pin_start[net + 1]]:
            if may_move[other]:
                _enqueue(arrays, table, queues, other, overfull)


@compiled_part
def _feel(
    arrays: Arrays,
    table: GainTable,
    queues: Queues,
    may_move: Flags,
    free: Ints,
    device: int,
    overfull: float,
) -> None:
    """Some units of a device that the search has not met."""
    # units of an overfull device that are tried when the search knows none of them
    for _ in range(16):
        unit = free[np.random.randint(free.shape[0])]
        if may_move[unit] and table.device_of[unit] == device:
            _enqueue(arrays, table, queues, unit, overfull)


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
