"""What is searched along the orders, for either objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from placer.prediction.orders.possible_lifetimes import PossibleLifetimes
from placer.problem.placement_problem import PlacementProblem
from placer.solving.following import hold_followers
from placer.solving.objectives.refining import spilled_ops
from placer.solving.objectives.step_time.problem import StepProblem
from placer.solving.peaks.problem import PeakProblem, to_peak_problem
from placer.solving.peaks.step_search import to_step_peak_problem
from placer.solving.reduction.unit_problem import SpillRules, reduce_to_units
from placer.solving.search.depth import find_depths

SEARCHES = {
    "transfer": "placer.solving.peaks.search:search_peaks",
    "step-time": "placer.solving.peaks.step_search:search_step_peaks",
}
"""By objective."""


def to_search(
    problem: PlacementProblem,
    lifetimes: PossibleLifetimes,
    capacity: Sequence[int],
    starts: Sequence[Sequence[int]],
    *,
    spills_more: bool,
) -> PeakProblem:
    """What the first search is about; what one of the ``starts`` spills may be spilled, or all that
    may."""
    spilled = frozenset(op for start in starts for op in spilled_ops(problem, start))
    if problem.objective == "step-time":
        step = StepProblem(replace(problem, live_bytes=()), spilled)
        peaks = to_peak_problem(problem, step.units, lifetimes, capacity)
        return to_step_peak_problem(peaks, step)
    rules = SpillRules(candidates=spilled) if spilled else None
    held = problem
    if spills_more:
        rules = SpillRules()
    else:
        held = hold_followers(problem, spills=bool(spilled))
    units = reduce_to_units(replace(held, live_bytes=()), rules)
    positions = find_depths(problem, units).orders()
    return to_peak_problem(problem, units, lifetimes, capacity, positions=positions)
