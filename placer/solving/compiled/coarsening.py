"""Coarser problems: units that share many bytes become one."""

from collections.abc import Callable, Iterator

import numpy as np

from placer.machine_code.jit import compiled, compiled_part
from placer.solving.compiled.arrays import Arrays, Floats, Ints, Nets, Units, incidence
from placer.solving.compiled.neighbours import degree, is_small, net_at


def coarser_levels(
    arrays: Arrays,
    size: Floats,
    most: float,
    fewest: int,
    apart: Ints,
    next_seed: Callable[[], int],
) -> Iterator[tuple[Arrays, Ints]]:
    """Problems of about half the units of the one before (``fewest`` at least), each with the new
    number of every unit.

    ``size[unit]`` adds up; no cluster exceeds ``most``.  Units with different ``apart`` or
    different allowed devices are never joined.
    """
    while len(size) > fewest:
        root = _cluster(arrays, size, most, max(fewest, len(size) // 2), next_seed(), apart)
        _join_isolated(arrays, size, most, apart, root)
        new_of = np.unique(root, return_inverse=True)[1].astype(np.int64)
        if new_of.max() + 1 > 0.9 * len(size):  # it hardly shrinks
            return
        arrays = contract_units(arrays, new_of)
        size = np.asarray(np.bincount(new_of, size), np.float64)
        apart = carry(apart, new_of)
        yield arrays, new_of


def carry(values: Ints, new_of: Ints) -> Ints:
    """The value of each new unit, all of whose old ones have the same."""
    carried: Ints = np.zeros(int(new_of.max()) + 1, np.int64)
    carried[new_of] = values
    return carried


@compiled
def _cluster(arrays: Arrays, size: Floats, most: float, least: int, seed: int, apart: Ints) -> Ints:
    """The root of every unit: each joins the neighbour with which it shares most, give or take."""
    np.random.seed(seed)
    units, nets = arrays.units, arrays.nets
    count = size.shape[0]
    root = np.arange(count)
    weight = size.copy()
    used = units.weights.copy()
    limits = np.array([row.max() for row in arrays.devices.capacity])
    is_root = np.zeros(count, np.bool_)
    rating = np.zeros(count)
    left = count
    for unit in np.random.permutation(count):
        if left <= least:
            break
        if is_root[unit]:
            continue
        touched = _rate(units, nets, unit, root, apart, rating)
        best = -1
        most_shared = 0.0
        for other in touched:
            shared = rating[other] * (0.5 + np.random.random())
            rating[other] = 0.0
            fits = weight[other] + weight[unit] <= most
            for row in range(limits.shape[0]):
                fits = fits and used[row, other] + used[row, unit] <= limits[row]
            if fits and shared > most_shared and _same_devices(units, unit, other):
                most_shared = shared
                best = other
        if best >= 0:
            root[unit] = best
            is_root[best] = True
            weight[best] += weight[unit]
            for row in range(limits.shape[0]):
                used[row, best] += used[row, unit]
            left -= 1
    return root


@compiled
def _join_isolated(arrays: Arrays, size: Floats, most: float, apart: Ints, root: Ints) -> None:
    """Units that nothing small ties to another become clusters of their own kind, up to ``most``;
    hundreds of them would otherwise end the levels long before what is tied is coarse."""
    units = arrays.units
    last = [np.int64(0) for _ in range(0)]  # the newest cluster of every kind
    total = np.zeros(size.shape[0])
    used = units.weights.copy()
    limits = np.array([row.max() for row in arrays.devices.capacity])
    for unit in range(size.shape[0]):
        if _is_tied(arrays, unit):
            continue
        kind = -1
        for index in range(len(last)):
            if apart[last[index]] == apart[unit] and _same_devices(units, int(last[index]), unit):
                kind = index
        if kind < 0:
            last.append(np.int64(unit))
        else:
            fits = total[last[kind]] + size[unit] <= most
            for row in range(limits.shape[0]):
                fits = fits and used[row, last[kind]] + used[row, unit] <= limits[row]
            if fits:
                root[unit] = last[kind]
                used[:, last[kind]] += used[:, unit]
            else:
                last[kind] = np.int64(unit)
        total[root[unit]] += size[unit]


@compiled_part
def _is_tied(arrays: Arrays, unit: int) -> bool:
    """Whether the unit shares a net with few others."""
    for place in range(degree(arrays.units, unit)):
        if is_small(arrays.nets, net_at(arrays.units, unit, place)):
            return True
    return False


@compiled_part
def _rate(units: Units, nets: Nets, unit: int, root: Ints, apart: Ints, rating: Floats) -> Ints:
    """The roots that share a small net with a unit; ``rating`` gets the bytes per net size."""
    touched = [np.int64(0) for _ in range(0)]
    for place in range(degree(units, unit)):
        net = net_at(units, unit, place)
        if not is_small(nets, net):
            continue
        first, last = nets.pin_start[net], nets.pin_start[net + 1]
        shared = (nets.bytes[net] + 1e-9) / (last - first)
        for index in range(first - 1, last):
            pin = nets.producer[net] if index < first else nets.pins[index]
            other = root[pin]
            if other != unit and apart[other] == apart[unit]:
                if rating[other] == 0.0:
                    touched.append(other)
                rating[other] += shared
    return np.array(touched, dtype=np.int64)


@compiled_part
def _same_devices(units: Units, one: int, other: int) -> bool:
    for device in range(units.allowed.shape[1]):
        if units.allowed[one, device] != units.allowed[other, device]:
            return False
    return True


def contract_units(arrays: Arrays, new_of: Ints) -> Arrays:
    """The problem in which units with the same number in ``new_of`` are one; parallel nets are
    summed."""
    units, nets, devices = arrays
    count = int(new_of.max()) + 1 if len(new_of) else 0
    seconds = np.zeros((count, units.cost.shape[1]))
    np.add.at(seconds, new_of, units.cost)
    weights = np.zeros((units.weights.shape[0], count))
    for row, values in enumerate(units.weights):
        np.add.at(weights[row], new_of, values)
    allowed = np.ones((count, units.allowed.shape[1]), np.bool_)
    np.logical_and.at(allowed, new_of, units.allowed)
    merged = _merge_nets(nets, new_of, count)
    return Arrays(Units(seconds, weights, allowed, *incidence(count, merged)), merged, devices)


def _merge_nets(nets: Nets, new_of: Ints, count: int) -> Nets:
    """The nets between the new units.  Nets are taken as equal if random 64-bit sums over their
    ends are: among a hundred thousand nets a mistake has a chance of one in a billion, and would
    only mislead a heuristic."""
    pin_start, pins = _relabel(nets.producer, nets.pin_start, nets.pins, new_of, count)
    sizes = np.diff(pin_start)
    kept = np.flatnonzero(sizes)
    producer = new_of[nets.producer]
    code = np.random.default_rng(count).integers(1 << 62, size=2 * count, dtype=np.int64)
    sums = np.concatenate(([0], np.cumsum(code[pins])))
    key = (sums[pin_start[1:]] - sums[pin_start[:-1]] + code[count + producer])[kept]
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    chosen = kept[first]
    chosen_sizes = sizes[chosen]
    start = np.concatenate(([0], np.cumsum(chosen_sizes))).astype(np.int64)
    places = np.repeat(pin_start[chosen] - start[:-1], chosen_sizes) + np.arange(start[-1])
    return Nets(
        producer[chosen],
        start,
        pins[places],
        _sums(nets.bytes[kept], group, len(first)),
        _sums(nets.messages[kept], group, len(first)),
    )


def _sums(values: Floats, group: Ints, count: int) -> Floats:
    return np.asarray(np.bincount(group, values, minlength=count), np.float64)


@compiled
def _relabel(
    producer: Ints, pin_start: Ints, pins: Ints, new_of: Ints, count: int
) -> tuple[Ints, Ints]:
    """The pins of every net under their new numbers, none twice, none the producer."""
    seen = np.full(count, -1, np.int64)
    start = np.zeros(pin_start.shape[0], np.int64)
    kept = np.zeros(pins.shape[0], np.int64)
    length = 0
    for net in range(producer.shape[0]):
        seen[new_of[producer[net]]] = net
        for place in range(pin_start[net], pin_start[net + 1]):
            unit = new_of[pins[place]]
            if seen[unit] != net:
                seen[unit] = net
                kept[length] = unit
                length += 1
        start[net + 1] = length
    return start, kept[:length]
