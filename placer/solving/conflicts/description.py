"""A conflict in names and bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

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


def describe(elements: Elements, numbers: Sequence[int]) -> Conflict:
    """The elements numbered in ``numbers`` as rows, and what they come to."""
    packing = elements.packing(numbers)
    stuck = np.flatnonzero(~packing.allowed.any(axis=1))
    if len(stuck):
        return _stuck(elements, numbers, np.flatnonzero(packing.unit_of == stuck[0]))
    names, usable = elements.problem.device_names, elements.usable_bytes()
    overfull = overfull_devices(packing)
    if overfull is None:
        capped = np.flatnonzero(packing.capped)
        return replace(
            _rows(elements, numbers, elements.op_weights[0]),
            reason=UNDIVIDABLE,
            devices=tuple(names[device] for device in capped),
            needed_bytes=int(packing.weights.sum(axis=1).max(initial=0)),
            usable_bytes=sum(usable[device] for device in capped),
            other_bytes=0,
        )
    inside = overfull.inside[packing.unit_of]
    return replace(
        _rows(elements, numbers, np.where(inside, elements.op_weights[overfull.row], 0)),
        reason=OVERFULL,
        devices=tuple(names[device] for device in overfull.devices),
        needed_bytes=overfull.needed_bytes,
        usable_bytes=overfull.usable_bytes,
    )


def _stuck(elements: Elements, numbers: Sequence[int], ops: Any) -> Conflict:
    """The conflict where ``ops`` have to share a device, and there is none for them."""
    rows = replace(_rows(elements, numbers, elements.op_weights[0]), other_bytes=0)
    largest, count = _largest(elements, ops), len(ops)
    uncapped = elements.packing([n for n in numbers if elements.all[n].kind != CAP])
    devices = np.flatnonzero(uncapped.allowed[uncapped.unit_of[ops[0]]])
    if not len(devices):
        return replace(rows, reason=CONTRADICTION, devices=(), ops=largest, op_count=count)
    together = elements.op_weights[:, ops].sum(axis=1).max()
    return replace(
        rows,
        reason=TOO_LARGE,
        devices=tuple(elements.problem.device_names[device] for device in devices),
        needed_bytes=int(max(together, elements.working_sets[ops].max())),
        usable_bytes=max(elements.usable_bytes()[device] for device in devices),
        ops=largest,
        op_count=count,
    )


def _rows(elements: Elements, numbers: Sequence[int], weights: Any) -> Conflict:
    """The elements as rows; each op's weight counts in the first row that names it, or in
    ``other_bytes``."""
    caps: list[CapInConflict] = []
    pins: list[OpsInConflict] = []
    groups: list[OpsInConflict] = []
    is_named = np.zeros(len(weights), dtype=bool)
    for request in (elements.all[number] for number in numbers):
        if request.kind == CAP:
            usable = max(0, elements.usable_bytes()[request.devices[0]])
            caps.append(CapInConflict(device=request.name, usable_bytes=usable))
            continue
        ops = np.unique(np.asarray([*request.ops, *chain(*request.groups)], dtype=np.int64))
        size = int(weights[ops[~is_named[ops]]].sum())
        is_named[ops] = True
        row = replace(_row(elements, request, ops), bytes=size)
        (groups if request.groups else pins).append(row)
    return Conflict(
        caps=tuple(caps),
        pins=tuple(pins),
        groups=tuple(groups),
        other_bytes=int(weights[~is_named].sum()),
    )


def _row(elements: Elements, request: Request, ops: Any) -> OpsInConflict:
    """What a request, or a colocation group, asks of its ops."""
    if request.kind == SPILL:
        return OpsInConflict(request=request.name)
    devices = tuple(elements.problem.device_names[device] for device in request.devices)
    return OpsInConflict(
        request=request.name or None,
        devices=None if request.groups else devices,
        ops=_largest(elements, ops),
        op_count=len(ops),
    )


def _largest(elements: Elements, ops: Any) -> tuple[str, ...]:
    """Some names, those with the most bytes first."""
    weight = elements.op_weights[:, ops].max(axis=0)
    ranked = ops[np.argsort(-weight.astype(float), kind="stable")][:_MOST_NAMES]
    return tuple(elements.problem.op_names[op] for op in ranked)
