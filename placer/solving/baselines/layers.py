"""Whole layers dealt out in stages along the depth of the model, as a person does it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from placer.problem.placement_problem import PlacementProblem
from placer.solving.baselines.tasks import DoesNotFitError, Room, accelerators
from placer.solving.compiled.arrays import Floats, Ints
from placer.solving.reduction.merging import merge_units
from placer.solving.search.depth import find_depths
from placer.solving.search.linear_split import split

_HALVINGS = 6
"""Of the range in which the least full stages are sought: down to a sixtieth of the cap."""


def layers(problem: PlacementProblem) -> tuple[int, ...]:
    """Contiguous stages along the depth of the model (:mod:`placer.solving.search.depth`), forward
    and backward ops of a layer together: on as few accelerators as hold them, the fullest of these
    as little full as can be, cut where the least bytes cross.

    Stages are of whole blocks if there are blocks and they fit, else of single groups.
    """
    room = Room(problem)
    devices = accelerators(problem)
    free = [u for u, allowed in enumerate(room.preferred) if set(devices) <= set(allowed)]
    chosen = set(free)
    for op, unit in enumerate(room.units.unit_of):
        if unit not in chosen:
            room.put(op, room.choices(op)[0])
    for root_of, position in _orders(problem, room, free):
        staged = _in_stages(room, free, root_of, position, devices)
        if staged is not None:
            for op, unit in enumerate(room.units.unit_of):
                if unit in chosen:
                    room.put(op, staged[unit])
            return room.placement()
    raise DoesNotFitError("no stages along the depth of the model fit")


def _orders(
    problem: PlacementProblem, room: Room, free: Sequence[int]
) -> Iterator[tuple[Ints, Floats]]:
    """What is dealt out as one, as the unit that stands for each, and where the units are: first
    whole blocks, then single units."""
    depths = find_depths(problem, room.units)
    alone = np.arange(room.units.unit_count)
    if depths.block is not None:
        first: dict[int, int] = {}
        root_of = alone.copy()
        for unit in free:
            root_of[unit] = first.setdefault(int(depths.block[unit]), unit)
        yield root_of, depths.block.astype(np.float64)
    for position in depths.orders():
        yield alone, position


def _in_stages(
    room: Room, free: Sequence[int], root_of: Ints, position: Floats, devices: Sequence[int]
) -> dict[int, int] | None:
    """The device of every free unit, ``None`` if no stages fit."""
    merged = merge_units(room.units, root_of.tolist())
    new_of = dict(zip(room.units.unit_of, merged.unit_of, strict=True))
    roots = sorted({int(root_of[unit]) for unit in free}, key=lambda unit: float(position[unit]))
    order = np.array([new_of[unit] for unit in roots], np.int64)
    left = np.array([row.capacity for row in room.units.rows], np.float64) - np.array(room.used)

    def staged(count: int, share: float) -> list[int] | None:
        return split(merged, order, devices[:count], share * left)

    # as few devices as hold all
    found, used = None, 0
    for used in range(1, len(devices) + 1):
        found = staged(used, 1.0)
        if found is not None:
            break
    if found is None:
        return None
    # and those as little full as can be
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        lighter = staged(used, middle)
        if lighter is None:
            low = middle
        else:
            found, high = lighter, middle
    device_at = dict(zip(order.tolist(), found, strict=True))
    return {unit: device_at[new_of[unit]] for unit in free}
