"""Rough placements: every order of units and devices split into segments, or filled first fit."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from placer.solving.reduction.unit_problem import UnitProblem
from placer.solving.search.linear_split import split
from placer.solving.search.occupancy import UNPLACED, Incidence, Occupancy
from placer.solving.search.unit_order import unit_orders

_MOST_DEVICE_ORDERS = 4
_MOST_PROMISING = 3


def promising(states: Sequence[Occupancy]) -> list[Occupancy]:
    """The few best, none of them worse than twice the best."""
    ranked = sorted(states, key=lambda state: state.value)[:_MOST_PROMISING]
    return [state for state in ranked if state.value <= 2 * ranked[0].value]


def fill(problem: UnitProblem) -> tuple[int, ...] | None:
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


def _pinned(problem: UnitProblem) -> list[int]:
    """The device of every unit that has no choice."""
    return [devices[0] if len(devices) == 1 else UNPLACED for devices in problem.allowed]


def drafts(incidence: Incidence) -> Iterator[list[int] | None]:
    """Feasible placements (or ``None``) along every order of units and devices."""
    problem = incidence.problem
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


def _common_devices(problem: UnitProblem) -> frozenset[int]:
    """The devices that most units may choose from."""
    sets = Counter(frozenset(devices) for devices in problem.allowed if len(devices) > 1)
    return sets.most_common(1)[0][0] if sets else frozenset()


def _device_orders(problem: UnitProblem, devices: Sequence[int]) -> Iterator[tuple[int, ...]]:
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


def _heaviest_first(problem: UnitProblem) -> list[int]:
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
