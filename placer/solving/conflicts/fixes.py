"""Changes of an infeasible problem under which it has a placement; each was tried."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

from placer.problem.placement_problem import TOGETHER
from placer.solving.conflicts.elements import CAP, REQUEST, SPILL, Elements
from placer.solving.conflicts.packing import UndecidedError, pack
from placer.solving.conflicts.smallest_conflict import Conflict

_MOST_DROPPED = 3
"""Requests that are dropped together."""

_FINEST = 1000
"""Caps are searched to one part in so many, small ones to the byte."""


def find_fixes(elements: Elements, conflict: Conflict, deadline: float) -> Iterator[dict[str, Any]]:
    """Changes that are enough, until ``deadline`` (of ``time.monotonic()``).

    Each request of the conflict that is enough to drop, or the fewest that are together
    (``requests`` are their names); the cap of one device that has to grow the least, and those of
    all accelerators of the conflict, or if need be of more devices (``caps`` are bytes by device).
    """
    numbers = conflict.elements
    requests = [n for n in numbers if elements.all[n].kind in (SPILL, REQUEST)]
    for count in range(1, _MOST_DROPPED + 1):
        found = [
            dropped
            for dropped in combinations(requests, count)
            if time.monotonic() < deadline and _fits(elements, _everything(elements) - {*dropped})
        ]
        yield from (_without(elements, dropped) for dropped in found)
        if found:
            break
    capped = [elements.all[n].number for n in numbers if elements.all[n].kind == CAP]
    for caps in _least_caps(elements, capped, deadline):
        named = {elements.problem.device_names[d]: size for d, size in sorted(caps.items())}
        wanted = ",".join(f"{name}={size}" for name, size in named.items())
        yield {"kind": "caps", "change": f"--max-memory {wanted}", "caps": named}


def _everything(elements: Elements) -> frozenset[int]:
    return frozenset(range(len(elements.all)))


def _without(elements: Elements, dropped: Sequence[int]) -> dict[str, Any]:
    requests = [elements.request(number) for number in dropped]
    names = [elements.name(number) for number in dropped]
    kinds = {"spill" if r is None else "group" if r.kind == TOGETHER else "pin" for r in requests}
    return {"kind": min(kinds), "change": f"without {' '.join(names)}", "requests": names}


def _fits(elements: Elements, kept: frozenset[int]) -> bool:
    try:
        return pack(elements.packing(kept)) is not None
    except UndecidedError:
        return False


def _least_caps(
    elements: Elements, capped: Sequence[int], deadline: float
) -> Iterator[dict[int, int]]:
    capacity = elements.problem.capacity_bytes
    different = {elements.alike(device): device for device in reversed(capped)}.values()
    single = [found for device in different if (found := _raised(elements, [device], deadline))]
    if single:
        yield min(single, key=lambda caps: sum(size - capacity[d] for d, size in caps.items()))
    accelerators = [device for device in capped if device != elements.problem.host]
    together = None
    for devices in (accelerators, capped):
        if together is None and len(devices) > 1:
            together = _raised(elements, devices, deadline)
    if together:
        yield together
    if not single and not together:
        found = _raised(elements, range(elements.devices), deadline)
        yield from [found] if found else []


def _raised(elements: Elements, devices: Sequence[int], deadline: float) -> dict[int, int] | None:
    """The least caps of ``devices`` that are enough, all by the same share of what is missing to
    have room for everything; ``None`` if that is not enough."""
    problem, everything = elements.problem, _everything(elements)
    given = problem.capacity_bytes
    total = int(elements.op_weights.sum(axis=1).max(initial=0))
    enough = max(total, int(elements.working_sets.max(initial=0)))
    most = max((enough + problem.transient_bytes[d] for d in devices), default=0)

    def caps(part: int) -> dict[int, int]:
        return {d: given[d] + -(-max(0, most - given[d]) * part // most) for d in devices}

    def fits(part: int) -> bool:
        wanted = [caps(part).get(d, size) for d, size in enumerate(given)]
        return time.monotonic() < deadline and _fits(elements.with_capacity(wanted), everything)

    def is_fine(low: int, high: int) -> bool:
        pairs = zip(caps(low).values(), caps(high).values(), strict=True)
        return high - low <= 1 or all(more - less <= less // _FINEST for less, more in pairs)

    low, high = 0, most
    if not most or not fits(high):
        return None
    while not is_fine(low, high):
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return caps(high)
