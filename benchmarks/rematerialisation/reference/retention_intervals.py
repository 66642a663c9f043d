"""The exact model: retention intervals.

After MOCCASIN (Bartan, Li, Teague, Lott and Dilkina, "Moccasin: Efficient Tensor Rematerialization
for Neural Networks", ICML 2023), with the recomputations of a stage in any order and not only in
that of the input: else the bound would not be one.

- Data: nodes v in the given order; the first computation of the k-th node ends stage k.  Stage k
  has n moments before it, one for each node that may be computed again in it.
- Variables: end(v), when the first copy is dropped; whether v is computed again, when (a moment of
  a later stage) and when that copy is dropped.
- Objective: the seconds of what is computed again.
- Constraints: (1) one computation at a time; (2) a computation of w that reads v lies within a
  retention interval of v; (3) at no time do the intervals hold more than the budget, what is held
  beside them included.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ortools.sat.python import cp_model

from placer.fitting.recompute_problem import RematerialisationProblem
from placer.solving.process import cp_sat_run
from placer.solving.process.search_run import BestSoFar, Effort
from placer.solving.solution import Status

from .whole_seconds import WholeSeconds


class RetentionModel:
    """The CP-SAT model of a problem whose order is kept, every node computed twice at most."""

    def __init__(self, problem: RematerialisationProblem) -> None:
        self.problem = problem
        self.model = cp_model.CpModel()
        count = len(problem.order)
        self.stage = {node: k for k, node in enumerate(problem.order)}
        self.first = {node: k * (count + 1) + count for node, k in self.stage.items()}
        self.seconds = WholeSeconds(problem)
        self.horizon = count * (count + 1)
        self.again: dict[int, Any] = {}
        self.start: dict[int, Any] = {}
        self._ends: dict[tuple[int, int], Any] = {}
        self._retain()
        self._serve()
        costs = self.seconds.costs
        self.model.minimize(sum(costs[node] * again for node, again in self.again.items()))

    def _retain(self) -> None:
        """Intervals, the budget, and one computation at a time."""
        problem, model, count = self.problem, self.model, len(self.problem.order)
        readers = {source for sources in problem.inputs for source in sources}
        first, again_bytes = problem.beside("first_bytes"), problem.beside("again_bytes")
        between = problem.beside("between_bytes")
        intervals, demands, steps = [], [], []
        for node in problem.order:
            begin = self.first[node]
            end = model.new_int_var(begin, self.horizon - 1, "")
            self._ends[node, 0] = end
            size = model.new_int_var(1, self.horizon, "")
            intervals.append(model.new_interval_var(begin, size, end + 1, ""))
            demands.append(problem.bytes[node])
            if first[node]:
                intervals.append(model.new_fixed_size_interval_var(begin, 1, ""))
                demands.append(first[node])
            stage = self.stage[node]
            if between[node] and stage:
                before = model.new_fixed_size_interval_var(begin - count, count, "")
                intervals.append(before)
                demands.append(between[node])
            if node not in readers or stage + 1 >= count:
                model.add(end == begin)
                continue
            if node in problem.once:
                continue
            stages = range(self.stage[node] + 1, count)
            moments = [[k * (count + 1), k * (count + 1) + min(k, count) - 1] for k in stages]
            domain = cp_model.Domain.from_intervals(moments)
            again = model.new_bool_var("")
            start = model.new_int_var_from_domain(domain, "")
            late = model.new_int_var(0, self.horizon - 1, "")
            longer = model.new_int_var(1, self.horizon, "")
            self.again[node], self.start[node], self._ends[node, 1] = again, start, late
            intervals.append(model.new_optional_interval_var(start, longer, late + 1, again, ""))
            demands.append(problem.bytes[node])
            step = model.new_optional_fixed_size_interval_var(start, 1, again, "")
            steps.append(step)
            if again_bytes[node]:
                intervals.append(step)
                demands.append(again_bytes[node])
            model.add(end < start).only_enforce_if(again)
        model.add_cumulative(intervals, demands, problem.budget_bytes)
        model.add_no_overlap(steps)

    def _serve(self) -> None:
        """Every computation finds a copy of what it reads."""
        for reader, sources in enumerate(self.problem.inputs):
            for source in set(sources):
                times = [(self.first[reader], None)]
                if reader in self.again:
                    times.append((self.start[reader], self.again[reader]))
                for time, when in times:
                    self._read(source, time, when)

    def _read(self, source: int, time: Any, when: Any) -> None:
        model, present = self.model, [] if when is None else [when]
        if source not in self.again:
            model.add(self._ends[source, 0] >= time).only_enforce_if(present)
            return
        early = model.new_bool_var("")
        conditions = [early, *present]
        model.add(self._ends[source, 0] >= time).only_enforce_if(conditions)
        late = [early.negated(), *present]
        model.add_bool_and(self.again[source]).only_enforce_if(late)
        model.add(self.start[source] < time).only_enforce_if(late)
        model.add(self._ends[source, 1] >= time).only_enforce_if(late)

    def lower_bound(self, objective: float) -> float:
        """The bound of the problem, in its seconds."""
        return self.seconds.lower_bound(objective, len(self.again))

    def sequence(self, solution: Any) -> list[int]:
        """The computations of a solution by their moments."""
        steps = [(time, node) for node, time in self.first.items()]
        steps += [
            (solution.value(self.start[node]), node)
            for node, again in self.again.items()
            if solution.value(again)
        ]
        return [node for _, node in sorted(steps)]

    def hint(self, sequence: Sequence[int]) -> None:
        """Begin at ``sequence``."""
        count, seen, offset, stage = len(self.problem.order), set(), 0, 0
        again: dict[int, int] = {}
        for node in sequence:
            if node in seen:
                again[node] = stage * (count + 1) + offset
                offset += 1
            else:
                seen.add(node)
                stage, offset = stage + 1, 0
        for node, flag in self.again.items():
            self.model.add_hint(flag, node in again)
            if node in again:
                self.model.add_hint(self.start[node], again[node])


class _Progress(cp_model.CpSolverSolutionCallback):  # type: ignore[misc] # ortools: no types
    def __init__(self, model: RetentionModel, best: BestSoFar) -> None:
        super().__init__()
        self.retention, self.best = model, best

    def on_solution_callback(self) -> None:
        self.best.raise_bound(self.retention.lower_bound(self.best_objective_bound))
        self.best.keep(_quicker(self.retention, self, self.best.answer.device_of))


def _quicker(model: RetentionModel, solution: Any, known: Sequence[int] | None) -> Sequence[int]:
    """The sequence of a solution, or the one that is known if that takes no longer."""
    found, value = model.sequence(solution), model.problem.value
    return found if known is None or value(found) < value(known) else known


def prove(problem: RematerialisationProblem, best: BestSoFar, effort: Effort) -> None:
    """Runs CP-SAT from the best sequence known; tells what it finds and proves."""
    model, known = RetentionModel(problem), best.answer.device_of
    if known is not None:
        model.hint(known)
    solver = cp_sat_run.cp_sat_solver(effort)
    solver.best_bound_callback = lambda bound: best.raise_bound(model.lower_bound(bound))
    status = solver.solve(model.model, _Progress(model, best))
    if status == cp_model.INFEASIBLE:
        best.prove(Status.INFEASIBLE)
    elif status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        # of sequences that are equally good, the one that CP-SAT settles on, not the first to come
        best.keep(_quicker(model, solver, known))
        best.raise_bound(model.lower_bound(solver.best_objective_bound))
        if status == cp_model.OPTIMAL and model.seconds.is_whole:
            best.prove(Status.OPTIMAL)
