"""Running CP-SAT on a model, with everything that it finds on disk at once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from ortools.sat.python import cp_model

from placer.solving.process.search_result import Effort, ResultFile

_LEAST_WORKERS = 8
"""CP-SAT runs one subsolver per worker, and those that prove bounds come late in its list:
on two cores eight workers prove in a second what two do not in twenty."""

Expand = Callable[[Sequence[int]], Sequence[int]]


class _Progress(cp_model.CpSolverSolutionCallback):  # type: ignore[misc] # ortools: no types
    """Writes each improved placement."""

    def __init__(self, model: Any, result: ResultFile, expand: Expand) -> None:
        super().__init__()
        self.placement_model = model
        self.result = result
        self.expand = expand

    def on_solution_callback(self) -> None:
        self.result.update(
            status="FEASIBLE",
            device_of=list(self.expand(self.placement_model.device_of(self))),
            lower_bound=self.placement_model.lower_bound(self.best_objective_bound),
        )


def run_cp_sat(model: Any, result: ResultFile, effort: Effort, expand: Expand = tuple) -> None:
    """Run CP-SAT on a model that knows its ``lower_bound`` and ``device_of``; bounds only rise.

    ``expand`` turns a placement of the model into one of the problem.
    """
    solver = cp_sat_solver(effort)
    solver.best_bound_callback = lambda bound: result.update(lower_bound=model.lower_bound(bound))
    status = solver.solve(model.model, _Progress(model, result, expand))
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        result.update(lower_bound=model.lower_bound(solver.best_objective_bound))
    proven = model.is_exact or status == cp_model.FEASIBLE
    result.update(status=solver.status_name(status) if proven else "UNKNOWN")


def cp_sat_solver(effort: Effort) -> cp_model.CpSolver:
    """CP-SAT with its limits."""
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = max(0.1, effort.deadline - time.time())
    if effort.work_limit is not None:
        solver.parameters.max_deterministic_time = effort.work_limit
    solver.parameters.random_seed = effort.seed
    solver.parameters.num_workers = effort.workers or max(_LEAST_WORKERS, os.cpu_count() or 1)
    return solver
