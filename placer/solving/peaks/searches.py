"""The searches along the orders, for either objective."""

from collections.abc import Sequence
from dataclasses import replace

from placer.prediction.orders.possible_lifetimes import PossibleLifetimes
from placer.problem.placement_problem import PlacementProblem
from placer.solving.objectives.step_time.problem import StepProblem
from placer.solving.peaks.step_search import to_step_peak_problem
from placer.solving.reduction.unit_problem import reduce_to_units
from placer.solving.search.depth import find_depths
from placer.solving.search.peak_problem import PeakProblem, to_peak_problem

SEARCHES = {
    "transfer": "placer.solving.search.peak_search:search_peaks",
    "step-time": "placer.solving.peaks.step_search:search_step_peaks",
}
"""By objective."""


def peak_problem_of(
    problem: PlacementProblem,
    lifetimes: PossibleLifetimes,
    capacity: Sequence[int],
) -> PeakProblem:
    """Returns the problem that searches along the orders get."""
    if problem.objective == "step-time":
        step = StepProblem(replace(problem, live_bytes=()))
        peaks = to_peak_problem(problem, step.units, lifetimes, capacity)
        return to_step_peak_problem(peaks, step)
    units = reduce_to_units(replace(problem, live_bytes=()))
    positions = find_depths(problem, units).orders()
    return to_peak_problem(problem, units, lifetimes, capacity, positions=positions)
