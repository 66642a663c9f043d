"""Annealing of transfer and of what devices hold above their caps, and units dealt out in line.

What is above a cap costs; how much rises while something is above and falls while nothing is, so
that the search crosses the border of what fits again and again (F. Glover, Tabu Search - Part I,
ORSA Journal on Computing 1 (1989), doi:10.1287/ijoc.1.3.190, on strategic oscillation).  Where no
accelerator has room, the price drives out to the host what costs least per byte there.
"""

import heapq

import numpy as np

from placer.machine_code.jit import compiled, compiled_part
from placer.solving.compiled.arrays import Arrays, Flags, Floats, Ints, Nets
from placer.solving.compiled.gain_table import apply_move, gain, new_gain_table, transfer_of
from placer.solving.compiled.held_bytes import (
    PRICES,
    TINY,
    Held,
    excess_of,
    hold,
    is_better,
    leave,
    look,
    next_price,
    shift,
    take,
)
from placer.solving.compiled.neighbours import degree, has_nets, neighbour_device, net_at


@compiled
def anneal_held(
    arrays: Arrays,
    held: Held,
    limit: Floats,
    moments: int,
    device_of: Ints,
    free: Ints,
    seed: int,
    steps: int,
    temperature: float,
    cooled: float,
    price: float,
) -> tuple[Ints, float, float]:
    """The cheapest placement met that holds nothing above ``limit[device]``, or the one that holds
    the least above; with its cost and its excess (bytes, summed over moments).

    ``temperature`` in bytes falls geometrically over the ``steps`` to the share ``cooled`` of it;
    ``price`` is what a byte above a limit at one moment costs at first, in bytes of transfer.
    """
    np.random.seed(seed)
    table = new_gain_table(arrays, device_of)
    state = device_of.copy()
    devices = limit.shape[0]
    in_use, change = hold(held, state, devices, moments), np.zeros((2, moments + 1))
    excess = excess_of(in_use, limit)
    cost = transfer_of(arrays, state)
    best, best_cost, best_excess = state.copy(), cost, excess
    heat, cooling = temperature, cooled ** (1.0 / max(1, steps))
    first_price, period = price, max(1, steps // PRICES)
    for step in range(steps):
        heat *= cooling
        if step % period == 0:
            price = next_price(price, first_price, 1e9 * first_price, excess)  # above, anew
        unit = free[np.random.randint(free.shape[0])]
        source, target = state[unit], np.random.randint(devices)
        if np.random.random() < 0.85 and has_nets(arrays.units, unit):  # the rest are uniform
            target = neighbour_device(arrays, state, unit)
        if target == source or not arrays.units.allowed[unit, target]:
            continue
        more = -gain(arrays, table, unit, target)
        most = -heat * np.log(np.random.random())
        # a move frees no more than what is above by now: most moves need no closer look
        if more - price * excess > most:
            continue
        above, first, last = look(held, state, in_use, limit, unit, target, change)
        if more + price * above > most:
            leave(change, first, last)
            continue
        take(state, in_use, unit, target, change, first, last)
        apply_move(arrays, table, unit, target)
        cost += more
        excess += above
        if is_better(excess, cost, best_excess, best_cost):
            best[:] = state
            best_cost, best_excess = cost, excess
    return best, best_cost, best_excess


@compiled
def line_up(arrays: Arrays, first: int, position: Floats) -> Ints:
    """The units in an order in which always the one comes next that shares the largest part of its
    bytes with those before; where none shares any, the one of least ``position``."""
    units, nets = arrays.units, arrays.nets
    count = position.shape[0]
    total, shared = np.zeros(count), np.zeros(count)
    for unit in range(count):
        for place in range(degree(units, unit)):
            total[unit] += nets.bytes[net_at(units, unit, place)]
    is_reached, is_done = np.zeros(nets.producer.shape[0], np.bool_), np.zeros(count, np.bool_)
    order, rest = np.zeros(count, np.int64), np.argsort(position)
    heap = [(0.0, 0.0, first)]
    at, number = 0, 0
    while number < count:
        if len(heap) == 0:
            while is_done[rest[at]]:
                at += 1
            heapq.heappush(heap, (0.0, 0.0, rest[at]))
        unit = heapq.heappop(heap)[2]
        if is_done[unit]:
            continue
        is_done[unit] = True
        order[number] = unit
        number += 1
        for place in range(degree(units, unit)):
            net = net_at(units, unit, place)
            if not is_reached[net]:
                is_reached[net] = True
                _queue(nets, net, is_done, shared, total, position, heap)
    return order


@compiled_part
def _queue(
    nets: Nets,
    net: int,
    is_done: Flags,
    shared: Floats,
    total: Floats,
    position: Floats,
    heap: list[tuple[float, float, int]],
) -> None:
    """The units of a net that has just been reached share more with those before."""
    for place in range(nets.pin_start[net] - 1, nets.pin_start[net + 1]):
        unit = nets.producer[net] if place < nets.pin_start[net] else nets.pins[place]
        if not is_done[unit] and total[unit] > 0.0:
            shared[unit] += nets.bytes[net]
            heapq.heappush(heap, (-shared[unit] / total[unit], position[unit], unit))


@compiled
def deal_out(
    arrays: Arrays,
    held: Held,
    limit: Floats,
    moments: int,
    device_of: Ints,
    order: Ints,
    sequence: Ints,
) -> Ints:
    """Units in their order to device after device of ``sequence``, each until it is full; what is
    left over goes to the last one, above its limit.  What may not be on the device whose turn it is
    goes where ``device_of`` says."""
    devices = limit.shape[0]
    state, limits = device_of.copy(), np.full(devices + 1, np.inf)
    limits[:devices] = limit
    state[order] = devices  # nowhere
    in_use, change = hold(held, state, devices + 1, moments), np.zeros((2, moments + 1))
    place = 0
    for unit in order:
        target = sequence[place]
        if arrays.units.allowed[unit, target]:
            above = shift(held, state, in_use, limits, unit, target, change)
            if above <= TINY or place + 1 == sequence.shape[0]:
                continue
            place += 1
            if arrays.units.allowed[unit, sequence[place]]:
                shift(held, state, in_use, limits, unit, sequence[place], change)
                continue
        shift(held, state, in_use, limits, unit, device_of[unit], change)
    return state
