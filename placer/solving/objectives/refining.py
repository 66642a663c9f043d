"""From a placement that fits to the best one for an objective in seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from placer.prediction.scoring import score
from placer.problem.placement_problem import PlacementProblem
from placer.solving.process.child_search import SearchProblem, search_in_child
from placer.solving.reduction.unit_problem import UnitProblem
from placer.solving.solution import Solution, SolverParameters, Status

_OPTIMAL_GAP = 1e-6
"""Seconds are floats: within this share of each other, value and bound are one."""


class UnitObjective(SearchProblem, Protocol):
    """A unit problem with what its placements are worth."""

    @property
    def units(self) -> UnitProblem:
        """The units, their rows and allowed devices."""
        ...


def spilled_ops(problem: PlacementProblem, device_of: Sequence[int]) -> list[int]:
    """The ops on the host that would be allowed elsewhere only."""
    return [
        op
        for op, device in enumerate(device_of)
        if device == problem.host and device not in problem.allowed[op]
    ]


def refine(
    problem: PlacementProblem,
    search: str,
    objective: UnitObjective,
    rank: Callable[[Sequence[int]], tuple[float, ...]],
    least: Callable[[], float],
    parameters: SolverParameters,
    deadline: float,
    feasible: Solution,
    hint: Sequence[int] | None,
    alike_share: float = 0.0,
) -> Solution:
    """The best placement until ``deadline`` (of ``time.monotonic()``), begun at ``feasible``: one
    that keeps all limits and says what has to be spilled.

    ``search`` (``package.module:function``) solves ``objective`` in the solver process.  ``rank``
    of a placement of its units begins with its value by the scorer, in seconds; where values
    differ by ``alike_share`` or less, what follows in it decides.  ``least`` is a lower bound that
    needs no search.  Where something is spilled, no bound is claimed.
    """
    assert feasible.device_of is not None
    units = objective.units
    starts = [units.project(feasible.device_of)]
    if hint is not None and objective.is_feasible(units.project(hint)):
        starts.append(units.project(hint))
    ranked = [(rank(each), each) for each in dict.fromkeys(starts)]
    start = min(ranked)[1]
    seconds = max(0.0, deadline - time.monotonic())
    found = search_in_child(search, objective, [start], parameters, seconds)
    if found.device_of is not None:
        ranked.append((rank(found.device_of), found.device_of))
    most = min(value for (value, *_), _ in ranked) * (1.0 + alike_share)
    alike = [(figures, each) for figures, each in ranked if figures[0] <= most]
    (value, *_), best = min(alike, key=lambda pair: (*pair[0][1:], pair[0][0]))
    device_of = units.expand(best)
    spills = spilled_ops(problem, feasible.device_of)
    bound = None if spills else max(found.lower_bound or 0.0, least()) or None
    is_optimal = bound is not None and bound >= value * (1.0 - _OPTIMAL_GAP)
    return replace(
        feasible,
        status=Status.OPTIMAL if is_optimal else Status.FEASIBLE,
        device_of=device_of,
        value=value,
        lower_bound=min(bound, value) if bound is not None else None,
        spilled_bytes=score(problem, device_of).spilled_bytes,
        warnings=(*feasible.warnings, *found.warnings),
    )
