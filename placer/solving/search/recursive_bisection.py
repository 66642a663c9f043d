"""Placements from nothing: the devices are halved, and the units with them, until one is left.

Each bisection is multilevel: at its coarsest level contiguous segments of several orders of the
units, made to fit and refined, at every other level refined again.  A cut that is cheap and
balanced is far easier to find for two halves than for all devices at once (H. D. Simon, S.-H. Teng,
How Good is Recursive Bisection?, SIAM J. Sci. Comput. 18 (1997), doi:10.1137/S1064827593255135);
what that costs is won back by moves between all devices.
"""

import numpy as np

from placer.solving.compiled.arrays import Arrays, Floats, Ints
from placer.solving.compiled.coarsening import coarser_levels
from placer.solving.compiled.gain_table import excess, transfer_of
from placer.solving.compiled.parts import part_of
from placer.solving.compiled.unit_moves import refine_transfer, relieve


def refine(arrays: Arrays, device_of: Ints, random: np.random.Generator) -> Ints:
    """The placement after moves of single units; it keeps all rows if ``device_of`` does."""
    free = np.flatnonzero(arrays.units.allowed.sum(axis=1) > 1)
    seed = int(random.integers(1 << 31))
    # 25 units that a search of single moves begins at, which ends 60 moves after its best; a device
    # may hold 1.1 times its cap meanwhile
    return refine_transfer(arrays, device_of, free, seed, 25, 60, 1.1)


def bisect_recursively(arrays: Arrays, sizes: Floats, random: np.random.Generator) -> Ints:
    """One device per unit; rows may be broken where they are tight.

    ``sizes`` is what is balanced when units are joined.
    """
    devices = np.arange(arrays.units.allowed.shape[1])
    return redraw(arrays, sizes, np.zeros(len(sizes), np.int64), devices, random)


def redraw(
    arrays: Arrays, sizes: Floats, device_of: Ints, devices: Ints, random: np.random.Generator
) -> Ints:
    """The placement with all units of some devices placed among them anew.

    What a net costs is the sum of what it costs within a set of devices and without, up to a
    constant: so this is a problem of its own.
    """
    device_of = device_of.copy()
    members = np.flatnonzero(np.isin(device_of, devices))
    devices = _some_of(arrays, members, devices, random)
    _bisect_all(arrays, sizes, device_of, members, devices, random)
    return finish(arrays, device_of, random)


def finish(arrays: Arrays, device_of: Ints, random: np.random.Generator) -> Ints:
    """The placement made to keep all rows, where moves of single units can, and improved."""
    free = np.flatnonzero(arrays.units.allowed.sum(axis=1) > 1)
    return refine(arrays, relieve(arrays, device_of, free), random)


def _some_of(arrays: Arrays, members: Ints, devices: Ints, random: np.random.Generator) -> Ints:
    """The devices in any order, some of them left out at times: a placement on fewer devices has
    fewer cuts, but is not found by halvings that give every device its part.

    Those that are left out are not needed for the weight of ``members``, nor by any of them alone.
    """
    devices = random.permutation(devices)
    if random.random() >= 0.5:  # the other placements may leave devices out
        return devices
    weight = arrays.units.weights[:, members].sum(axis=1)
    allowed = arrays.units.allowed[members]
    for _ in range(int(random.integers(len(devices)))):
        fewer = devices[:-1]
        holds = (arrays.devices.capacity[:, fewer].sum(axis=1) >= weight).all()
        if not holds or not allowed[:, fewer].any(axis=1).all():
            break
        devices = fewer
    return devices


