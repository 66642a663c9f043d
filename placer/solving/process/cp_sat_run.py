"""Running CP-SAT on a model; everything that it finds is sent at once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from ortools.sat.python import cp_model

from placer.solving.process.search_run import BestSoFar, Effort
from placer.solving.solution import Status

if TYPE_CHECKING:
    from placer.solving.objectives.throughput.model import LoadModel
    from placer.solving.transfer.cp_sat import PlacementModel

_LEAST_WORKERS = 8
"""CP-SAT runs one subsolver per worker, and those that prove bounds come late in its list:
on two cores eight workers prove in a second what two do not in twenty."""

Expand = Callable[[Sequence[int]], Sequence[int]]
PlacedModel: TypeAlias = "PlacementModel | LoadModel"


class _Progress(cp_model.CpSolverSolutionCallback):  # type: ignore[misc] # ortools: no types
    """Sends each improved placement."""

    def __init__(self, model: PlacedModel, best: BestSoFar, expand: Expand) -> None:
        super().__init__()
        self.placement_model = model
        self.best = best
        self.expand = expand

    def on_solution_callback(self) -> None:
        self.best.raise_bound(self.placement_model.lower_bound(self.best_objective_bound))
        self.best.keep(self.expand(self.placement_model.device_of(self)))


def run_cp_sat(model: PlacedModel, best: BestSoFar, effort: Effort, expand: Expand = tuple) -> None:
    """Runs CP-SAT on a model, unless it has crashed before; bounds only rise.

    ``expand`` turns a placement of the model into one of the problem.
    """
    if effort.without_cp_sat:
        return
    solver = cp_sat_solver(effort)
    solver.best_bound_callback = lambda bound: best.raise_bound(model.lower_bound(bound))
    with best.in_cp_sat():
        status = solver.solve(model.model, _Progress(model, best, expand))
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        # of placements that are equally good, the one that CP-SAT settles on, not the first to come
        best.keep(expand(model.device_of(solver)))
        best.raise_bound(model.lower_bound(solver.best_objective_bound))
    proven = model.is_exact or status == cp_model.FEASIBLE
    best.prove(Status(solver.status_name(status)) if proven else Status.UNKNOWN)


def cp_sat_solver(effort: Effort) -> cp_model.CpSolver:
    """CP-SAT with its limits."""
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = max(0.1, effort.deadline - time.time())
    solver.parameters.random_seed = effort.seed
    solver.parameters.num_workers = effort.workers or max(_LEAST_WORKERS, os.cpu_count() or 1)
    if effort.work_limit is not None:  # strategies take turns by their work, whoever is faster
        # CP-SAT counts what it does in seconds of a machine of its own
        solver.parameters.max_deterministic_time = 0.1 * effort.work_limit
        solver.parameters.num_workers = effort.workers or _LEAST_WORKERS
        solver.parameters.interleave_search = solver.parameters.num_workers > 1
    return solver
