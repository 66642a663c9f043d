"""What goes to the host when the accelerators cannot hold everything.

First the least footprint (``footprint_bytes`` of the problem) that has to leave, then the least
transfer among the placements that spill at most 1.1 times as much, in groups that are worth it:
those of the least, and any of at least a hundredth of it.  Without the last rule a table of
gigabytes on the host would leave room for a whole tower beside it, which saves a transfer and ruins
the step.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from placer.problem.placement_problem import PlacementProblem
from placer.solving.reduction.unit_problem import SpillRules, reduce_to_units
from placer.solving.solution import Solution, SolverParameters, Status
from placer.solving.transfer.schedule import SCHEDULE
from placer.solving.transfer.stage import solve_stage

UNPROVEN_SPILL = (
    "spill_unproven",
    "no placement without spilling was found in time, but none is proven impossible",
)
UNPROVEN_LEAST = (
    "spill_not_least",
    "the spilled bytes are the least found in time, not proven to be the least possible",
)


def may_spill(problem: PlacementProblem) -> bool:
    """Whether some op may leave the devices it is allowed on for the host."""
    return problem.spill == "auto" and any(
        spillable and problem.host not in allowed
        for spillable, allowed in zip(problem.spillable, problem.allowed, strict=True)
    )


def solve_with_spilling(
    problem: PlacementProblem,
    parameters: SolverParameters,
    deadline: float,
    hints: Sequence[Sequence[int]],
    unspilled: Solution,
) -> Solution:
    """The best placement with the host in use; ``unspilled`` is what was learned without.

    The result is optimal only if both that spilling is needed and the least spilled bytes are
    proven.
    """
    now = time.monotonic()
    least = solve_stage(
        reduce_to_units(problem, SpillRules(minimise=True)),
        parameters,
        now + SCHEDULE.least_spill_share * (deadline - now),
        hints,
    )
    warnings = list(unspilled.warnings + least.warnings)
    if unspilled.status is not Status.INFEASIBLE:
        warnings.append(UNPROVEN_SPILL)
    if least.device_of is None or least.value is None:
        return replace(least, warnings=tuple(warnings))
    if least.status is not Status.OPTIMAL:
        warnings.append(UNPROVEN_LEAST)
    least_bytes = int(least.value)
    budget_bytes = least_bytes + least_bytes * SCHEDULE.slack_percent // 100
    result = solve_stage(
        reduce_to_units(
            problem,
            SpillRules(
                budget_bytes=budget_bytes,
                candidates=_candidates(problem, least.device_of, least_bytes),
            ),
        ),
        parameters,
        deadline,
        [least.device_of, *hints],
    )
    warnings += result.warnings
    return _qualified(result, warnings)


def _candidates(
    problem: PlacementProblem, least: Sequence[int], least_bytes: int
) -> frozenset[int]:
    """The ops of groups that the placement ``least`` spills, or that are large beside it.

    What has no footprint makes no room: it spills only where it may go nowhere else.
    """
    footprint: dict[int, int] = {}
    for group, size in zip(problem.group, problem.footprint_bytes(), strict=True):
        footprint[group] = footprint.get(group, 0) + size
    smallest = max(1, -(-least_bytes * SCHEDULE.smallest_percent // 100))
    return frozenset(
        op
        for op, group in enumerate(problem.group)
        if footprint[group] >= smallest
        or not problem.allowed[op]
        or (footprint[group] and least[op] == problem.host)
    )


def _qualified(result: Solution, warnings: Sequence[tuple[str, str]]) -> Solution:
    """The result with all warnings, claiming no more than what was proven on the way.

    With a least that is not proven, the wrong groups may have been candidates, and the bound is
    not one of the problem.  If nothing needs to be spilled after all, the placements that spill
    nothing were among those searched, and the bound holds.
    """
    result = replace(result, warnings=tuple(warnings))
    if UNPROVEN_LEAST in warnings:
        result = replace(result, lower_bound=None)
    unproven = UNPROVEN_SPILL in warnings or UNPROVEN_LEAST in warnings
    if unproven and result.status is Status.OPTIMAL:
        result = replace(result, status=Status.FEASIBLE)
    return result
