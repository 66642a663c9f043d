"""Why a problem is infeasible: elements that no placement keeps together, each of them needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from placer.problem.conflict import Conflict
from placer.problem.placement_problem import PlacementProblem
from placer.solving.conflicts.description import describe
from placer.solving.conflicts.elements import Elements
from placer.solving.conflicts.fixes import find_fixes
from placer.solving.conflicts.packing import fits
from placer.solving.process import clock

TIME_LIMIT_SECONDS = 10.0
"""Seconds of the search for a conflict and for what would fit."""

LEAST_SECONDS = 1.0
"""A proof that nothing fits is worth little without what is in conflict."""


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
    return min(TIME_LIMIT_SECONDS, max(LEAST_SECONDS, deadline - clock.monotonic()))


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
