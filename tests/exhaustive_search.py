"""A stand-in for the solver process that tries every placement."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from placer.solving.reduction.unit_problem import UnitProblem
from placer.solving.solution import Solution, Status


def search_exhaustively(
    search: str,
    problem: UnitProblem,
    hints: Sequence[Sequence[int]],
    parameters: object,
    limit: float,
) -> Solution:
    """What a perfect child would answer."""
    placements = [p for p in itertools.product(*problem.allowed) if problem.is_feasible(p)]
    if not placements:
        return Solution(status=Status.INFEASIBLE)
    best = min(placements, key=problem.value)
    return Solution(status=Status.OPTIMAL, device_of=best, lower_bound=problem.value(best))
