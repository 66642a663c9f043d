"""Making a placement fit: units leave devices that hold too much, the cheapest first."""

from __future__ import annotations

from placer.solving.search.occupancy import Occupancy


def repair(occupancy: Occupancy) -> bool:
    """Whether a complete placement could be made to keep every row, by moving units in place.

    Every move takes weight off an overfull device and onto one where it fits, so this ends after
    at most one move per unit and device.
    """
    while True:
        overfull = _most_overfull(occupancy)
        if overfull is None:
            return True
        if not _relieve(occupancy, *overfull):
            return False


def _most_overfull(occupancy: Occupancy) -> tuple[int, int] | None:
    """The (row, device) that is furthest above its capacity, or ``None``."""
    excess = {
        (number, device): load - capacity
        for number, row in enumerate(occupancy.problem.rows)
        for device, (load, capacity) in enumerate(
            zip(occupancy.load[number], row.capacity, strict=True)
        )
        if load > capacity
    }
    return max(excess, key=lambda key: excess[key], default=None)


def _relieve(occupancy: Occupancy, number: int, device: int) -> bool:
    """Move units off ``device`` until its row ``number`` holds; whether it does."""
    row = occupancy.problem.rows[number]
    moves = []
    for unit, place in enumerate(occupancy.device_of):
        if place == device and row.weights[unit]:
            costs = [
                (occupancy.moving_cost(unit, target), target)
                for target in occupancy.problem.allowed[unit]
                if target != device
            ]
            moves += [(cost / row.weights[unit], unit, target) for cost, target in costs]
    for _, unit, target in sorted(moves):
        if occupancy.load[number][device] <= row.capacity[device]:
            return True
        if occupancy.device_of[unit] == device and occupancy.fits(unit, target):
            occupancy.move(unit, target)
    return occupancy.load[number][device] <= row.capacity[device]
