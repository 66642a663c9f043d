"""A first placement without OR-Tools, in a second or two for ten thousand units.

Pinned units are placed first.  The others are put into several orders, each order is split into
contiguous segments (:mod:`placer.solving.linear_split`) or, where no split fits, filled first fit;
the few best are improved by local search, and the best of those is the answer.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from placer.solving.linear_split import split
from placer.solving.local_search import improve
from placer.solving.occupancy import UNPLACED, Incidence, Occupancy
from placer.solving.reduced_problem import ReducedProblem
from placer.solving.repair import repair
from placer.solving.unit_order import unit_orders

_MOST_DEVICE_ORDERS = 4
_MOST_IMPROVED = 4


def initial_placement(
    problem: ReducedProblem, deadline: float, hints: Sequence[Sequence[int]] = ()
) -> tuple[int, ...] | None:
    """The best feasible placement found, one device per unit, or ``None``.

    ``hints`` are placements to try, made feasible if need be; ``deadline`` is a time of
    ``time.monotonic()``.
    """
    incidence = Incidence(problem)
    candidates = [state for hint in hints if (state := _from_hint(incidence, hint)) is not None]
    for device_of in _drafts(problem, incidence):
        if device_of is not None:
            candidates.append(Occupancy(incidence, device_of))
        if time.monotonic() > deadline and candidates:
            break
    candidates.sort(key=lambda candidate: candidate.value)
    for candidate in candidates[:_MOST_IMPROVED]:
        if candidate.value and time.monotonic() < deadline:
            improve(candidate, deadline)
    best = min(candidates, key=lambda candidate: candidate.value, default=None)
    return None if best is None else tuple(best.device_of)


def fill(problem: ReducedProblem) -> tuple[int, ...] | None:
    """A feasible placement with the heaviest units placed first, or ``None`` if one is left."""
    if not all(problem.allowed):
        return None
    drafts = (draft for draft in _fills(Incidence(problem)) if draft is not None)
    return next(map(tuple, drafts), None)


def _fills(incidence: Incidence) -> Iterator[list[int] | None]:
    """The heaviest units first: each where it costs least, then each where most room is left."""
    problem = incidence.problem
    order = _heaviest_first(problem)
    for choose in (Occupancy.placing_cost, Occupancy.tightness):
        yield _complete(incidence, _pinned(problem), order, choose)


def _pinned(problem: ReducedProblem) -> list[int]:
    """The device of every unit that has no choice."""
    return [devices[0] if len(devices) == 1 else UNPLACED for devices in problem.allowed]


def _from_hint(incidence: Incidence, hint: Sequence[int]) -> Occupancy | None:
    """The hint, changed as little as makes it fit; ``None`` if that fails."""
    allowed = incidence.problem.allowed
    if any(not devices for devices in allowed):
        return None
    state = Occupancy(
        incidence,
        [
            device if device in devices else devices[0]
            for device, devices in zip(hint, allowed, strict=True)
        ],
    )
    return state if repair(state) else None


def _drafts(problem: ReducedProblem, incidence: Incidence) -> Iterator[list[int] | None]:
    """Feasible placements (or ``None``) along every order of units and devices."""
    pinned = _pinned(problem)
    common = _common_devices(problem)
    free = [
        unit
        for unit, devices in enumerate(problem.allowed)
        if pinned[unit] == UNPLACED and common <= set(devices)
    ]
    members = np.asarray(free, dtype=np.int64)
    base = Occupancy(incidence, pinned)
    room = [
        [cap - used for cap, used in zip(row.capacity, load, strict=True)]
        for row, load in zip(problem.rows, base.load, strict=True)
    ]
    for order in unit_orders(problem, members) if free else [members]:
        for devices in _device_orders(problem, sorted(common)):
            device_at = split(problem, order, devices, room)
            draft = list(pinned)
            if device_at is not None:
                for unit, device in zip(order.tolist(), device_at, strict=True):
                    draft[unit] = device
            yield _complete(incidence, draft, order.tolist())
    yield from _fills(incidence)


def _common_devices(problem: ReducedProblem) -> frozenset[int]:
    """The devices that most units may choose from."""
    sets = Counter(frozenset(devices) for devices in problem.allowed if len(devices) > 1)
    return sets.most_common(1)[0][0] if sets else frozenset()


def _device_orders(problem: ReducedProblem, devices: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Orders of the devices that differ in their capacities."""
    capacities = list(zip(*(row.capacity for row in problem.rows), strict=True))
    seen = set()
    for order in itertools.islice(itertools.permutations(devices), 720):
        key = tuple(capacities[device] for device in order)
        if key not in seen:
            seen.add(key)
            yield order
        if len(seen) == _MOST_DEVICE_ORDERS:
            return


def _heaviest_first(problem: ReducedProblem) -> list[int]:
    """The units by the largest share of any row that they take."""
    totals = [max(1, sum(row.weights)) for row in problem.rows]

    def share(unit: int) -> float:
        return max(
            (row.weights[unit] / total for row, total in zip(problem.rows, totals, strict=True)),
            default=0.0,
        )

    return sorted(range(problem.unit_count), key=share, reverse=True)


def _complete(
    incidence: Incidence,
    draft: list[int],
    order: Sequence[int],
    rank: Callable[[Occupancy, int, int], float] = Occupancy.placing_cost,
) -> list[int] | None:
    """The draft with its unplaced units where they fit and ``rank`` least; ``None`` if stuck."""
    problem = incidence.problem
    state = Occupancy(incidence, draft)
    if state.excess():
        return None
    waiting = [unit for unit in order if draft[unit] == UNPLACED]
    waiting += sorted({unit for unit, d in enumerate(draft) if d == UNPLACED} - set(waiting))
    for unit in waiting:
        choices = [d for d in problem.allowed[unit] if state.fits(unit, d)]
        if not choices:
            return None
        ranks = [rank(state, unit, device) for device in choices]
        state.place(unit, choices[ranks.index(min(ranks))])
    return state.device_of
