"""A conflict in names and bytes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from placer.problem.conflict import (
    CONTRADICTION,
    OVERFULL,
    TOO_LARGE,
    UNDIVIDABLE,
    CapInConflict,
    Conflict,
    OpsInConflict,
)
from placer.problem.placement_problem import Request
from placer.solving.conflicts.elements import CAP, SPILL, Elements
from placer.solving.conflicts.packing import overfull_devices

_MOST_NAMES = 5


class _Reason(NamedTuple):
    """The reason behind elements: ``weights`` are the bytes of each op that count."""

    code: str
    devices: Any
    weights: Any
    needed_bytes: int | None
    usable_bytes: int | None
    ops: Any = None


def describe(elements: Elements, numbers: Sequence[int]) -> Conflict:
    """The elements numbered in ``numbers`` as rows, and what they come to."""
    reason = _reason(elements, numbers)
    kept = [elements.all[number] for number in numbers]
    pins: list[OpsInConflict] = []
    groups: list[OpsInConflict] = []
    left = reason.weights.copy()  # each op counts in the first row that names it
    for request in kept:
        if request.kind != CAP:
            ops = np.unique(np.asarray([*request.ops, *chain(*request.groups)], dtype=np.int64))
            row = _row(elements, request, ops, int(left[ops].sum()))
            (groups if request.groups else pins).append(row)
            left[ops] = 0
    usable = elements.usable_bytes()
    return Conflict(
        caps=tuple(
            CapInConflict(device=cap.name, usable_bytes=max(0, usable[cap.devices[0]]))
            for cap in kept
            if cap.kind == CAP
        ),
        pins=tuple(pins),
        groups=tuple(groups),
        reason=reason.code,
        devices=tuple(elements.problem.device_names[device] for device in reason.devices),
        needed_bytes=reason.needed_bytes,
        usable_bytes=reason.usable_bytes,
        other_bytes=int(left.sum()) if reason.code == OVERFULL else 0,
        ops=None if reason.ops is None else _largest(elements, reason.ops),
        op_count=None if reason.ops is None else len(reason.ops),
    )


def _reason(elements: Elements, numbers: Sequence[int]) -> _Reason:
    """Why the elements cannot be kept together."""
    packing, weights = elements.packing(numbers), elements.op_weights
    usable = elements.usable_bytes()
    stuck = np.flatnonzero(~packing.allowed.any(axis=1))
    if len(stuck):
        ops = np.flatnonzero(packing.unit_of == stuck[0])
        uncapped = elements.packing([n for n in numbers if elements.all[n].kind != CAP])
        devices = np.flatnonzero(uncapped.allowed[stuck[0]])
        if not len(devices):
            return _Reason(CONTRADICTION, devices, weights[0], None, None, ops)
        needed = int(max(packing.weights[:, stuck[0]].max(), elements.working_sets[ops].max()))
        room = max(usable[device] for device in devices)
        return _Reason(TOO_LARGE, devices, weights[0], needed, room, ops)
    overfull = overfull_devices(packing)
    if overfull is not None:
        inside = np.where(overfull.inside[packing.unit_of], weights[overfull.row], 0)
        sizes = overfull.needed_bytes, overfull.usable_bytes
        return _Reason(OVERFULL, overfull.devices, inside, *sizes)
    capped = np.flatnonzero(packing.capped)
    needed = int(packing.weights.sum(axis=1).max(initial=0))
    return _Reason(UNDIVIDABLE, capped, weights[0], needed, sum(usable[d] for d in capped))


def _row(elements: Elements, request: Request, ops: Any, size: int) -> OpsInConflict:
    """Returns the row of a request or colocation group, whose ops need ``size`` bytes."""
    if request.kind == SPILL:
        return OpsInConflict(request=request.name, bytes=size)
    devices = tuple(elements.problem.device_names[device] for device in request.devices)
    return OpsInConflict(
        request=request.name or None,
        devices=None if request.groups else devices,
        ops=_largest(elements, ops),
        op_count=len(ops),
        bytes=size,
    )


def _largest(elements: Elements, ops: Any) -> tuple[str, ...]:
    """Some names, those with the most bytes first."""
    weight = elements.op_weights[:, ops].max(axis=0)
    ranked = ops[np.argsort(-weight.astype(float), kind="stable")][:_MOST_NAMES]
    return tuple(elements.problem.op_names[op] for op in ranked)
