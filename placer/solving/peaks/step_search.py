"""The problems of searches along orders, and that for the least step time whose devices peak under
their caps: as :mod:`placer.solving.objectives.step_time.search`, with every move judged by what
devices hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from placer.prediction.orders.possible_lifetimes import PossibleLifetimes
from placer.problem.placement_problem import PlacementProblem
from placer.solving.objectives.step_time.problem import StepProblem
from placer.solving.objectives.step_time.search import StepSearch, longest_seconds
from placer.solving.process.search_run import BestSoFar, Effort, Hints
from placer.solving.reduction.unit_problem import reduce_to_units
from placer.solving.search.depth import find_depths
from placer.solving.search.peak_problem import PeakProblem, to_peak_problem


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepPeakProblem(PeakProblem):
    """The same units and buffers, for the least time of the ``step``."""

    step: StepProblem

    def value(self, device_of_unit: Sequence[int]) -> float:
        """The seconds of one step."""
        return self.step.value(device_of_unit)


def peak_problem_of(
    problem: PlacementProblem,
    lifetimes: PossibleLifetimes,
    capacity: Sequence[int],
) -> PeakProblem:
    """Returns the problem that searches along the orders get, for either objective."""
    bare = replace(problem, live_bytes=())
    if problem.objective == "step-time":
        step = StepProblem(bare)
        peaks = to_peak_problem(problem, step.units, lifetimes, capacity)
        known = {field.name: getattr(peaks, field.name) for field in fields(peaks)}
        return StepPeakProblem(**known, step=step)
    units = reduce_to_units(bare)
    positions = find_depths(problem, units).orders()
    return to_peak_problem(problem, units, lifetimes, capacity, positions=positions)


def search_step_peaks(
    problem: StepPeakProblem, hints: Hints, best: BestSoFar, effort: Effort
) -> None:
    """The least step time under caps on peaks."""
    best.note_clock(effort)
    search = StepSearch(problem.step, hints, effort.seed, best.keep, problem)
    if problem.is_near:
        # near a placement that is above a cap, the search is over where one fits whose step is
        # hardly longer: a prediction says more than a longer search
        search.least = 1.02 * least_above(search, hints)
    search.run(effort.deadline, effort.work_limit, effort.threads)


def least_above(search: StepSearch, hints: Hints) -> float:
    """The least step of the hints that are above a cap; none: less than any step."""
    placements = [np.array(hint, np.int64) for hint in hints]
    steps = [
        longest_seconds(search.programs, device_of)
        for device_of in placements
        if search.watch.share_above(device_of)
    ]
    return min(steps, default=-np.inf)
