"""Placements from nothing: the devices are halved, and the units with them, until one is left.

Each bisection is multilevel: at its coarsest level contiguous segments of several orders of the
units, made to fit and refined, at every other level refined again.  A cut that is cheap and
balanced is far easier to find for two halves than for all devices at once (H. D. Simon, S.-H. Teng,
How Good is Recursive Bisection?, SIAM J. Sci. Comput. 18 (1997), doi:10.1137/S1064827593255135);
what that costs is won back by moves between all devices.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from placer.solving.compiled.arrays import Arrays, Floats, Ints
from placer.solving.compiled.coarsening import coarser_levels
from placer.solving.compiled.cuts_of_orders import clique_weights, cut, first_starts
from placer.solving.compiled.gain_table import excess, transfer_of
from placer.solving.compiled.parts import part_of
from placer.solving.compiled.unit_moves import refine_transfer, relieve


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectionSchedule:
    """How one placement is drawn and refined."""

    coarsest_units: int = 80  # whose orders are cut
    cluster_share: float = 0.1  # of all sizes, at most, in one unit
    modes: int = 3  # of the Laplacian, each an order
    mixes: int = 2  # random sums of modes
    seeds: int = 25  # units that a search of single moves begins at
    patience: int = 60  # moves after its best until it ends
    overfull: float = 1.1  # times its cap that a device may hold meanwhile
    tightness: tuple[float, ...] = (1.0, 1.1)  # how full halves are cut, if nothing fits before
    roomy_share: float = 0.3  # of bisections have all slack, not their part of it
    fewer_share: float = 0.5  # of placements may leave devices out


_SCHEDULE = BisectionSchedule()


def refine(arrays: Arrays, device_of: Ints, random: np.random.Generator) -> Ints:
    """The placement after moves of single units; it keeps all rows if ``device_of`` does."""
    free = np.flatnonzero(arrays.units.allowed.sum(axis=1) > 1)
    seed = int(random.integers(1 << 31))
    of = _SCHEDULE
    return refine_transfer(arrays, device_of, free, seed, of.seeds, of.patience, of.overfull)


def bisect_recursively(arrays: Arrays, sizes: Floats, random: np.random.Generator) -> Ints:
    """One device per unit; rows may be broken where they are tight.

    ``sizes`` is what is balanced when units are joined.
    """
    members = np.arange(len(sizes))
    device_of = np.zeros(len(sizes), np.int64)
    devices = _some_of(arrays, members, np.arange(arrays.units.allowed.shape[1]), random)
    _bisect_all(arrays, sizes, device_of, members, devices, random)
    return finish(arrays, device_of, random)


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
    if random.random() >= _SCHEDULE.fewer_share:
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
    if random.random() < _SCHEDULE.roomy_share:
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
        _SCHEDULE.cluster_share * sizes.sum(),
        _SCHEDULE.coarsest_units,
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
    """The best of several placements of few units."""
    allowed = part.units.allowed
    side: Ints = np.argmax(allowed, axis=1).astype(np.int64)
    members = np.flatnonzero(allowed.all(axis=1))
    others = np.flatnonzero(~allowed.all(axis=1))
    used = np.zeros_like(part.devices.capacity)
    np.add.at(used.T, side[others], part.units.weights[:, others].T)
    best, rank = side, _rank(part, side)
    for position in _positions(part, random):
        order = members[np.argsort(position[members], kind="stable")]
        sequence = random.permutation(2)
        for tightness in _SCHEDULE.tightness:
            room = tightness * part.devices.capacity - used
            starts = [first_starts(part, order, room[:, device]) for device in sequence]
            segment, cost = cut(part, order, np.stack(starts))
            if not np.isfinite(cost):
                continue
            drawn = side.copy()
            drawn[order] = sequence[segment]
            drawn = refine(part, relieve(part, drawn, members), random)
            best, rank = min((best, rank), (drawn, _rank(part, drawn)), key=lambda pair: pair[1])
            break
    return best


def _rank(part: Arrays, device_of: Ints) -> tuple[float, float]:
    """Ranks bisections: those that break a row come last, then the transfer counts."""
    return float(excess(part, device_of)), float(transfer_of(part, device_of))


def _positions(part: Arrays, random: np.random.Generator) -> list[Floats]:
    """Some orders of the units, as positions on a line."""
    count = len(part.units.allowed)
    found = [np.arange(count, dtype=np.float64), random.random(count)]
    if count > 2:
        modes = slow_modes(clique_weights(part), _SCHEDULE.modes)
        found += [*modes, *(random.normal(size=(_SCHEDULE.mixes, len(modes))) @ modes)]
    return found


Matrix = npt.NDArray[np.float64]


def slow_modes(weight: Matrix, count: int) -> Matrix:
    """``[mode, unit]``: at most ``count`` positions in which units that share many bytes lie close
    together.

    ``weight[a, b]`` is what ties two units, zero on the diagonal.  The eigenvectors of the smallest
    eigenvalues of the normalised Laplacian (M. Fiedler, A property of eigenvectors of nonnegative
    symmetric matrices and its application to graph theory, 1975), the first of which is the same
    everywhere.
    """
    degree = weight.sum(axis=1)
    scale = 1.0 / np.sqrt(np.where(degree > 0.0, degree, 1.0))
    laplacian = np.eye(len(weight)) - scale[:, None] * weight * scale[None, :]
    vectors = np.linalg.eigh(laplacian)[1]
    modes = vectors[:, 1 : 1 + count] * scale[:, None]
    # the largest entry is positive, so that rounding cannot turn an order round
    largest = modes[np.argmax(np.abs(modes), axis=0), np.arange(modes.shape[1])]
    return np.ascontiguousarray((modes * np.where(largest < 0.0, -1.0, 1.0)).T)
