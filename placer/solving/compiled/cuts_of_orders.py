"""Orders of the units, and contiguous segments of them cut where the least bytes cross."""

from __future__ import annotations

import numpy as np

from placer.solving.compiled.arrays import Arrays, Floats, Ints
from placer.solving.compiled.jit import compiled
from placer.solving.compiled.laplacian import MOST_PINS


@compiled
def clique_weights(arrays: Arrays) -> Floats:
    """``[unit, unit]``: what ties units; every net is a clique, its bytes divided among the ties of
    each unit."""
    nets = arrays.nets
    count = arrays.units.allowed.shape[0]
    weight = np.zeros((count, count))
    for net in range(nets.producer.shape[0]):
        first, last = nets.pin_start[net], nets.pin_start[net + 1]
        if last - first >= MOST_PINS:
            continue
        share = nets.bytes[net] / (last - first)
        for one in range(first, last):
            for other in range(first - 1, one):
                a = nets.pins[one]
                b = nets.producer[net] if other < first else nets.pins[other]
                weight[a, b] += share
                weight[b, a] += share
    return weight


@compiled
def cut_order(arrays: Arrays, order: Ints, devices: Ints, room: Floats, used: Floats) -> Ints:
    """The device of each unit of ``order`` (by position); empty if no segments fit.

    Device ``devices[k]`` takes the k-th segment, which may be empty; beside ``used[row, device]``
    it may fill the row up to ``room[row, device]``.  Minimises the sum, over the cuts, of the bytes
    of all nets that cross it, by dynamic programming over (devices used, units placed).
    """
    count = order.shape[0]
    crossing = crossing_bytes(arrays, order)
    weights = arrays.units.weights
    best = np.full(count + 1, np.inf)
    best[0] = 0.0
    left = np.zeros(weights.shape[0])
    choices = np.zeros((devices.shape[0], count + 1), np.int64)
    for stage in range(devices.shape[0]):
        device = devices[stage]
        extended = best.copy()
        choices[stage] = np.arange(count + 1)
        for row in range(left.shape[0]):
            left[row] = room[row, device] - used[row, device]
        begin = 0
        for end in range(1, count + 1):
            _add_weights(weights, order[end - 1], -1.0, left)
            while begin < end and left.min() < 0.0:
                _add_weights(weights, order[begin], 1.0, left)
                begin += 1
            for start in range(begin, end):
                value = best[start] + crossing[start]
                if value < extended[end]:
                    extended[end] = value
                    choices[stage, end] = start
        best = extended
    if best[count] == np.inf:
        return np.zeros(0, np.int64)
    device_at = np.zeros(count, np.int64)
    end = count
    for stage in range(devices.shape[0] - 1, -1, -1):
        device_at[choices[stage, end] : end] = devices[stage]
        end = choices[stage, end]
    return device_at


@compiled
def _add_weights(weights: Floats, unit: int, sign: float, total: Floats) -> None:
    for row in range(total.shape[0]):
        total[row] += sign * weights[row, unit]


@compiled
def crossing_bytes(arrays: Arrays, order: Ints) -> Floats:
    """At index i, the bytes of the nets with units both before position i and from i on."""
    nets = arrays.nets
    place = np.full(arrays.units.allowed.shape[0], -1, np.int64)
    for position in range(order.shape[0]):
        place[order[position]] = position
    change = np.zeros(order.shape[0] + 2)
    for net in range(nets.producer.shape[0]):
        low = high = place[nets.producer[net]]
        for pin in nets.pins[nets.pin_start[net] : nets.pin_start[net + 1]]:
            at = place[pin]
            if at >= 0:
                low = at if low < 0 else min(low, at)
                high = max(high, at)
        if low < high:
            change[low + 1] += nets.bytes[net]
            change[high + 1] -= nets.bytes[net]
    return np.cumsum(change)[: order.shape[0] + 1]
