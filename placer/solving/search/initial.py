"""A first placement without OR-Tools and without compiled code, in a second or two.

Rough placements (:mod:`placer.solving.search.drafts`) and hints, improved by local search.  What
the search in the solver process makes of them is far better; this is what is left if it fails.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from placer.solving.reduction.unit_problem import UnitProblem
from placer.solving.search.drafts import drafts, promising
from placer.solving.search.local_search import improve
from placer.solving.search.occupancy import Incidence, Occupancy
from placer.solving.search.repair import repair


def initial_placement(
    problem: UnitProblem, deadline: float, hints: Sequence[Sequence[int]] = ()
) -> tuple[int, ...] | None:
    """The best feasible placement found, one device per unit, or ``None``.

    ``hints`` are placements to try, made feasible if need be; ``deadline`` is a time of
    ``time.monotonic()``.  With time enough the result depends on the arguments only.
    """
    incidence = Incidence(problem)
    candidates = [state for hint in hints if (state := _from_hint(incidence, hint)) is not None]
    candidates += _improved_drafts(incidence, deadline)
    best = min(candidates, key=_value, default=None)
    return None if best is None else tuple(best.device_of)


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
