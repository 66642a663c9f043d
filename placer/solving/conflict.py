"""Why a problem is infeasible, in numbers, and what would make it fit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from placer.problem import PlacementProblem
from placer.solving.drafts import fill
from placer.solving.reduced_problem import ReducedProblem, SpillRules, reduce_to_units
from placer.solving.spilling import may_spill

_MOST_NAMES = 5
_SEARCH_STEPS = 24


def explain_conflict(problem: PlacementProblem) -> dict[str, Any]:
    """The conflict of an infeasible problem as plain data.

    ``caps``: sets of devices, what the ops confined to them need at the worst moment, and what
    the set can hold.  ``pins``: groups of ops that may run nowhere.  ``groups``: groups too large
    for every device they may use (or else the largest one), beside the largest such device.
    ``fixes``: requests that were tried and have a placement, the smallest first.
    """
    units = reduce_to_units(problem, _widest_rules(problem))
    return {
        "caps": list(_caps(problem, units)),
        "pins": list(_pins(problem, units)),
        "groups": list(_groups(problem, units)),
        "fixes": list(_fixes(problem)),
    }


def _widest_rules(problem: PlacementProblem) -> SpillRules | None:
    """Everything that may spill does, if spilling is allowed at all."""
    return SpillRules() if may_spill(problem) else None


def _caps(problem: PlacementProblem, units: ReducedProblem) -> Iterator[dict[str, Any]]:
    """Needed and usable bytes of every set of devices that is overfull, and of all devices."""
    confined = _allowed_before_caps(problem)
    everything = frozenset(range(units.device_count))
    for devices in sorted({*confined, everything}, key=lambda d: (len(d), sorted(d))):
        needed = max(
            sum(
                weight
                for weight, allowed in zip(row.weights, confined, strict=True)
                if allowed and devices.issuperset(allowed)
            )
            for row in units.rows
        )
        usable = sum(_usable_bytes(problem)[device] for device in devices)
        if needed > usable or devices == everything:
            yield {
                "devices": _names(problem, devices),
                "needed_bytes": needed,
                "usable_bytes": usable,
            }


def _allowed_before_caps(problem: PlacementProblem) -> list[frozenset[int]]:
    """The devices of each unit if every device had room without end."""
    roomy = replace(
        problem,
        capacity_bytes=(_needed_bytes(problem) + sum(problem.transient_bytes),)
        * len(problem.device_names),
    )
    units = reduce_to_units(roomy, _widest_rules(problem))
    return [frozenset(devices) for devices in units.allowed]


def _usable_bytes(problem: PlacementProblem) -> list[int]:
    return [
        max(0, capacity - transient)
        for capacity, transient in zip(problem.capacity_bytes, problem.transient_bytes, strict=True)
    ]


def _needed_bytes(problem: PlacementProblem) -> int:
    """Resident and live bytes of all ops at the worst moment."""
    live = max((sum(moment.values()) for moment in problem.live_bytes), default=0)
    return sum(problem.resident_bytes) + live


def _pins(problem: PlacementProblem, units: ReducedProblem) -> Iterator[dict[str, Any]]:
    """Groups whose ops have no device in common."""
    members = _members(units)
    for unit, devices in enumerate(_allowed_before_caps(problem)):
        if not devices:
            sets = {problem.allowed[op] for op in members[unit]}
            yield {
                **_described(problem, members[unit]),
                "allowed": " against ".join(
                    sorted(_names(problem, devices) or "nothing" for devices in sets)
                ),
            }


def _groups(problem: PlacementProblem, units: ReducedProblem) -> Iterator[dict[str, Any]]:
    """Groups too large for every device they may use; if there is none, the largest group."""
    members = _members(units)
    confined = _allowed_before_caps(problem)
    weight = [max(row.weights[u] for row in units.rows) for u in range(units.unit_count)]
    homeless = [u for u, fitting in enumerate(units.allowed) if not fitting and confined[u]]
    largest = sorted(range(units.unit_count), key=lambda unit: -weight[unit])[:1]
    for unit in sorted(homeless, key=lambda unit: -weight[unit])[:_MOST_NAMES] or largest:
        usable = max((_usable_bytes(problem)[d] for d in confined[unit]), default=0)
        yield {
            **_described(problem, members[unit]),
            "bytes": weight[unit],
            "largest_usable_bytes": usable,
        }


def _members(units: ReducedProblem) -> Mapping[int, list[int]]:
    members: dict[int, list[int]] = defaultdict(list)
    for op, unit in enumerate(units.unit_of):
        members[unit].append(op)
    return members


def _described(problem: PlacementProblem, ops: Sequence[int]) -> dict[str, Any]:
    """Some names of a group, those with the most resident bytes first, and how many there are."""
    ranked = sorted(ops, key=lambda op: -problem.resident_bytes[op])[:_MOST_NAMES]
    return {"ops": ", ".join(problem.op_names[op] for op in ranked), "op_count": len(ops)}


def _names(problem: PlacementProblem, devices: frozenset[int] | tuple[int, ...]) -> str:
    return ", ".join(problem.device_names[device] for device in sorted(devices))


def _fixes(problem: PlacementProblem) -> Iterator[str]:
    """Requests that have a placement; each was tried by filling the devices."""
    spilling = replace(problem, spill="auto")
    if problem.spill == "never" and may_spill(spilling) and _has_placement(spilling):
        yield "let what does not fit go to the host: --spill auto"
    accelerators = [d for d in range(len(problem.device_names)) if d != problem.host]
    for devices in filter(None, (accelerators, [problem.host], [*accelerators, problem.host])):
        caps = _least_caps(problem, devices)
        if caps:
            request = ",".join(
                f"{problem.device_names[device]}={caps[device]}" for device in devices
            )
            yield f"raise the caps: --max-memory {request} (bytes, beside any --reserve)"
            return


def _has_placement(problem: PlacementProblem) -> bool:
    return fill(reduce_to_units(problem, _widest_rules(problem))) is not None


def _least_caps(problem: PlacementProblem, devices: Sequence[int]) -> tuple[int, ...] | None:
    """Capacities with those of ``devices`` raised by one factor, as little as filling shows to
    be enough; ``None`` if no factor is."""
    ceiling = _needed_bytes(problem) + sum(problem.transient_bytes)
    least = min(max(1, problem.capacity_bytes[device]) for device in devices)
    low, high = 1.0, max(1.0, ceiling / least)
    if not _has_placement(_raised(problem, devices, high)):
        return None
    for _ in range(_SEARCH_STEPS):
        middle = (low + high) / 2
        if high < low * 1.001:
            break
        if _has_placement(_raised(problem, devices, middle)):
            high = middle
        else:
            low = middle
    return _raised(problem, devices, high).capacity_bytes


def _raised(problem: PlacementProblem, devices: Sequence[int], factor: float) -> PlacementProblem:
    capacity = list(problem.capacity_bytes)
    for device in devices:
        capacity[device] = int(max(1, capacity[device]) * factor) + 1
    return replace(problem, capacity_bytes=tuple(capacity))