def _bisect_all(
    arrays: Arrays,
    sizes: Floats,
    device_of: Ints,
    members: Ints,
    devices: Ints,
    random: np.random.Generator,
) -> None:
    """Place ``members`` on ``devices``, in ``device_of``."""
    waiting = [(members, devices)]
    while waiting:
        members, devices = waiting.pop()
        if len(devices) == 1 or not len(members):
            device_of[members] = devices[0]
            continue
        halves = devices[: len(devices) // 2], devices[len(devices) // 2 :]
        part = part_of(arrays, members, halves, _fullness(arrays, members, halves, random))
        side = _bisect(part, sizes[members], random)
        waiting += [(members[side == number], half) for number, half in enumerate(halves)]


def _fullness(
    arrays: Arrays, members: Ints, halves: tuple[Ints, Ints], random: np.random.Generator
) -> float:
    """How full the two halves may get, as a share of their capacity."""
    if random.random() < 0.3:  # these have all slack, not their part of it
        return 1.0
    weight = arrays.units.weights[:, members].sum(axis=1)
    capacity = arrays.devices.capacity[:, np.concatenate(halves)].sum(axis=1)
    used = float((weight / np.maximum(1.0, capacity)).max(initial=0.0))
    halvings = np.ceil(np.log2(sum(map(len, halves))))
    return min(1.0, float(used ** (1.0 - 1.0 / halvings)))


def _bisect(part: Arrays, sizes: Floats, random: np.random.Generator) -> Ints:
    """The side of every unit of a problem with two devices."""
    together = np.zeros(len(sizes), np.int64)
    coarser = coarser_levels(
        part,
        sizes,
        0.1 * sizes.sum(),  # the most in one unit
        80,  # units that are drawn
        together,
        lambda: int(random.integers(1 << 31)),
    )
    levels, maps = [part], list[Ints]()
    for level, new_of in coarser:
        levels.append(level)
        maps.append(new_of)
    side = _best_start(levels[-1], random)
    for level, new_of in zip(reversed(levels[:-1]), reversed(maps), strict=True):
        side = refine(level, side[new_of], random)
    return side


def _best_start(part: Arrays, random: np.random.Generator) -> Ints:
    """The best of several placements of few units: each an order cut where the least bytes cross,
    made to fit and improved by moves of single units."""
    allowed = part.units.allowed
    side: Ints = np.argmax(allowed, axis=1).astype(np.int64)
    members = np.flatnonzero(allowed.all(axis=1))
    others = np.flatnonzero(~allowed.all(axis=1))
    room = part.devices.capacity.copy()
    np.subtract.at(room.T, side[others], part.units.weights[:, others].T)
    best, rank = side, _rank(part, side)
    for number in range(5):  # as they come, and at random
        order = random.permutation(members) if number else members
        sequence = random.permutation(2)
        cut = _cheapest_cut(part, order, room[:, sequence])
        drawn = side.copy()
        drawn[order] = sequence[(np.arange(len(order)) >= cut).astype(int)]
        drawn = refine(part, relieve(part, drawn, members), random)
        best, rank = min((best, rank), (drawn, _rank(part, drawn)), key=lambda pair: pair[1])
    return best


def _cheapest_cut(part: Arrays, order: Ints, room: Floats) -> int:
    """How many units of the order are on the first of two devices with ``room[row, device]``, so
    that both have room and the least bytes cross; where there is none, so that it is least over."""
    nets, count = part.nets, len(order)
    place = np.full((2, len(part.units.allowed)), [[count], [-1]])
    place[:, order] = np.arange(count)
    of = np.repeat(np.arange(len(nets.producer)), np.diff(nets.pin_start))
    low, high = place[:, nets.producer]
    np.minimum.at(low, of, place[0, nets.pins])
    np.maximum.at(high, of, place[1, nets.pins])
    crossed = low < high
    change = np.zeros(count + 2)
    np.add.at(change, low[crossed] + 1, nets.bytes[crossed])
    np.add.at(change, high[crossed] + 1, -nets.bytes[crossed])
    weight = np.cumsum(part.units.weights[:, order], axis=1)
    before = np.concatenate((np.zeros((len(room), 1)), weight), axis=1)
    after = before[:, -1:] - before
    over = np.maximum(before - room[:, :1], after - room[:, 1:]).max(axis=0, initial=0.0)
    return int(np.lexsort((np.cumsum(change)[: count + 1], np.maximum(0.0, over)))[0])


def _rank(part: Arrays, device_of: Ints) -> tuple[float, float]:
    """Ranks bisections: those that break a row come last, then the transfer counts."""
    return float(excess(part, device_of)), float(transfer_of(part, device_of))
