"""The interpreter that OR-Tools runs in: a reduced problem in, a search result out.

TensorFlow imported before OR-Tools makes CP-SAT crash, so the search never shares an interpreter
with the caller::

    python -m placer.solving.solver_process PROBLEM.json RESULT.json --time-limit 30

Every improvement rewrites RESULT.json at once, so that nothing is lost when this process is
killed.  With ``--stop-with-parent`` it ends as soon as its standard input is closed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ortools.sat.python import cp_model

from placer.solving import reduced_problem
from placer.solving.contraction import contract
from placer.solving.cp_sat import PlacementModel
from placer.solving.step_time import problem as step_problem
from placer.solving.throughput import problem as load_problem

_LEAST_WORKERS = 8
"""CP-SAT runs one strategy per worker, and the strategies that prove bounds come late in its list:
on two cores eight workers prove in a second what two do not in twenty."""


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


def search(
    problem_path: Path, result: ResultFile, deadline: float, seed: int, workers: int
) -> None:
    """Solve the problem in ``problem_path`` into ``result`` until ``deadline`` (a time of
    ``time.time()``, so that what it takes to come this far counts)."""
    text = problem_path.read_text()
    schema = json.loads(text).get("schema")
    if schema == load_problem.SCHEMA:
        search_loads(*load_problem.from_json(text), result, deadline, seed, workers)
        return
    if schema == step_problem.SCHEMA:
        search_steps(*step_problem.from_json(text), result, deadline, seed)
        return
    search_transfer(*reduced_problem.from_json(text), result, deadline, seed, workers)


def search_transfer(
    problem: reduced_problem.ReducedProblem,
    hint: Sequence[int] | None,
    result: ResultFile,
    deadline: float,
    seed: int,
    workers: int,
) -> None:
    """The least transfer: annealing where the problem is large, then CP-SAT from the best on what
    it leaves to decide."""
    if problem.unit_count > _LEAST_ANNEALED_UNITS:
        from placer.solving.transfer_search import TransferSearch

        searcher = TransferSearch(
            problem, hint, seed, lambda best: result.update(status="FEASIBLE", device_of=best)
        )
        now = time.time()
        share = next(s for units, s in _TRANSFER_SHARES if problem.unit_count <= units)
        searcher.run(now + share * (deadline - now), workers=workers or os.cpu_count() or 1)
        hint = result.content["device_of"] or hint
    if time.time() > deadline:
        return
    is_known = hint is not None and problem.is_feasible(hint)
    smaller = contract(problem, problem.value(hint)) if hint and is_known else problem
    model = PlacementModel(smaller)
    if hint is not None:
        model.hint(smaller.project(hint))
    run_cp_sat(model, result, deadline, seed, workers, smaller.expand)


_LEAST_ANNEALED_UNITS = 150
_TRANSFER_SHARES = ((2_000, 0.2), (10_000, 0.4), (sys.maxsize, 0.85))
"""Up to so many units, the share of the time that annealing gets."""


def search_loads(
    problem: load_problem.LoadProblem,
    hint: Sequence[int] | None,
    result: ResultFile,
    deadline: float,
    seed: int,
    workers: int,
) -> None:
    """The least bottleneck: annealing first, then CP-SAT from the best, for a bound too."""
    from placer.solving.throughput.model import LoadModel
    from placer.solving.throughput.search import LoadSearch

    result.update(lower_bound=problem.least_load())
    now = time.time()
    variables = (problem.unit_count + len(problem.streams)) * problem.device_count
    proves = variables <= _MOST_VARIABLES
    searcher = LoadSearch(
        problem, hint, seed, lambda best: result.update(status="FEASIBLE", device_of=best)
    )
    share = _ANNEALING_SHARE if proves else 1.0
    searcher.run(now + (deadline - now) * share, workers=workers or os.cpu_count() or 1)
    best = result.content["device_of"]
    if proves and best is not None and time.time() < deadline:
        run_cp_sat(LoadModel(problem, best), result, deadline, seed, workers)


def search_steps(
    step: step_problem.StepProblem,
    hint: Sequence[int] | None,
    result: ResultFile,
    deadline: float,
    seed: int,
) -> None:
    """The least step time: baselines, then annealing of simulated steps."""
    from placer.solving.step_time.search import StepSearch

    bound = step.least_step()
    result.update(lower_bound=bound)
    searcher = StepSearch(
        step, hint, seed, lambda best: result.update(status="FEASIBLE", device_of=best)
    )
    now = time.time()
    searcher.start(now + _BASELINE_SHARE * (deadline - now))
    searcher.run(deadline)


_BASELINE_SHARE = 0.4
_ANNEALING_SHARE = 0.5
_MOST_VARIABLES = 60_000
"""Beyond, CP-SAT neither improves what annealing found nor proves much in a minute."""


def run_cp_sat(
    model: Any,
    result: ResultFile,
    deadline: float,
    seed: int,
    workers: int,
    expand: Expand = tuple,
) -> None:
    """Run CP-SAT on a model that knows its ``lower_bound`` and ``device_of``; bounds only rise.

    ``expand`` turns a placement of the model into one of the problem.
    """
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = max(0.1, deadline - time.time())
    solver.parameters.random_seed = seed
    solver.parameters.num_workers = workers or max(_LEAST_WORKERS, os.cpu_count() or 1)
    solver.best_bound_callback = lambda bound: result.update(lower_bound=model.lower_bound(bound))
    status = solver.solve(model.model, _Progress(model, result, expand))
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        result.update(lower_bound=model.lower_bound(solver.best_objective_bound))
    proven = model.is_exact or status == cp_model.FEASIBLE
    result.update(status=solver.status_name(status) if proven else "UNKNOWN")


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
    parser.add_argument("--stop-with-parent", action="store_true")
    options = parser.parse_args(arguments)
    if options.stop_with_parent:
        _end_with_parent()
    deadline = options.deadline or time.time() + options.time_limit
    _end_soon_after(deadline)
    result = ResultFile(options.result)
    result.update()
    search(options.problem, result, deadline, options.seed, options.workers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
