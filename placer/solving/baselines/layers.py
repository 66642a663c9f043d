"""Whole layers dealt out in stages along the depth of the model, as a person does it."""

from collections.abc import Mapping, Sequence

import numpy as np

from placer.prediction.scoring import cost
from placer.problem.placement_problem import PlacementProblem
from placer.solving.baselines.tasks import DoesNotFitError, Room, accelerators
from placer.solving.compiled.arrays import Floats, Ints
from placer.solving.reduction.unit_problem import merge_units
from placer.solving.search.depth import find_depths
from placer.solving.search.linear_split import LinearSplit


def layers(problem: PlacementProblem) -> tuple[int, ...]:
    """Contiguous stages along the depth of the model (:mod:`placer.solving.search.depth`), forward
    and backward ops of a layer together: on as few accelerators as hold them, the fullest of these
    as little full as can be, cut where the least bytes cross.

    Stages are of whole blocks if there are blocks and they fit, else of single groups; of two ways
    to divide a model into blocks, the one that sends less.
    """
    room = Room(problem)
    devices = accelerators(problem)
    held = set(room.units.unit_of)  # and not the one for what is outside
    free = [u for u in sorted(held) if set(devices) <= set(room.preferred[u])]
    chosen = set(free)
    for op, unit in enumerate(room.units.unit_of):
        if unit not in chosen:
            room.put(op, room.choices(op)[0])
    depths = find_depths(problem, room.units)
    alone = np.arange(room.units.unit_count)
    whole = [(_roots(block, free), block.astype(np.float64)) for block in depths.blocks]
    for orders in (whole, [(alone, position) for position in depths.orders()]):
        found = [_in_stages(room, free, *order, devices) for order in orders]
        staged = [each for each in found if each is not None]
        if staged:
            placements = [_with_stages(room, each) for each in staged]
            return min(placements, key=lambda device_of: cost(problem, device_of))
    raise DoesNotFitError("no stages along the depth of the model fit")


def _roots(block: Ints, free: Sequence[int]) -> Ints:
    """The unit that stands for each, the first of its block for one of ``free``."""
    first: dict[int, int] = {}
    root_of = np.arange(len(block))
    for unit in free:
        root_of[unit] = first.setdefault(int(block[unit]), unit)
    return root_of


def _with_stages(room: Room, staged: Mapping[int, int]) -> tuple[int, ...]:
    """One device number per op; units without a stage are where they were put."""
    devices = (staged.get(unit, room.device_of[unit]) for unit in room.units.unit_of)
    return tuple(device for device in devices if device is not None)


def _in_stages(
    room: Room, free: Sequence[int], root_of: Ints, position: Floats, devices: Sequence[int]
) -> dict[int, int] | None:
    """The device of every free unit, ``None`` if no stages fit."""
    merged = merge_units(room.units, root_of.tolist())
    new_of = dict(zip(room.units.unit_of, merged.unit_of, strict=True))
    roots = sorted({int(root_of[unit]) for unit in free}, key=lambda unit: float(position[unit]))
    order = np.array([new_of[unit] for unit in roots], np.int64)
    left = np.array([row.capacity for row in room.units.rows], np.float64) - np.array(room.used)

    # as few devices as hold all
    stages = LinearSplit(merged, order)
    found, used = stages.over_fewest(devices, left)
    if found is None:
        return None
    # and those as little full as can be
    low, high = 0.0, 1.0
    for _ in range(6):  # down to a sixtieth of the cap
        middle = (low + high) / 2.0
        lighter = stages.over(devices[:used], middle * left)
        if lighter is None:
            low = middle
        else:
            found, high = lighter, middle
    device_at = dict(zip(order.tolist(), found, strict=True))
    return {unit: device_at[new_of[unit]] for unit in free}
