"""The interpreter that OR-Tools runs in: a reduced problem in, a search result out.

TensorFlow imported before OR-Tools makes CP-SAT crash, so the search never shares an interpreter
with the caller::

    python -m placer.solving.solver_process PROBLEM.json RESULT.json --time-limit 30

Every improvement rewrites RESULT.json at once, so that nothing is lost when this process is
killed.  With ``--stop-with-parent`` it ends as soon as its standard input is closed.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ortools.sat.python import cp_model

from placer.solving import reduced_problem
from placer.solving.baselines import favourite_children
from placer.solving.contraction import contract
from placer.solving.cp_sat import PlacementModel
from placer.solving.relaxation import relax
from placer.solving.step_time import problem as step_problem
from placer.solving.throughput import problem as load_problem

if TYPE_CHECKING:
    from placer.solving.transfer_search import TransferSearch

_LEAST_WORKERS = 8
"""CP-SAT runs one strategy per worker, and the strategies that prove bounds come late in its list:
on two cores eight workers prove in a second what two do not in twenty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long and how to search: until ``deadline`` (a time of ``time.time()``, so that what it
    takes to come this far counts), and ``work_limit`` cycles or deterministic seconds at most."""

    deadline: float
    seed: int
    workers: int
    work_limit: int | None = None

    @property
    def threads(self) -> int:
        """Of the heuristic searches."""
        return self.workers or os.cpu_count() or 1

    def until(self, share: float) -> float:
        """When that share of the time that is left will be over."""
        now = time.time()
        return now + (1.0 if self.work_limit is not None else share) * (self.deadline - now)


Expand = Callable[[Sequence[int]], Sequence[int]]


class ResultFile:
    """The best placement and bound so far, on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.Lock()
        self.content: dict[str, Any] = {
            "status": "UNKNOWN",
            "device_of": None,
            "lower_bound": None,
        }

    def update(self, **changes: Any) -> None:
        """Change entries of the result and replace the file in one step; a bound never falls."""
        with self.lock:
            known = self.content["lower_bound"]
            if known is not None and "lower_bound" in changes:
                changes["lower_bound"] = max(known, changes["lower_bound"] or 0)
            self.content.update(changes)
            draft = self.path.with_suffix(".tmp")
            draft.write_text(json.dumps(self.content))
            os.replace(draft, self.path)

    def keep(self, device_of: Sequence[int]) -> None:
        """A better placement was found."""
        self.update(status="FEASIBLE", device_of=list(device_of))


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


def search(problem_path: Path, result: ResultFile, effort: Effort) -> None:
    """Solve the problem in ``problem_path`` into ``result``."""
    text = problem_path.read_text()
    content = json.loads(text)
    schema = content.get("schema")
    if schema == load_problem.SCHEMA:
        search_loads(*load_problem.from_json(text), result, effort)
    elif schema == step_problem.SCHEMA:
        search_steps(*step_problem.from_json(text), result, effort)
    elif schema == favourite_children.SCHEMA:
        find_favourites(favourite_children.from_dict(content), result)
    else:
        search_transfer(*reduced_problem.from_json(text), result, effort)


def search_transfer(
    problem: reduced_problem.ReducedProblem,
    hint: Sequence[int] | None,
    result: ResultFile,
    effort: Effort,
) -> None:
    """The least transfer: a heuristic search where the problem is large, then CP-SAT from the best
    on what it leaves to decide."""
    if problem.unit_count > _LEAST_SEARCHED_UNITS:
        from placer.solving.transfer_search import TransferSearch

        searcher = TransferSearch(problem, hint, effort.seed, result.keep)
        variables = (problem.unit_count + len(problem.nets)) * problem.device_count
        share, ladder = next(shares for most, *shares in _TRANSFER_SHARES if variables <= most)
        searcher.run(effort.until(share), effort.work_limit, effort.threads)
        raise_bound(problem, searcher, result, replace(effort, deadline=effort.until(ladder)))
        hint = result.content["device_of"] or hint
    known = hint if hint is not None and problem.is_feasible(hint) else None
    bound = result.content["lower_bound"]
    if known is not None and bound is not None and problem.value(known) <= bound:
        result.update(status="OPTIMAL", device_of=list(known))
        return
    if time.time() > effort.deadline:
        return
    smaller = problem if known is None else contract(problem, problem.value(known))
    model = PlacementModel(smaller, None if hint is None else smaller.project(hint))

    def expand(units: Sequence[int]) -> Sequence[int]:
        """CP-SAT may come by worse placements than the one it was given."""
        candidates = [smaller.expand(units), *([] if known is None else [known])]
        return min(candidates, key=problem.value)

    run_cp_sat(model, result, effort, expand)


