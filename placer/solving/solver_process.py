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
from collections.abc import Sequence
from pathlib import Path

from placer.problem.placement_problem import from_dict
from placer.solving.baselines import favourite_children
from placer.solving.conflicts import conflict
from placer.solving.objectives.step_time import problem as step_problem
from placer.solving.objectives.throughput import problem as load_problem
from placer.solving.peaks import problem as peak_problem
from placer.solving.process.cp_sat_run import run_cp_sat
from placer.solving.process.search_result import Effort, ResultFile
from placer.solving.reduction import reduced_problem
from placer.solving.transfer.transfer_process import search_transfer


def search(problem_path: Path, result: ResultFile, effort: Effort) -> None:
    """Solve the problem in ``problem_path`` into ``result``."""
    text = problem_path.read_text()
    content = json.loads(text)
    schema = content.get("schema")
    if schema == load_problem.SCHEMA:
        search_loads(*load_problem.from_json(text), result, effort)
    elif schema == step_problem.SCHEMA:
        search_steps(*step_problem.from_json(text), result, effort)
    elif schema == conflict.SCHEMA:
        from placer.solving.conflicts.conflict_process import find_conflict

        find_conflict(from_dict(content["problem"]), result, effort)
    elif schema == peak_problem.SCHEMA:
        search_peaks(*peak_problem.from_json(text), result, effort)
    elif schema == favourite_children.SCHEMA:
        find_favourites(favourite_children.from_dict(content), result)
    else:
        search_transfer(*reduced_problem.from_json(text), result, effort)


def search_loads(
    problem: load_problem.LoadProblem,
    hint: Sequence[int] | None,
    result: ResultFile,
    effort: Effort,
) -> None:
    """The least bottleneck: annealing first, then CP-SAT from the best, for a bound too."""
    from placer.solving.objectives.throughput.model import LoadModel
    from placer.solving.objectives.throughput.search import LoadSearch

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
    from placer.solving.objectives.step_time.search import StepSearch

    bound = step.least_step()
    result.update(lower_bound=bound)
    searcher = StepSearch(step, hint, effort.seed, result.keep)
    searcher.start(effort.until(_BASELINE_SHARE))
    searcher.run(effort.deadline, effort.work_limit, effort.threads)


def search_peaks(
    problem: peak_problem.PeakProblem,
    hint: Sequence[int] | None,
    result: ResultFile,
    effort: Effort,
) -> None:
    """The least transfer under caps on peaks."""
    from placer.solving.peaks.search import PeakSearch

    searcher = PeakSearch(problem, hint, effort.seed, result.keep)
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
