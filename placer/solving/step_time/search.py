"""The search for the least step time: named baselines to start from, then annealing at several
scales, every move judged by a simulated step."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import numpy as np

from placer.problem import PlacementProblem
from placer.solving.baselines import BASELINES, DoesNotFitError
from placer.solving.baselines.favourite_program import solve_favourites
from placer.solving.baselines.list_scheduling import m_sct
from placer.solving.baselines.tasks import Tasks
from placer.solving.compiled.arrays import Arrays, Floats, Ints, ragged
from placer.solving.compiled.coarsening import coarsen
from placer.solving.compiled.schedule import Program, Timing, step_seconds
from placer.solving.compiled.step_annealing import anneal_step
from placer.solving.multilevel_search import Found, OnBetter, carry
from placer.solving.step_time.problem import StepProblem
from placer.solving.throughput.search import to_arrays

_POPULATION = 4
_COARSEST_UNITS = 12
_LEAST_SHRINK = 0.9
_CLUSTER_SHARE = 0.5
_ROUND_SECONDS = 0.4
"""Of annealing at one level before the next one has its turn."""

_COUNTED_STEPS = 2_000
"""Instead, where the same placement must come out every time."""

_TEMPERATURES = (0.03, 0.005, 0.0005)
"""Shares of the step time at which a round begins."""

_OTHERS = tuple(place for place in BASELINES.values() if place is not m_sct)
_COOLED = 0.02
_MOST_STEPS_PER_UNIT = 400
_MOST_IDLE_CYCLES = 40


def to_program(problem: PlacementProblem, unit_of: Sequence[int]) -> Program:
    """The ops and messages of a problem for compiled code."""
    tasks = Tasks(problem)
    forward = [
        [op for op in message.consumers if number in tasks.inputs[op]]
        for number, message in enumerate(tasks.messages)
    ]
    pin_start, pins = ragged(forward)
    out_start, outs = ragged(tasks.outputs)
    count = len(problem.device_names)
    bandwidth = np.array(problem.bandwidth, np.float64).reshape(count, count)
    return Program(
        np.array(problem.seconds, np.float64),
        np.array(unit_of, np.int64),
        np.array([message.producer for message in tasks.messages], np.int64),
        pin_start,
        pins,
        np.array([message.bytes for message in tasks.messages], np.float64),
        out_start,
        outs,
        np.array([len(inputs) for inputs in tasks.inputs], np.int64),
        np.array(problem.latency, np.float64),
        1.0 / bandwidth,
        np.array(problem.parallel_ops or (1,) * count, np.int64),
    )


class StepSearch:
    """The search over one problem; ``on_better`` is told of every better placement."""

    def __init__(
        self, step: StepProblem, hint: Sequence[int] | None, seed: int, on_better: OnBetter
    ) -> None:
        self.step = step
        self.arrays = to_arrays(step.loads)
        self.program = to_program(step.problem, step.loads.unit_of)
        self.random = np.random.default_rng(seed)
        self.on_better = on_better
        self.population: list[Found] = []
        self.counted = False
        if hint is not None:
            self.keep(np.array(hint, np.int64))

    def start(self, deadline: float) -> None:
        """The baselines that fit."""
        for baseline in (*_OTHERS, partial(m_sct, solve=solve_favourites)):
            if time.time() > deadline:
                return
            try:
                units = self.step.loads.project(baseline(self.step.problem))
            except DoesNotFitError:
                continue
            if self.step.is_feasible(units):
                self.keep(np.array(units, np.int64))

    def run(self, deadline: float, most_cycles: int | None = None) -> None:
        """Cycles until ``deadline`` (of ``time.time()``), ``most_cycles``, or no hope.

        With ``most_cycles`` a round has so many steps, else it takes so many seconds.
        """
        self.counted = most_cycles is not None
        cycles = idle = 0
        while self.population and time.time() < deadline and cycles != most_cycles:
            least = self.population[0].value
            parent = self.population[self.random.integers(len(self.population))]
            self.cycle(parent, float(self.random.choice(_TEMPERATURES)), deadline)
            cycles += 1
            idle = 0 if self.population[0].value < least else idle + 1
            if idle == _MOST_IDLE_CYCLES:
                return

    def cycle(self, parent: Found, heat: float, deadline: float) -> None:
        """From ``parent``, anneal at every level from the coarsest on."""
        levels, maps = self.levels(parent)
        device_of = parent.device_of
        for new_of in maps:
            device_of = carry(device_of, new_of)
        for depth in range(len(levels) - 1, -1, -1):
            unit_of = self.program.unit_of
            for new_of in maps[:depth]:
                unit_of = new_of[unit_of]
            program = self.program._replace(unit_of=unit_of)
            device_of = self.anneal(levels[depth], program, device_of, heat, deadline)
            if depth:
                device_of = device_of[maps[depth - 1]]
        self.keep(device_of)

    def anneal(
        self, arrays: Arrays, program: Program, device_of: Ints, heat: float, deadline: float
    ) -> Ints:
        """One round at one level."""
        free = np.flatnonzero(arrays.units.allowed.sum(axis=1) > 1)
        if not len(free):
            return device_of
        started = time.perf_counter()
        value = self.seconds(program, device_of)
        each = max(1e-6, time.perf_counter() - started)
        budget = max(0.0, min(_ROUND_SECONDS, deadline - time.time()))
        steps = _COUNTED_STEPS if self.counted else int(budget / each) + 1
        _, best, _, _ = anneal_step(
            program,
            arrays.units,
            arrays.devices.capacity,
            device_of,
            free,
            int(self.random.integers(1 << 31)),
            min(steps, _MOST_STEPS_PER_UNIT * len(free)),
            (heat * value + 1e-300, _COOLED * heat * value + 1e-301),
        )
        return best

    def levels(self, parent: Found) -> tuple[list[Arrays], list[Ints]]:
        """The problem at every scale, with units on different devices apart."""
        levels, maps = [self.arrays], list[Ints]()
        apart = parent.device_of
        size: Floats = self.arrays.units.seconds.min(axis=1)
        most = _CLUSTER_SHARE * size.sum() / self.arrays.units.seconds.shape[1]
        while len(apart) > _COARSEST_UNITS:
            seed = int(self.random.integers(1 << 31))
            size = levels[-1].units.seconds.min(axis=1)
            coarser, new_of = coarsen(levels[-1], size, most, _COARSEST_UNITS, seed, apart)
            if len(coarser.units.seconds) > _LEAST_SHRINK * len(apart):
                break
            apart = carry(apart, new_of)
            levels.append(coarser)
            maps.append(new_of)
        return levels, maps

    def seconds(self, program: Program, device_of: Ints) -> float:
        """The step time of a placement."""
        ops = len(program.unit_of)
        timing = Timing(np.zeros(ops), np.full(ops, -1, np.int64))
        return float(step_seconds(program, device_of, timing))

    def keep(self, device_of: Ints) -> None:
        """Among the best few different placements, if it is."""
        found = Found(self.seconds(self.program, device_of), device_of)
        if not self.population or found.value < self.population[0].value:
            self.on_better(device_of.tolist())
        if not any(abs(found.value - other.value) < 1e-15 for other in self.population):
            self.population.append(found)
            self.population.sort(key=lambda each: each.value)
            del self.population[_POPULATION:]
