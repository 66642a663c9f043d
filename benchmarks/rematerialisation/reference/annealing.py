"""The search for the fewest seconds within a budget, in the solver process: annealing of sequences,
and the exact model where it is small enough."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from placer.fitting.recompute_problem import RematerialisationProblem
from placer.fitting.recompute_sequences import first_sequence
from placer.solving.compiled.arrays import Ints, ragged
from placer.solving.process.search_run import BestSoFar, Effort, Hints
from placer.solving.solution import Status

from .sequence_annealing import Program, anneal_sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnealingSchedule:
    """How sequences are annealed: rounds of so many steps, from the best known, the start, or the
    last of a round that found nothing."""

    steps_per_node: int = 600
    least_steps: int = 40_000
    hot: tuple[float, float] = (1.0, 0.3)  # in turns: shares of the mean seconds of a node
    cold: float = 0.003
    weight: float = 1.0  # of the mean excess; it rises while nothing is found and falls else
    weight_rise: float = 3.0
    weight_fall: float = 0.7
    weights: tuple[float, float] = (1e-3, 1e6)
    fresh_rounds: int = 3  # one in so many begins at the given order
    counted_rounds: int = 1  # a step of the work limit


_SCHEDULE = AnnealingSchedule()

_MOST_EXACT_NODES = 150
"""Larger exact models find and prove nothing in a minute."""

_FIRST_SHARE = 0.1
"""Of the time, before a bound is sought: what takes as long as what is found then is left out."""

_BOUND_SHARE = 0.3
"""Of what is left then, at most."""

_ANNEALING_SHARE = 0.25
"""Of what is left then, where the exact model comes last."""


def search_sequences(
    problem: RematerialisationProblem, hints: Hints, best: BestSoFar, effort: Effort
) -> None:
    """The fewest seconds; the answers' placements are sequences of nodes."""
    if problem.working_set_bytes > problem.budget_bytes:
        best.prove(Status.INFEASIBLE)
        return
    best.raise_bound(problem.least_seconds)
    found = _Found(problem, best)
    for sequence in (problem.order, *hints):
        found.offer(sequence)
    if found.is_best:
        return
    start: Sequence[int] = found.best.answer.device_of or (
        hints[0] if hints else first_sequence(problem)
    )
    found.offer(start)
    if problem.keep_order and problem.most_computations == 1:  # there is no other sequence
        best.prove(Status.INFEASIBLE)
        return
    best.note_clock(effort)
    until = effort.until(_FIRST_SHARE) if problem.keep_order else effort.deadline
    anneal(found, effort, until, np.array(start, np.int64))
    if problem.keep_order and not found.is_best:
        _prove(found, effort)


def _prove(found: _Found, effort: Effort) -> None:
    """A bound for the order that is kept; then the search goes on until it is reached."""
    from .recompute_bound import raise_bound
    from .retention_intervals import prove

    problem, best = found.problem, found.best
    raise_bound(problem, best, replace(effort, deadline=effort.until(_BOUND_SHARE)))
    if best.answer.status in (Status.OPTIMAL, Status.INFEASIBLE):
        return
    if found.is_best:
        best.prove(Status.OPTIMAL)
        return
    exact = problem.most_computations == 2 and len(problem.order) <= _MOST_EXACT_NODES
    if not effort.is_counted:
        until = effort.until(_ANNEALING_SHARE) if exact else effort.deadline
        other = replace(effort, seed=effort.seed + 1)
        anneal(found, other, until, np.array(best.answer.device_of or problem.order, np.int64))
    if exact and not found.is_best:
        prove(problem, best, effort)


class _Found:
    """Keeps what is better than all before."""

    def __init__(self, problem: RematerialisationProblem, best: BestSoFar) -> None:
        self.problem, self.best = problem, best
        self.lock = threading.Lock()
        known = best.answer.device_of
        self.least = math.inf if known is None else problem.value(known)

    @property
    def is_best(self) -> bool:
        """Whether a bound says that nothing takes fewer seconds."""
        bound = self.best.answer.lower_bound
        return bound is not None and self.least <= bound

    def offer(self, sequence: Iterable[int]) -> None:
        """Tells of a sequence if it is better."""
        found = tuple(int(node) for node in sequence)
        with self.lock:
            value = self.problem.value(found)
            if value < self.least and self.problem.is_feasible(found):
                self.least = value
                self.best.keep(found)
                if self.is_best:
                    self.best.prove(Status.OPTIMAL)


def anneal(found: _Found, effort: Effort, deadline: float, start: Ints) -> None:
    """Rounds of annealing from ``start`` until ``deadline``, with as many threads as ``effort``
    has, each with its own seed."""
    program = to_program(found.problem)
    rounds = None if effort.work_limit is None else effort.work_limit * _SCHEDULE.counted_rounds
    threads = [
        threading.Thread(
            target=_anneal_rounds,
            args=(
                program,
                found,
                start,
                1_000_003 * effort.seed + 10_007 * number,
                deadline,
                rounds,
            ),
            daemon=True,
        )
        for number in range(effort.threads)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _anneal_rounds(
    program: Program,
    found: _Found,
    start: Ints,
    seed: int,
    deadline: float,
    rounds: int | None,
) -> None:
    schedule, problem = _SCHEDULE, found.problem
    nodes = len(problem.order)
    steps = max(schedule.least_steps, schedule.steps_per_node * nodes)
    mean = max(problem.least_seconds, 1e-300) / nodes
    scale = mean / (10.0 * max(1.0, float(program.bytes.mean())))
    fresh = start_of(problem)
    weight, now, number = schedule.weight, start, 0
    begun = [int(node) for node in start]
    fits = problem.is_feasible(begun)
    own: Ints | None = start if fits else None
    least = problem.value(begun) if fits else math.inf
    while not found.is_best and time.time() < deadline and (rounds is None or number < rounds):
        hot = schedule.hot[number % len(schedule.hot)] * mean
        value, _, sequence, last = anneal_sequence(
            program,
            now,
            float(problem.budget_bytes),
            problem.keep_order,
            (seed + number) % 2**32,
            steps,
            (hot, schedule.cold * mean),
            weight * scale,
        )
        number += 1
        feasible = math.isfinite(value)
        weight *= schedule.weight_fall if feasible else schedule.weight_rise
        weight = min(max(weight, schedule.weights[0]), schedule.weights[1])
        if value < least:
            least, own = value, sequence
            found.offer(sequence)
        again = fresh if number % schedule.fresh_rounds == 0 else own
        now = last if again is None else again


def start_of(problem: RematerialisationProblem) -> Ints:
    """Every node once, in the given order."""
    return np.array(problem.order, np.int64)


def to_program(problem: RematerialisationProblem) -> Program:
    """The problem for compiled code."""
    readers: list[list[int]] = [[] for _ in problem.bytes]
    inputs = [sorted(set(sources)) for sources in problem.inputs]
    for node, sources in enumerate(inputs):
        for source in sources:
            readers[source].append(node)
    most = np.full(len(problem.bytes), problem.most_computations, np.int64)
    most[list(problem.once)] = 1
    first, again = problem.beside("first_bytes"), problem.beside("again_bytes")
    between = [problem.beside("between_bytes")[node] for node in problem.order]
    return Program(
        np.array(problem.seconds, np.float64),
        np.array(problem.bytes, np.float64),
        *ragged(inputs),
        *ragged(readers),
        most,
        np.array(first, np.float64),
        np.array([*between, 0], np.float64),
        np.array(again, np.float64),
    )
