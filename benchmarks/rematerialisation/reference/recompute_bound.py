"""A bound on what is computed again: the memory of some moments alone.

A relaxation of Checkmate's integer program (Jain et al., "Checkmate: Breaking the Memory Wall with
Optimal Tensor Rematerialization", MLSys 2020), which counts memory between any two computations.
Here it is counted only while some nodes are computed for the first time, those at which the given
order holds more than the budget; what is held while nodes are computed again is left out.

- Variables: held(v, k), whether v waits in memory while the k-th node is first computed; again(v,
  k), whether v is computed again after that; again(v).
- Objective: the seconds of what is computed again.
- Constraints: (1) what is held keeps the budget; (2) what is read later is held or computed again
  later; (3) so is what is read by what is computed again later; (4) what is computed again after a
  moment is so after those before it; (5) with two computations at most, what is not held is not
  computed again after its next reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from ortools.sat.python import cp_model

from placer.fitting.recompute_problem import RematerialisationProblem
from placer.solving.process import cp_sat_run
from placer.solving.process.search_run import BestSoFar, Effort
from placer.solving.solution import Status

from .whole_seconds import WholeSeconds

_MOST_PAIRS = 10_000
"""Of a node and a moment: a larger model proves less in a minute than one with fewer moments."""


class MomentsModel:
    """The CP-SAT model of a problem whose order is kept; its bound holds for the problem."""

    def __init__(self, problem: RematerialisationProblem) -> None:
        self.problem = problem
        self.model = cp_model.CpModel()
        self.seconds = WholeSeconds(problem)
        self.stage = {node: k for k, node in enumerate(problem.order)}
        self.readers: list[list[int]] = [[] for _ in problem.order]  # stages of first reads
        for node in problem.order:
            for source in set(problem.inputs[node]):
                self.readers[source].append(self.stage[node])
        kept = set(problem.once)
        self.again = {
            node: self.model.new_bool_var("")
            for node, stages in enumerate(self.readers)
            if stages and node not in kept
        }
        self.moments = full_moments(problem)
        self.held: dict[tuple[int, int], Any] = {}
        self.later: dict[tuple[int, int], Any] = {}
        for moment in self.moments:
            self._hold(moment)
            self._serve(moment)
        for node in self.again:
            self._follow(node)
        costs = self.seconds.costs
        self.objective = sum(costs[node] * again for node, again in self.again.items())
        self.model.minimize(self.objective)

    def extra(self, sequence: Sequence[int]) -> int:
        """What the objective says of ``sequence``."""
        costs = self.seconds.costs
        return sum(costs[node] for node in sequence) - sum(costs)

    def lower_bound(self, objective: float) -> float:
        """The bound of the problem, in its seconds."""
        return self.seconds.lower_bound(objective, len(self.again))

    def _hold(self, moment: int) -> None:
        """Constraint 1; a node that is read at the moment is held."""
        problem, model = self.problem, self.model
        own = problem.order[moment]
        room = problem.budget_bytes - problem.bytes[own] - problem.beside("first_bytes")[own]
        terms = []
        for node in problem.order[:moment]:
            if not self.readers[node]:
                continue
            if node in problem.inputs[own]:
                self.held[node, moment] = 1
                room -= problem.bytes[node]
            else:
                held = self.held[node, moment] = model.new_bool_var("")
                terms.append(problem.bytes[node] * held)
            again = self.again.get(node)
            if again is None:
                self.later[node, moment] = 0
                continue
            later = self.later[node, moment] = model.new_bool_var("")
            model.add(later <= again)
        if terms or room < 0:
            model.add(sum(terms) <= room)

    def _serve(self, moment: int) -> None:
        """Constraints 2 and 3."""
        problem, model = self.problem, self.model
        for node in problem.order[:moment]:
            if not self.readers[node]:
                continue
            if self.readers[node][-1] > moment:  # at the moment itself it is held
                model.add(self.held[node, moment] + self.later[node, moment] >= 1)
            if node not in self.again:
                continue
            for source in set(problem.inputs[node]):
                found = self.held[source, moment] + self.later[source, moment]
                model.add(found >= self.later[node, moment])

    def _follow(self, node: int) -> None:
        """Constraints 4 and 5: one node from moment to moment."""
        moments = [moment for moment in self.moments if moment > self.stage[node]]
        for before, after in pairwise(moments):
            self.model.add(self.later[node, after] <= self.later[node, before])
        if self.problem.most_computations > 2:
            return
        for moment in moments:
            read = next((stage for stage in self.readers[node] if stage > moment), len(self.stage))
            for full in [other for other in moments if other >= read][:1]:
                self.model.add(self.later[node, full] <= self.held[node, moment])


def full_moments(problem: RematerialisationProblem) -> list[int]:
    """Places of the given order at which it holds more than the budget: the fullest, and others
    evenly, as many as make a model that is not too large."""
    held = problem.held_along(problem.order)
    full = [place for place, size in enumerate(held) if size > problem.budget_bytes]
    most = max(1, _MOST_PAIRS // max(len(problem.order), 1))
    if len(full) <= most:
        return full
    evenly = {full[number * len(full) // most] for number in range(most)}
    return sorted(evenly | {max(full, key=lambda place: held[place])})


def raise_bound(problem: RematerialisationProblem, best: BestSoFar, effort: Effort) -> None:
    """Runs CP-SAT on the model; tells the bounds that it proves, up to the best sequence known."""
    model = MomentsModel(problem)
    known = best.answer.device_of
    if known is not None:  # what takes as long as that is of no interest
        least = model.extra(known)
        model.model.add(model.objective < least)
    solver = cp_sat_run.cp_sat_solver(effort)
    solver.best_bound_callback = lambda bound: best.raise_bound(model.lower_bound(bound))
    status = solver.solve(model.model)
    if status != cp_model.INFEASIBLE:
        best.raise_bound(model.lower_bound(solver.best_objective_bound))
    elif known is None:
        best.prove(Status.INFEASIBLE)
    else:
        best.raise_bound(model.lower_bound(least))
