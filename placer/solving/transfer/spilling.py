"""What goes to the host when the accelerators cannot hold everything.

Ops take of a *spill allowance* what ``spill_bytes`` of the problem says.  The question is always
the least transfer among the placements within an allowance; every status and bound is about it:

1. What was asked to the host, P, and nothing else.  If that has no placement,
2. the least S that a placement takes, and then
3. the allowance S + min(S - P, T - S) / 10, where T is what everything takes: a tenth more than
   has to leave, but no more than a tenth of what could stay, and what follows asked ops on top.
   Without the limit a table of gigabytes on the host would leave room for a whole tower beside it,
   which saves a transfer and ruins the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from placer.problem.placement_problem import PlacementProblem
from placer.solving.following import hold_followers
from placer.solving.process import clock
from placer.solving.reduction.unit_problem import SpillRules, UnitProblem, reduce_to_units
from placer.solving.solution import Solution, SolverParameters, Status
from placer.solving.transfer.schedule import SCHEDULE
from placer.solving.transfer.stage import solve_stage

UNPROVEN_SPILL = (
    "spill_unproven",
    "no placement without spilling was found in time, but none is proven impossible",
)
UNPROVEN_LEAST = (
    "spill_not_least",
    "the spill allowance follows the least spilled bytes that were found in time; less may be "
    "enough",
)


def may_spill(problem: PlacementProblem) -> bool:
    """Whether some op may leave the devices it is allowed on for the host."""
    return problem.spill == "auto" and any(
        spillable and problem.host not in allowed
        for spillable, allowed in zip(problem.spillable, problem.allowed, strict=True)
    )


def allowance_for(problem: PlacementProblem, least_bytes: int) -> int:
    """The spill allowance where no placement is known to take less than ``least_bytes``."""
    takes = problem.spill_bytes()
    following = sum(takes[op] for op in problem.followers)
    asked = problem.asked_spill_bytes() - following
    slack = min(least_bytes - asked, sum(takes) - least_bytes)
    return least_bytes + max(0, slack) * SCHEDULE.slack_percent // 100 + following


def solve_within(
    problem: PlacementProblem,
    allowance_bytes: int,
    parameters: SolverParameters,
    deadline: float,
    hints: Sequence[Sequence[int]],
) -> Solution:
    """The least transfer among the placements that take at most that allowance."""
    found = solve_stage(units_within(problem, allowance_bytes), parameters, deadline, hints)
    return replace(found, spill_allowance_bytes=allowance_bytes)


def units_within(problem: PlacementProblem, allowance_bytes: int) -> UnitProblem:
    """The problem of the placements that take at most that allowance."""
    rules = SpillRules(budget_bytes=allowance_bytes) if problem.spill == "auto" else None
    spills = allowance_bytes > problem.asked_spill_bytes()
    return reduce_to_units(hold_followers(problem, spills=spills), rules)


def solve_with_spilling(
    problem: PlacementProblem,
    parameters: SolverParameters,
    deadline: float,
    hints: Sequence[Sequence[int]],
    unspilled: Solution,
) -> Solution:
    """The best placement with the host in use; ``unspilled`` is what was learned without."""
    now = clock.monotonic()
    parameters = parameters.after(unspilled)
    least = solve_stage(
        reduce_to_units(hold_followers(problem, spills=True), SpillRules(minimise=True)),
        parameters,
        now + parameters.share(SCHEDULE.least_spill_share) * (deadline - now),
        hints,
    )
    warnings = list(unspilled.warnings + least.warnings)
    is_cut = unspilled.is_cut or least.is_cut
    if least.device_of is None or least.value is None:
        return replace(least, warnings=tuple(warnings), is_cut=is_cut)
    if unspilled.status is not Status.INFEASIBLE and least.value > problem.asked_spill_bytes():
        warnings.append(UNPROVEN_SPILL)
    if least.status is not Status.OPTIMAL:
        warnings.append(UNPROVEN_LEAST)
    allowance = allowance_for(problem, int(least.value))
    parameters = parameters.after(least)
    result = solve_within(problem, allowance, parameters, deadline, [least.device_of, *hints])
    return replace(
        result,
        warnings=tuple(warnings) + result.warnings,
        is_cut=is_cut or result.is_cut,
    )


def better(known: Solution | None, found: Solution | None) -> Solution | None:
    """The one that spills clearly less (by more than the slack that spilling has), else the one
    that transfers less, else the first."""
    if known is None or found is None:
        return known or found
    for one, other in ((known, found), (found, known)):
        if one.spilled_bytes * (100 + SCHEDULE.slack_percent) < other.spilled_bytes * 100:
            return one
    return min(known, found, key=lambda solution: solution.value or 0)