def raise_bound(
    problem: reduced_problem.ReducedProblem,
    searcher: TransferSearch,
    result: ResultFile,
    effort: Effort,
) -> None:
    """The lower bounds that simpler problems prove, the simplest first, until one is too hard;
    their placements, made to fit, may be better than those known."""
    for loss in _LOSSES:
        known = [] if searcher.best is None else searcher.best.device_of.tolist()
        if time.time() > effort.deadline or not known or not problem.is_feasible(known):
            return
        simpler = relax(problem, known, loss)
        model = PlacementModel(simpler, simpler.project(known))
        solver = cp_sat_solver(effort)
        if effort.workers == 1:  # strategies side by side never take turns in the same way
            solver.parameters.optimize_with_core = True
        else:
            solver.parameters.subsolvers.extend(
                _PROVERS if len(model.z) <= _MOST_SENT else _PROVERS[:1]
            )
            solver.parameters.num_workers = len(solver.parameters.subsolvers)
        solver.best_bound_callback = functools.partial(_note_bound, model, result)
        status = solver.solve(model.model)
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            _note_bound(model, result, solver.best_objective_bound)
            searcher.keep_mended(simpler.expand(model.device_of(solver)))
        if status != cp_model.OPTIMAL:
            return


def _note_bound(model: PlacementModel, result: ResultFile, bound: float) -> None:
    result.update(lower_bound=model.lower_bound(bound))


_LOSSES = (0.1, 0.03, 0.003, 0.0)
"""The shares of its cost that the best placement may lose in simpler problems."""

_PROVERS = ("core", "max_lp")
"""CP-SAT's strategies for them: what has few different costs is proven fastest by cores of costs
that cannot all be zero, what has many by linear relaxation."""

_MOST_SENT = 10_000
"""Variables of sent nets with which a linear relaxation is solved in seconds."""

_LEAST_SEARCHED_UNITS = 150
_TRANSFER_SHARES = (
    (4_000, 0.2, 0.6),
    (40_000, 0.4, 0.6),
    (120_000, 0.7, 0.6),
    (sys.maxsize, 0.75, 1.0),
)
"""Up to so many variables of CP-SAT, the share of the time that the heuristic search gets, and of
what is then left, the share for bounds from simpler problems; CP-SAT on the problem itself has the
rest, which where it is large would not be enough for its presolve."""


def search_loads(
    problem: load_problem.LoadProblem,
    hint: Sequence[int] | None,
    result: ResultFile,
    effort: Effort,
) -> None:
    """The least bottleneck: annealing first, then CP-SAT from the best, for a bound too."""
    from placer.solving.throughput.model import LoadModel
    from placer.solving.throughput.search import LoadSearch

    result.update(lower_bound=problem.least_load())
    variables = (problem.unit_count + len(problem.streams)) * problem.device_count
    proves = variables <= _MOST_VARIABLES
    searcher = LoadSearch(problem, hint, effort.seed, result.keep)
    share = _ANNEALING_SHARE if proves else 1.0
    searcher.run(effort.until(share), effort.work_limit, effort.threads)
    best = result.content["device_of"]
    if proves and best is not None and time.time() < effort.deadline:
        run_cp_sat(LoadModel(problem, best), result, effort)


def search_steps(
    step: step_problem.StepProblem,
    hint: Sequence[int] | None,
    result: ResultFile,
    effort: Effort,
) -> None:
    """The least step time: baselines, then annealing of simulated steps."""
    from placer.solving.step_time.search import StepSearch

    bound = step.least_step()
    result.update(lower_bound=bound)
    searcher = StepSearch(step, hint, effort.seed, result.keep)
    searcher.start(effort.until(_BASELINE_SHARE))
    searcher.run(effort.deadline, effort.work_limit, effort.threads)


def find_favourites(precedence: favourite_children.Precedence, result: ResultFile) -> None:
    """The linear program of m-SCT."""
    from placer.solving.baselines.favourite_program import solve_favourites

    found = solve_favourites(precedence)
    if found is not None:
        result.update(favourites=found)


_BASELINE_SHARE = 0.4
_ANNEALING_SHARE = 0.5
_MOST_VARIABLES = 60_000
"""Beyond, CP-SAT neither improves what annealing found nor proves much in a minute."""


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


def _end_soon_after(deadline: float) -> None:
    """Leave half a second after the deadline whatever CP-SAT is still doing: on a busy machine it
    may notice late that its time is over, and all that it has found is in the result file."""
    timer = threading.Timer(max(0.0, deadline - time.time()) + 0.5, os._exit, (0,))
    timer.daemon = True
    timer.start()


def _end_with_parent() -> None:
    """Leave as soon as the parent closes our standard input, by whatever death."""

    def wait() -> None:
        while os.read(0, 4096):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one search; the exit code is 0 whatever its status."""
    parser = argparse.ArgumentParser(prog="placer.solving.solver_process", description=__doc__)
    parser.add_argument("problem", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--time-limit", type=float, default=30.0, help="seconds from now")
    parser.add_argument("--deadline", type=float, help="seconds since the epoch, instead")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=0, help="0: one per core, eight at least")
    parser.add_argument("--work-limit", type=int, help="cycles, deterministic seconds")
    parser.add_argument("--stop-with-parent", action="store_true")
    options = parser.parse_args(arguments)
    if options.stop_with_parent:
        _end_with_parent()
    deadline = options.deadline or time.time() + options.time_limit
    _end_soon_after(deadline)
    result = ResultFile(options.result)
    result.update()
    effort = Effort(
        deadline=deadline,
        seed=options.seed,
        workers=options.workers,
        work_limit=options.work_limit,
    )
    search(options.problem, result, effort)
    return 0


if __name__ == "__main__":
    sys.exit(main())
