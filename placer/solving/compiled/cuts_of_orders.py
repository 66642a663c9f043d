"""Orders of the units, and contiguous segments of them cut where the least bytes cross."""

import numpy as np

from placer.solving.compiled.arrays import Arrays, Floats, Ints
from placer.solving.compiled.jit import compiled, compiled_part
from placer.solving.compiled.neighbours import is_small


@compiled
def clique_weights(arrays: Arrays) -> Floats:
    """``[unit, unit]``: what ties units; every net is a clique, its bytes divided among the ties of
    each unit."""
    nets = arrays.nets
    count = arrays.units.allowed.shape[0]
    weight = np.zeros((count, count))
    for net in range(nets.producer.shape[0]):
        first, last = nets.pin_start[net], nets.pin_start[net + 1]
        if not is_small(nets, net):
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
def cut(arrays: Arrays, order: Ints, starts: Ints) -> tuple[Ints, float]:
    """The segment of every unit of ``order`` (by position) for the least sum of what crosses the
    cuts; infinite if there are no segments that fit.

    ``starts[k]`` has the first start of the k-th segment, which may be empty, for every end; it
    never falls.  Dynamic programming over the segments: ``best[j]`` is the least cost of giving the
    first j units to those so far.
    """
    crossing = crossing_bytes(arrays, order)
    length = order.shape[0]
    best = np.full(length + 1, np.inf)
    best[0] = 0.0
    choice = np.zeros(starts.shape, np.int64)
    for step in range(starts.shape[0]):
        best = _append(best, starts[step], crossing, choice[step])
    segment = np.zeros(length, np.int64)
    if np.isfinite(best[length]):
        end = length
        for step in range(starts.shape[0] - 1, -1, -1):
            start = choice[step, end]
            segment[start:end] = step
            end = start
    return segment, float(best[length])


@compiled_part
def _append(best: Floats, starts: Ints, crossing: Floats, choice: Ints) -> Floats:
    """The costs with one more segment, which may be empty; ``choice`` gets where it starts.

    The least cost of a start is kept in a monotone queue.
    """
    length = best.shape[0]
    entry = best + crossing
    result = best.copy()
    window = np.zeros(length, np.int64)
    head = tail = 0
    for end in range(1, length):
        choice[end] = end
        while tail > head and entry[window[tail - 1]] >= entry[end - 1]:
            tail -= 1
        window[tail] = end - 1
        tail += 1
        while head < tail and window[head] < starts[end]:
            head += 1
        if head < tail and entry[window[head]] < result[end]:
            result[end] = entry[window[head]]
            choice[end] = window[head]
    return result


@compiled
def first_starts(arrays: Arrays, order: Ints, room: Floats) -> Ints:
    """For every end, the first start of a segment of ``order`` that keeps the rows of a device with
    ``room[row]`` bytes left; they never fall."""
    weights = arrays.units.weights
    left = room.copy()
    starts = np.zeros(order.shape[0] + 1, np.int64)
    start = 0
    for end in range(1, order.shape[0] + 1):
        _add_weights(weights, order[end - 1], -1.0, left)
        while start < end and left.min() < 0.0:
            _add_weights(weights, order[start], 1.0, left)
            start += 1
        starts[end] = start
    return starts


@compiled_part
def _add_weights(weights: Floats, unit: int, sign: float, total: Floats) -> None:
    for row in range(total.shape[0]):
        total[row] += sign * weights[row, unit]


@compiled_part
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
