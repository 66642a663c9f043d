"""Why a problem is infeasible: the smallest set of caps, pins and groups in conflict, in numbers,
and what would make it fit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from placer.problem.placement_problem import TOGETHER, PlacementProblem
from placer.solving.conflicts.elements import CAP, GROUP, SPILL, Elements, Packing
from placer.solving.conflicts.fixes import find_fixes
from placer.solving.conflicts.packing import Overfull, overfull_devices, pack
from placer.solving.conflicts.smallest_conflict import Check, Conflict, smallest_conflict
from placer.solving.process.child_search import run_alone

_TASK = "placer.solving.conflicts.conflict_process:find_conflict"

TIME_LIMIT_SECONDS = 10.0
"""Of the search for the smallest conflict and for what would fit."""

LEAST_SECONDS = 1.0
"""A proof that nothing fits is worth little without what is in conflict."""

_LEAST_CHILD_SECONDS = 2.0
_MOST_NAMES = 5
OVERFULL, TOO_LARGE, CONTRADICTION, UNDIVIDABLE = (
    "overfull",
    "too_large",
    "contradiction",
    "undividable",
)


def explain_conflict(
    problem: PlacementProblem, time_limit_seconds: float = TIME_LIMIT_SECONDS
) -> dict[str, Any]:
    """The conflict of an infeasible problem as plain data.

    ``caps``, ``pins`` and ``groups`` cannot be kept together (what is left out is not needed for
    that); with ``is_smallest`` no smaller set of them is in conflict, else this was not proven in
    time.  ``pins`` are what somebody asked for about devices, ``groups`` what shares one.

    ``reason`` is ``overfull`` (what is confined to ``devices`` needs ``needed_bytes`` there, of
    which ``other_bytes`` are of ops that may go nowhere else anyway, and they can hold
    ``usable_bytes``), ``too_large`` (``ops`` must share a device, and need ``needed_bytes`` where
    the largest of ``devices`` holds ``usable_bytes``), ``contradiction`` (``ops`` may run nowhere)
    or ``undividable`` (in sum ``needed_bytes`` would fit, but in no division).

    ``fixes`` are changes under which the problem has a placement, each tried: ``kind`` (``spill``,
    ``pin``, ``group`` or ``caps``) and ``change``; see :mod:`placer.solving.conflicts.fixes`.
    """
    deadline = time.monotonic() + time_limit_seconds
    elements = Elements(problem)
    conflict = _find(elements, deadline)
    return {
        **_described(elements, conflict),
        "fixes": list(find_fixes(elements, conflict, deadline)),
    }


def conflict_seconds(deadline: float) -> float:
    """What is left until ``deadline`` (of ``time.monotonic()``) for a conflict, within bounds."""
    return min(TIME_LIMIT_SECONDS, max(LEAST_SECONDS, deadline - time.monotonic()))


def checker(elements: Elements, pack: Callable[[Packing], Any] = pack) -> Check:
    """Which elements a placement breaks that keeps some, by ``pack``."""

    def check(kept: frozenset[int]) -> frozenset[int] | None:
        packing = elements.packing(kept)
        device_of = pack(packing)
        return None if device_of is None else elements.broken_by(device_of[packing.unit_of])

    return check


def _find(elements: Elements, deadline: float) -> Conflict:
    """The smallest conflict known in time: a bounded search first, CP-SAT where that is not enough,
    and all elements where nothing is proven."""
    count = len(elements.all)
    found = smallest_conflict(count, checker(elements), deadline)
    left = deadline - time.monotonic()
    if (found is None or not found.is_smallest) and left > _LEAST_CHILD_SECONDS:
        found = _find_in_child(elements.problem, left) or found
    everything = Conflict(
        elements=tuple(range(count)), is_irreducible=False, is_smallest=False, sufficient=()
    )
    return found or everything


def _find_in_child(problem: PlacementProblem, seconds: float) -> Conflict | None:
    """The conflict by CP-SAT in its own interpreter; ``None`` if that came to nothing."""
    what_fits = replace(problem, tensors=(), control_edges=(), seconds=())  # costs do not matter
    found = run_alone(_TASK, (what_fits, time.time() + seconds), seconds).answer
    return found if isinstance(found, Conflict) else None


def _described(elements: Elements, conflict: Conflict) -> dict[str, Any]:
    """The conflict in names and bytes."""
    kept = conflict.elements
    packing = elements.packing(kept)
    uncapped = elements.packing([n for n in kept if elements.all[n].kind != CAP])
    stuck = np.flatnonzero(~packing.allowed.any(axis=1))
    overfull = None if len(stuck) else overfull_devices(packing)
    row = 0 if overfull is None else overfull.row
    inside = np.ones(elements.count, dtype=bool)
    if overfull is not None:
        inside = overfull.inside[packing.unit_of]
    weights = np.where(inside, elements.op_weights[row], 0)
    rows: dict[str, list[dict[str, Any]]] = {"caps": [], "pins": [], "groups": []}
    told = np.zeros(elements.count, dtype=bool)
    for number in kept:
        key, entry, ops = _entry(elements, number)
        ops = ops[~told[ops]]
        told[ops] = True
        rows[key].append(entry if key == "caps" else {**entry, "bytes": int(weights[ops].sum())})
    other = int(weights[~told].sum())
    return {
        **rows,
        "is_smallest": conflict.is_smallest,
        **_reason(elements, packing, uncapped, stuck, overfull),
        "other_bytes": other if overfull is not None else 0,
    }


def _entry(elements: Elements, number: int) -> tuple[str, dict[str, Any], Any]:
    """Which list an element belongs to, its row there, and its ops."""
    problem, element = elements.problem, elements.all[number]
    request = elements.request(number)
    nothing = _numbers(())
    if element.kind == CAP:
        device = problem.device_names[element.number]
        usable = elements.usable_bytes[element.number]
        return "caps", {"device": device, "usable_bytes": max(0, usable)}, nothing
    if element.kind == SPILL:
        return "pins", {"request": elements.name(number)}, nothing
    if element.kind == GROUP:
        ops = np.flatnonzero(elements.colocation == element.number)
        return "groups", _names(elements, ops), ops
    assert request is not None
    if request.kind == TOGETHER:
        ops = _numbers(op for group in request.groups for op in group)
        return "groups", {"request": request.name, **_names(elements, ops)}, ops
    ops = _numbers(request.ops)
    devices = [problem.device_names[device] for device in request.devices]
    entry = {"request": request.name, "devices": devices, **_names(elements, ops)}
    return "pins", entry, ops


def _numbers(ops: Iterable[int]) -> Any:
    return np.asarray(sorted(set(ops)), dtype=np.int64)


def _names(elements: Elements, ops: Any) -> dict[str, Any]:
    """Some names, those with the most bytes first, and how many there are."""
    weight = elements.op_weights[:, ops].max(axis=0, initial=0)
    ranked = ops[np.argsort(-weight.astype(float), kind="stable")][:_MOST_NAMES]
    return {"ops": [elements.problem.op_names[op] for op in ranked], "op_count": len(ops)}


def _reason(
    elements: Elements, packing: Packing, uncapped: Packing, stuck: Any, overfull: Overfull | None
) -> dict[str, Any]:
    """What the elements come to: the reason with its devices, ops and bytes."""
    names = elements.problem.device_names
    if overfull is not None:
        return {
            "reason": OVERFULL,
            "devices": [names[device] for device in overfull.devices],
            "needed_bytes": overfull.needed_bytes,
            "usable_bytes": overfull.usable_bytes,
        }
    if not len(stuck):
        capped = np.flatnonzero(packing.capped)
        return {
            "reason": UNDIVIDABLE,
            "devices": [names[device] for device in capped],
            "needed_bytes": int(packing.weights.sum(axis=1).max(initial=0)),
            "usable_bytes": sum(elements.usable_bytes[device] for device in capped),
        }
    unit = stuck[0]
    ops = np.flatnonzero(packing.unit_of == unit)
    devices = np.flatnonzero(uncapped.allowed[unit])
    if not len(devices):
        return {"reason": CONTRADICTION, "devices": [], **_names(elements, ops)}
    widest = int(elements.working_sets[ops].max(initial=0))
    return {
        "reason": TOO_LARGE,
        "devices": [names[device] for device in devices],
        "needed_bytes": max(int(packing.weights[:, unit].max()), widest),
        "usable_bytes": max(elements.usable_bytes[device] for device in devices),
        **_names(elements, ops),
    }
