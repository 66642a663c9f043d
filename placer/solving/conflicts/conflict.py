"""Why a problem is infeasible: elements that no placement keeps together, each of them needed."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from operator import le
from typing import Any, NamedTuple

import numpy as np

from cost_models.byte_sizes import spell_bytes
from placer.errors import SHOWN
from placer.problem.conflict import (
    CONTRADICTION,
    OVERFULL,
    TOO_LARGE,
    UNDIVIDABLE,
    CapInConflict,
    Conflict,
    Fix,
    OpsInConflict,
)
from placer.problem.placement_problem import TOGETHER, PlacementProblem, Request
from placer.solving.conflicts.elements import CAP, GROUP, SPILL, Elements
from placer.solving.conflicts.packing import fits, overfull_devices
from placer.solving.process import clock


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
    return Conflict(
        caps=tuple(
            CapInConflict(
                device=cap.name, usable_bytes=elements.problem.capacity_bytes[cap.devices[0]]
            )
            for cap in kept
            if cap.kind == CAP
        ),
        pins=tuple(pins),
        groups=tuple(groups),
        reason=reason.code,
        devices=tuple(elements.problem.device_names[device] for device in reason.devices),
        needed_bytes=reason.needed_bytes,
        usable_bytes=None if reason.usable_bytes is None else max(0, reason.usable_bytes),
        other_bytes=_other_bytes(elements, reason, int(left.sum())),
        ops=None if reason.ops is None else _largest(elements, reason.ops),
        op_count=None if reason.ops is None else len(reason.ops),
    )


def _other_bytes(elements: Elements, reason: _Reason, left: int) -> int:
    """Returns the bytes that no row names: of ops that may go nowhere else, or of what fills a
    device before any op is there."""
    if reason.code == OVERFULL:
        return left
    is_full = reason.usable_bytes is not None and reason.usable_bytes <= 0
    return (
        min((elements.problem.transient_bytes[d] for d in reason.devices), default=0)
        if is_full
        else 0
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
    ranked = ops[np.argsort(-weight.astype(float), kind="stable")][:SHOWN]
    return tuple(elements.problem.op_names[op] for op in ranked)


TIME_LIMIT_SECONDS = 10.0
"""Seconds of the search for a conflict and for what would fit."""


def explain_conflict(
    problem: PlacementProblem, time_limit_seconds: float = TIME_LIMIT_SECONDS
) -> Conflict:
    """The conflict of an infeasible problem, with changes under which the problem has a placement;
    all elements, not proven to be needed, if no conflict is found in time."""
    deadline = clock.monotonic() + time_limit_seconds
    elements = Elements(problem)
    found = find_conflict(elements, deadline)
    numbers, is_irreducible = (range(len(elements.all)), False) if found is None else found
    conflict = describe(elements, numbers)
    fixes = tuple(find_fixes(elements, numbers, deadline))
    return replace(conflict, is_smallest=is_irreducible, fixes=fixes)


def conflict_seconds(deadline: float) -> float:
    """Returns the seconds until ``deadline`` (``clock.monotonic()``) for a conflict, within
    bounds."""
    # a proof that nothing fits is worth little without what is in conflict
    return min(TIME_LIMIT_SECONDS, max(1.0, deadline - clock.monotonic()))


def find_conflict(elements: Elements, deadline: float) -> tuple[list[int], bool] | None:
    """Elements (their numbers) that cannot be kept together, and whether it is proven that each of
    them is needed for that; ``None`` if all can be kept, or nobody knows.

    Elements with low numbers are preferred.  What is not decided until ``deadline`` (of
    ``clock.monotonic()``) counts as needed.  A deletion filter by halves: Junker, "QuickXplain:
    preferred explanations and relaxations for over-constrained problems", AAAI 2004.
    """
    is_decided = True

    def can_keep(numbers: Sequence[int]) -> bool:
        nonlocal is_decided
        known = fits(elements.packing(numbers)) if clock.monotonic() < deadline else None
        is_decided = is_decided and known is not None
        return known is not False

    def needed(kept: list[int], added: Sequence[int], candidates: Sequence[int]) -> list[int]:
        """Returns a minimal subset of ``candidates`` in conflict with ``kept`` and ``added``
        (``kept`` alone is satisfiable)."""
        kept = [*kept, *added]
        if added and not can_keep(kept):
            return []
        if len(candidates) == 1:
            return list(candidates)
        middle = len(candidates) // 2
        first, second = candidates[:middle], candidates[middle:]
        later = needed(kept, first, second)
        return [*needed(kept, later, first), *later]

    everything = range(len(elements.all))
    if can_keep(everything):
        return None
    found = needed([], (), everything) if can_keep(()) else []
    return sorted(found), is_decided


def find_fixes(elements: Elements, numbers: Sequence[int], deadline: float) -> Iterator[Fix]:
    """Changes that are enough, until ``deadline`` (of ``clock.monotonic()``), where the elements
    numbered in ``numbers`` are in conflict.

    Each request of the conflict that is enough to drop, or the fewest that are together; the cap of
    one device that has to grow the least, and those of all accelerators of the conflict, or if need
    be of more devices.
    """
    search = _Search(elements, deadline)
    requests = [n for n in numbers if elements.all[n].kind not in (CAP, GROUP)]
    yield from search.fewer_requests(requests)
    capped = [elements.all[n].devices[0] for n in numbers if elements.all[n].kind == CAP]
    yield from search.larger_caps(capped)


@dataclass(frozen=True, slots=True)
class _Search:
    elements: Elements
    deadline: float

    def fits(self, dropped: Collection[int] = (), caps: Sequence[int] = ()) -> bool:
        """Whether it is known that there is a placement without some elements, or with other
        caps."""
        kept = [number for number in range(len(self.elements.all)) if number not in dropped]
        is_over = clock.monotonic() > self.deadline
        return not is_over and fits(self.elements.packing(kept, caps)) is True

    def fewer_requests(self, numbers: Sequence[int]) -> Iterator[Fix]:
        """The requests that are enough to drop: single ones, else pairs, else three."""
        for count in range(1, 4):  # so many requests are dropped together
            found = [dropped for dropped in combinations(numbers, count) if self.fits(dropped)]
            for dropped in found:
                asked = [self.elements.all[number] for number in dropped]
                kinds = {{SPILL: "spill", TOGETHER: "group"}.get(one.kind, "pin") for one in asked}
                names = tuple(one.name for one in asked)
                change = f"without {' '.join(names)}"
                yield Fix(kind=min(kinds), change=change, requests=names)
            if found:
                return

    def larger_caps(self, capped: Sequence[int]) -> Iterator[Fix]:
        """The least cap of one device, and the least of several where they are not all larger."""
        problem = self.elements.problem
        caps = problem.capacity_bytes
        # of devices that could swap names the first
        others = [number for number, one in enumerate(self.elements.all) if one.kind != CAP]
        allowed = self.elements.packing(others).allowed
        alike: dict[object, int] = {}
        for device in reversed(capped):
            sizes = caps[device], problem.transient_bytes[device]
            alike[device == problem.host, sizes, allowed[:, device].tobytes()] = device
        single = [raised for device in alike.values() if (raised := self._raised([device]))]
        found = sorted(single, key=sum)[:1]
        accelerators = [device for device in capped if device != problem.host]
        everything = () if found else range(len(caps))
        for devices in (accelerators, capped, everything):
            several = self._raised(devices) if len(devices) > 1 else None
            if several:
                less = any(all(map(le, one, several)) for one in found)
                found += [] if less else [several]
                break
        for raised in found:
            pairs = zip(problem.device_names, raised, caps, strict=True)
            named = {name: size for name, size, given in pairs if size != given}
            wanted = ",".join(f"{name}={spell_bytes(size)}" for name, size in named.items())
            yield Fix(kind="caps", change=f"--max-memory {wanted}", caps=named)

    def _raised(self, devices: Sequence[int]) -> tuple[int, ...] | None:
        """The least caps that are enough, those of ``devices`` larger by the same share of what is
        missing to have room for everything; ``None`` if that is not enough."""
        elements, given = self.elements, self.elements.problem.capacity_bytes
        total = int(elements.op_weights.sum(axis=1).max(initial=0))
        enough = max(total, int(elements.working_sets.max(initial=0)))
        most = max(enough + elements.problem.transient_bytes[device] for device in devices)

        def caps(part: int) -> tuple[int, ...]:
            missing = [max(0, most - size) if d in devices else 0 for d, size in enumerate(given)]
            return tuple(g + -(-m * part // most) for g, m in zip(given, missing, strict=True))

        if not most or not self.fits(caps=caps(most)):
            return None
        low, high = 0, most
        while high - low > 1 and any(
            more - less > less // 1000  # to one part in so many, small ones to the byte
            for less, more in zip(caps(low), caps(high), strict=True)
        ):
            middle = (low + high) // 2
            low, high = (low, middle) if self.fits(caps=caps(middle)) else (middle, high)
        return caps(high)
