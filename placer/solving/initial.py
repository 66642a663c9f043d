"""A first placement without OR-Tools, in a second or two for ten thousand units.

Rough placements (:mod:`placer.solving.drafts`) are improved by local search; then the problem is
solved again at several scales (:mod:`placer.solving.multilevel`), from scratch and from the best
so far.  The best of all is the answer.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from placer.solving.drafts import drafts, promising
from placer.solving.local_search import improve
from placer.solving.multilevel import Levels
from placer.solving.occupancy import Incidence, Occupancy
from placer.solving.reduced_problem import ReducedProblem
from placer.solving.repair import repair

_FRESH_STARTS = 3
_MOST_CYCLES = 6


def initial_placement(
    problem: ReducedProblem, deadline: float, hints: Sequence[Sequence[int]] = (), seed: int = 0
) -> tuple[int, ...] | None:
    """The best feasible placement found, one device per unit, or ``None``.

    ``hints`` are placements to try, made feasible if need be; ``deadline`` is a time of
    ``time.monotonic()``.  With time enough the result depends on the arguments only.
    """
    incidence = Incidence(problem)
    candidates = [state for hint in hints if (state := _from_hint(incidence, hint)) is not None]
    candidates += _improved_drafts(incidence, deadline)
    for start in range(_FRESH_STARTS):
        if _is_settled(candidates, deadline):
            break
        levels = Levels(incidence, seed + start)
        if not levels.maps:
            break
        found = levels.solve(deadline)
        candidates += [found] if found is not None else []
    best = min(candidates, key=_value, default=None)
    if best is None:
        return None
    for cycle in range(_MOST_CYCLES):
        if _is_settled([best], deadline):
            break
        before = best.value
        best = Levels(incidence, seed + cycle, best.device_of).improve(best, deadline)
        if best.value == before and cycle:
            break
    return tuple(best.device_of)


def _value(state: Occupancy) -> int:
    return state.value


def _is_settled(candidates: Sequence[Occupancy], deadline: float) -> bool:
    """Whether nothing is left to gain, or no time to gain it."""
    return any(state.value == 0 for state in candidates) or time.monotonic() > deadline


def _improved_drafts(incidence: Incidence, deadline: float) -> list[Occupancy]:
    """The best drafts after local search."""
    states = []
    for device_of in drafts(incidence):
        if device_of is not None:
            states.append(Occupancy(incidence, device_of))
        if _is_settled(states, deadline) and states:
            break
    states = promising(states)
    for state in states:
        if not _is_settled(states, deadline):
            improve(state, deadline)
    return states


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
