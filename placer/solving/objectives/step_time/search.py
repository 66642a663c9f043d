"""The search for the least step time: named baselines to start from, and HEFT at any scale; then
annealing at several scales, every move judged by a simulated step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from placer.prediction.times.step_time import forward_messages, in_order, step_orders
from placer.problem.placement_problem import PlacementProblem
from placer.solving.baselines import BASELINES, DoesNotFitError
from placer.solving.baselines.list_scheduling import heft
from placer.solving.compiled.arrays import Floats, Ints, ragged
from placer.solving.compiled.step_annealing import anneal_step
from placer.solving.compiled.step_simulation import Program, Timing, step_seconds
from placer.solving.objectives.step_time.problem import StepProblem
from placer.solving.objectives.throughput.search import load_arrays
from placer.solving.process.search_run import BestSoFar, Effort, Hints
from placer.solving.search.multilevel_search import Found, Level, MultilevelSearch, OnBetter
from placer.solving.search.peak_problem import PeakProblem, to_row_problem
from placer.solving.search.watch import Watch, Watched

Programs = tuple[Program, ...]
"""One step in several orders."""

Baseline = Callable[[PlacementProblem], Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Steps:
    """The step of the units of a level, and what they hold, of which no device is to hold more than
    its ``limit``."""

    programs: Programs
    limit: Floats
    watched: Watched

    def joined(self, new_of: Ints) -> Steps:
        """The step of fewer units."""
        programs = tuple(each._replace(unit_of=new_of[each.unit_of]) for each in self.programs)
        return replace(self, programs=programs, watched=self.watched.joined(new_of))


def to_program(
    problem: PlacementProblem, unit_of: Sequence[int], order: Sequence[int] | None = None
) -> Program:
    """The ops and messages of a problem for compiled code, numbered as they come in ``order``: of
    what is ready at the same time, the first goes first."""
    numbers = range(len(unit_of)) if order is None else order
    place = {op: i for i, op in enumerate(numbers)}
    forward, _ = forward_messages(problem)
    messages = forward if order is None else in_order(forward, order)
    outputs: list[list[int]] = [[] for _ in numbers]
    for number, message in enumerate(messages):
        outputs[place[message.producer]].append(number)
    pin_start, pins = ragged([[place[op] for op in m.consumers] for m in messages])
    out_start, outs = ragged(outputs)
    count = len(problem.device_names)
    bandwidth = np.array(problem.bandwidth, np.float64).reshape(count, count)
    return Program(
        np.array(problem.seconds, np.float64)[numbers],
        np.array(unit_of, np.int64)[numbers],
        np.array([place[m.producer] for m in messages], np.int64),
        pin_start,
        pins,
        np.array([m.bytes for m in messages], np.float64),
        out_start,
        outs,
        np.bincount(pins, minlength=len(numbers)),
        np.array(problem.latency, np.float64),
        1.0 / bandwidth,
        np.array(problem.parallel_ops or (1,) * count, np.int64),
    )


def longest_seconds(programs: Programs, device_of: Ints) -> float:
    """The longest of the steps of a placement, one per order."""
    ops = len(programs[0].unit_of)
    timing = Timing(np.zeros(ops), np.full(ops, -1, np.int64))
    return max(float(step_seconds(program, device_of, timing)) for program in programs)


def search_steps(step: StepProblem, hints: Hints, best: BestSoFar, effort: Effort) -> None:
    """The least step time: baselines, then annealing of simulated steps."""
    best.note_clock(effort)
    best.raise_bound(step.least())
    search = StepSearch(step, hints, effort.seed, best.keep)
    search.start(effort.until(0.4))  # at most, for the baselines
    search.run(effort.deadline, effort.work_limit, effort.threads)


class StepSearch(MultilevelSearch[Steps]):
    """The search over one problem; ``on_better`` is told of every better placement.

    With ``peaks``, a placement that fits is worth its step, any other more than ``most``.
    """

    coarsest_units = 12
    temperatures = (0.03, 0.005, 0.0005)
    fresh_temperature = 0.005
    temperature_fall = 1.0
    most_idle_cycles = 40

    def __init__(
        self,
        step: StepProblem,
        hints: Hints,
        seed: int,
        on_better: OnBetter,
        peaks: PeakProblem | None = None,
    ) -> None:
        self.step_problem = step
        # where only rows count, moves keep them, and nothing is held beside
        self.watch = Watch(peaks or to_row_problem(replace(step.units, rows=())))
        # of annealing at one level before the next has its turn
        self.round_seconds = 0.1 if peaks else 0.4
        self.programs = tuple(
            to_program(step.problem, step.units.unit_of, order)
            for order in step_orders(len(step.problem.op_names))
        )
        self.deadline = float("inf")
        self.counted = False
        super().__init__(load_arrays(step.loads), hints, seed, on_better)

    def start(self, deadline: float) -> None:
        """The baselines that fit."""
        for baseline in BASELINES.values():
            if time.time() > deadline:
                return
            for found in self.place(baseline, self.step_problem.problem):
                self.keep(found)

    def run(self, deadline: float, most_cycles: int | None = None, workers: int = 1) -> None:
        """As for any search; with ``most_cycles`` a round has so many steps, else it takes so many
        seconds."""
        self.deadline = deadline
        self.counted = most_cycles is not None
        super().run(deadline, most_cycles, workers)

    def data_of(self, parent: Found | None) -> Steps:
        """The step in each order, with what is held at the moments known by now."""
        watched = self.watch.watched(None if parent is None else parent.device_of)
        # most cycles keep the last estimated gap beyond the orders; the others take less
        is_less = self.watch.problem.rows is None and self.random.random() >= 0.7
        share = self.random.random() if is_less else 1.0
        limit = self.watch.capacity - share * watched.beyond
        return Steps(programs=self.programs, limit=limit, watched=watched)

    def judge(self, level: Level[Steps], device_of: Ints) -> Found:
        """The placement with the longest of its steps, one per order, or how much it is above the
        caps."""
        above = self.watch.share_above(device_of)
        if above:
            return Found(self.most * (1.0 + above), device_of)
        return Found(longest_seconds(level.data.programs, device_of), device_of)

    def fresh(self, level: Level[Steps]) -> list[Found]:
        """HEFT where units that are one at this scale go to a device together."""
        unit_of = level.data.programs[0].unit_of
        problem = replace(self.step_problem.problem, group=tuple(unit_of.tolist()))
        finest = self.place(heft, problem)
        anchor = np.unique(unit_of, return_index=True)[1]
        ops = self.programs[0].unit_of
        return [Found(found.value, found.device_of[ops[anchor]]) for found in finest]

    def place(self, baseline: Baseline, problem: PlacementProblem) -> list[Found]:
        """Returns a baseline's placement of a problem with the same ops, if it fits."""
        try:
            units = self.step_problem.units.project(baseline(problem))
        except DoesNotFitError:
            return []
        fits = self.step_problem.is_feasible(units)
        return [self.judge(self.finest, np.array(units, np.int64))] if fits else []

    def improve(self, level: Level[Steps], device_of: Ints, free: Ints, temperature: float) -> Ints:
        """One round of annealing at one level, in one of the orders; temperatures are shares of the
        step time."""
        steps, programs = level.data, level.data.programs
        started = time.perf_counter()
        heat = temperature * longest_seconds(programs, device_of)
        each = max(1e-6, time.perf_counter() - started) / len(programs)
        budget = max(0.0, min(self.round_seconds, self.deadline - time.time()))
        # where work is counted, all must be the same every time
        count = 2_000 if self.counted else int(budget / each) + 1
        return anneal_step(
            programs[self.random.integers(len(programs))],
            level.arrays.units,
            level.arrays.devices.capacity,
            steps.watched.held,
            steps.limit,
            steps.watched.moments,
            device_of,
            free,
            self.next_seed(),
            min(count, 400 * len(free)),
            (heat + 1e-300, 0.02 * heat + 1e-301),  # at the begin and the end of a round
        )

    def step(self, deadline: float) -> None:
        """Near a given placement nothing is drawn anew."""
        if self.watch.problem.is_near and self.population:
            self.vary(deadline)
        else:
            super().step(deadline)

    def levels(self, parent: Found | None, apart: Ints | None) -> list[Level[Steps]]:
        """The problem at every scale; from nothing, up to any of them."""
        levels = super().levels(parent, apart)
        return levels[: 1 + int(self.random.integers(len(levels)))] if apart is None else levels
