"""Which ops are on the host whatever else is decided."""

from __future__ import annotations

from collections.abc import Sequence

from placer.problem.placement_problem import PlacementProblem
from placer.solving.reduction.unit_problem import numbered


def bound_to_host(problem: PlacementProblem) -> set[int]:
    """The ops that every placement has on the host."""
    unit_of = numbered(problem.group)
    most, usable = _most_held(problem, unit_of), _usable(problem)
    room = {devices: max((usable[d] for d in devices), default=0) for devices in {*problem.allowed}}
    return {
        op
        for op, devices in enumerate(problem.allowed)
        if devices == (problem.host,)
        or (
            problem.spill == "auto"
            and problem.spillable[op]
            and problem.host not in devices
            and (not devices or most[unit_of[op]] > room[devices])
        )
    }


def without_accelerator(problem: PlacementProblem) -> set[int]:
    """The ops whose group may use no device but the host, or fits none."""
    unit_of = numbered(problem.group)
    most, usable = _most_held(problem, unit_of), _usable(problem)
    for op, size in enumerate(problem.working_set_bytes):
        most[unit_of[op]] = max(most[unit_of[op]], size)
    others: dict[int, set[int]] = {}
    for op, devices in enumerate(problem.allowed):
        accelerators = {*devices} - {problem.host}
        others[unit_of[op]] = others.get(unit_of[op], accelerators) & accelerators
    bound = {
        unit for unit, devices in others.items() if all(usable[d] < most[unit] for d in devices)
    }
    return {op for op, unit in enumerate(unit_of) if unit in bound}


def _most_held(problem: PlacementProblem, unit_of: Sequence[int]) -> dict[int, int]:
    """What each unit holds at the fullest of the known moments."""
    resident: dict[int, int] = {}
    for unit, size in zip(unit_of, problem.resident_bytes, strict=True):
        resident[unit] = resident.get(unit, 0) + size
    most = dict(resident)
    for moment in problem.live_bytes:
        held: dict[int, int] = {}
        for op, size in moment.items():
            held[unit_of[op]] = held.get(unit_of[op], 0) + size
        for unit, size in held.items():
            most[unit] = max(most[unit], resident[unit] + size)
    return most


def _usable(problem: PlacementProblem) -> list[int]:
    return [c - t for c, t in zip(problem.capacity_bytes, problem.transient_bytes, strict=True)]
