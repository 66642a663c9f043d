"""Devices that differ in their name only, and the order in which a program uses them."""

from collections.abc import Callable, Sequence
from itertools import zip_longest

from placer.solving.reduction.unit_problem import UnitProblem


def interchangeable_devices(
    problem: UnitProblem, trait: Callable[[int], object] = lambda _device: None
) -> list[list[int]]:
    """Sets of two or more devices of one ``trait`` that can swap names without any effect."""
    classes: dict[object, list[int]] = {}
    membership: list[list[int]] = [[] for _ in range(problem.device_count)]
    for unit, devices in enumerate(problem.allowed):
        for device in devices:
            membership[device].append(unit)
    for device in range(problem.device_count):
        key: tuple[object, ...] = (
            tuple(membership[device]),
            tuple(row.capacity[device] for row in problem.rows),
            tuple([costs[device] for costs in problem.cost]),
            trait(device),
        )
        classes.setdefault(key, []).append(device)
    return [devices for devices in classes.values() if len(devices) > 1]


def numbered_by_use(
    classes: Sequence[Sequence[int]],
    device_of_unit: Sequence[int],
    leaders: Sequence[Sequence[int]] = (),
) -> tuple[int, ...]:
    """The placement with the devices of each class renamed, so that the first unit on any of them
    (of all, or of the ``leaders`` of the class) is on the first one, and so on: of placements that
    differ in names the same is always told."""
    name: dict[int, int] = {}
    for devices, units in zip_longest(classes, leaders, fillvalue=range(len(device_of_unit))):
        used = [device_of_unit[unit] for unit in units if device_of_unit[unit] in devices]
        name |= dict(zip(dict.fromkeys([*used, *devices]), devices, strict=True))
    return tuple(name.get(device, device) for device in device_of_unit)
