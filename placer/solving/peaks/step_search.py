"""The problems of searches along orders, and that for the least step time whose devices peak under
their caps: as :mod:`placer.solving.objectives.step_time.search`, with every move judged by what
devices hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from placer.prediction.orders.possible_lifetimes import PossibleLifetimes
from placer.problem.placement_problem import PlacementProblem
from placer.solving.compiled.arrays import Ints
from placer.solving.objectives.step_time.problem import StepProblem
from placer.solving.objectives.step_time.search import Steps, StepSearch, longest_seconds
from placer.solving.process.search_run import BestSoFar, Effort, Hints
from placer.solving.reduction.unit_problem import reduce_to_units
from placer.solving.search.depth import find_depths
from placer.solving.search.multilevel_search import Found, Level, OnBetter
from placer.solving.search.peak_problem import PeakProblem, to_peak_problem
from placer.solving.search.watch import Watch


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
    search = StepPeakSearch(problem, hints, effort.seed, best.keep)
    if problem.is_near:
        # near a placement that is above a cap, the search is over where one fits whose step is
        # hardly longer: a prediction says more than a longer search
        search.least = 1.02 * search.least_above(hints)
    search.run(effort.deadline, effort.work_limit, effort.threads)


class StepPeakSearch(StepSearch):
    """The search over one problem; ``on_better`` is told of every better placement.

    A placement that fits is worth its step, any other more than ``most``.
    """

    round_seconds = 0.1

    def __init__(
        self, problem: StepPeakProblem, hints: Hints, seed: int, on_better: OnBetter
    ) -> None:
        self.problem = problem
        self.watch = Watch(problem)
        super().__init__(problem.step, hints, seed, on_better)

    def data_of(self, parent: Found | None) -> Steps:
        """The step in each order, with what is held at the moments known by now."""
        watched = self.watch.watched(None if parent is None else parent.device_of)
        # most cycles keep the last estimated gap beyond the orders; the others take less
        share = 1.0 if self.random.random() < 0.7 else self.random.random()
        return Steps(
            programs=self.programs,
            held=watched.held,
            limit=self.watch.capacity - share * watched.beyond,
            moments=watched.moments,
            watched=watched,
        )

    def judge(self, level: Level[Steps], device_of: Ints) -> Found:
        """The placement with its step, or how much it is above the caps."""
        above = self.watch.share_above(device_of)
        if above:
            return Found(self.most * (1.0 + above), device_of)
        return Found(longest_seconds(level.data.programs, device_of), device_of)

    def least_above(self, hints: Hints) -> float:
        """The least step of the hints that are above a cap; none: less than any step."""
        placements = [np.array(hint, np.int64) for hint in hints]
        steps = [
            longest_seconds(self.programs, device_of)
            for device_of in placements
            if self.watch.share_above(device_of)
        ]
        return min(steps, default=-np.inf)

    def step(self, deadline: float) -> None:
        """Near a given placement nothing is drawn anew."""
        if self.problem.is_near and self.population:
            self.vary(deadline)
        else:
            super().step(deadline)
