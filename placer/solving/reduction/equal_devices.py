"""Devices that differ in their name only, and the order in which a program uses them."""

from collections.abc import Callable, Sequence

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
    classes: Sequence[Sequence[int]], device_of_unit: Sequence[int]
) -> tuple[int, ...]:
    """The placement with the devices of each class renamed, so that the first unit on any of them
    is on the first one, and so on: of placements that differ in names the same is always told."""
    first = {device: unit for unit, device in reversed([*enumerate(device_of_unit)])}
    never = len(device_of_unit)
    name: dict[int, int] = {}
    for devices in classes:
        by_use = sorted(devices, key=lambda device: (first.get(device, never), device))
        name |= dict(zip(by_use, devices, strict=True))
    return tuple(name.get(device, device) for device in device_of_unit)
