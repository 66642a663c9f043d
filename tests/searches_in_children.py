"""Searches for tests, and searches that fail, in interpreters of their own: OR-Tools must not be
loaded into a process that may have loaded TensorFlow."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from placer.processes import run_task
from placer.solving.process.compiling import code_environment
from placer.solving.process.search_run import Answer, BestSoFar, Effort, Hints
from placer.solving.solution import Status

ENVIRONMENT = {"PYTHONPATH": os.pathsep.join(map(str, Path(__file__).parents[:2]))}


def in_a_child(task: str, request: object) -> Any:
    """What a function of this file answers there."""
    environment = {**ENVIRONMENT, **code_environment()}
    outcome = run_task(f"{__name__}:{task}", request, 600.0, environment)
    assert not outcome.reason
    return outcome.answer


def search_each(
    search: str, problems: Sequence[tuple[Any, Hints]], seconds: float = 60.0
) -> list[Answer]:
    """What ``search`` (``package.module:function``) finds for problems with placements to start
    at, each in ``seconds`` at most, with one worker."""
    answers: list[Answer] = in_a_child("search_all", (search, problems, seconds))
    return answers


def search_all(request, tell):
    search, problems, seconds = request
    module, _, name = search.partition(":")
    answers = []
    for problem, hints in problems:
        best = BestSoFar(lambda _: None)
        effort = Effort(deadline=time.time() + seconds, workers=1)
        getattr(import_module(module), name)(problem, hints, best, effort)
        answers.append(best.answer)
    return answers


def branch_all(request, tell):
    """Branch and bound with minimum cuts: what is kept, the bounds, whether the last is proven."""
    from placer.solving.transfer.minimum_cuts import BranchAndBound

    problems, most_cases = request
    answers = []
    for problem, known in problems:
        kept, bounds = [list(known)], [0]
        search = BranchAndBound(problem, known, kept.append, bounds.append)
        proven = search.run(time.time() + 30.0, most_cases)
        answers.append({"kept": kept, "bounds": bounds, "proven": proven})
    return answers


def bound_all_by_devices(request, tell):
    """The bounds from what each device may hold, in the scale of what is known or in several, found
    in some seconds each; with ``flaw``, a function that is put in the place of ``module:name``."""
    from placer.solving.bounds.bounded_units import BoundedUnits
    from placer.solving.bounds.device_sets import DeviceSetBound, bound_by_sets

    problems, steps, seconds, flaw, kind = request
    if flaw is not None:
        place, function = flaw
        module, _, names = place.partition(":")
        owner = import_module(module)
        *path, name = names.split(".")
        for part in path:
            owner = getattr(owner, part)
        flawed = getattr(import_module("bounds_gone_wrong"), function)
        setattr(owner, name, flawed(getattr(owner, name)))
    answers = []
    for problem, known_bytes in problems:
        bounds, units = [], BoundedUnits(problem, known_bytes)
        if kind == "scales":
            bound_by_sets(units, bounds.append, time.time() + seconds, steps)
        else:
            DeviceSetBound(units, bounds.append).run(time.time() + seconds, steps)
        answers.append(bounds)
    return answers


def find_all_favourites(request, tell):
    """The linear program of m-SCT, and the favourites by it."""
    from benchmarks.step_time.m_sct import solve_favourites, solve_program

    return [(solve_program(case), solve_favourites(case)) for case in request]


def killed(problem, hints, best, effort):
    os.kill(os.getpid(), signal.SIGKILL)


def killed_after_an_answer(problem, hints, best, effort):
    best.keep((0, 0, 1, 1))
    best.raise_bound(1)
    os.kill(os.getpid(), signal.SIGKILL)


def with_cp_sat_that_aborts(problem, hints, best, effort):
    """The real search; CP-SAT ends its process as a failed check of its own does."""
    from ortools.sat.python import cp_model

    from placer.solving.transfer.transfer_process import search_transfer

    cp_model.CpSolver.solve = lambda *_: os.abort()
    search_transfer(problem, hints, best, effort)


def broken(problem, hints, best, effort):
    best.keep((0, 1))
    raise SystemError("gone")


def mute(problem, hints, best, effort):
    """Ends without an answer."""
    os._exit(0)


def nonsense(problem, hints, best, effort):
    best.keep((7, 7))
    best.raise_bound(0)
    best.prove(Status.OPTIMAL)


def malformed(problem, hints, best, effort):
    best.keep("abc")


def asleep(problem, hints, best, effort):
    time.sleep(60.0)


def hung(problem, hints, best, effort):
    """Does not even notice that its time is over."""
    Path(os.environ["PLACER_TEST_MARKER"]).write_text(str(os.getpid()))
    sys.setswitchinterval(1e9)
    while True:
        pass
