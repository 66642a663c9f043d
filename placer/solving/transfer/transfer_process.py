"""The least cost in the solver process: a good placement in a second, bounds, search, minimum cuts,
simpler problems, and CP-SAT.

OR-Tools is imported where it is used: loading it takes as long as the first placement does.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from placer.solving.process.search_run import BestSoFar, Effort, Hints, prove_first
from placer.solving.reduction.contraction import contract
from placer.solving.reduction.relaxation import relax, with_one_accelerator
from placer.solving.reduction.unit_problem import UnitProblem
from placer.solving.search.peak_problem import to_row_problem
from placer.solving.solution import Status
from placer.solving.transfer.schedule import SCHEDULE

if TYPE_CHECKING:
    from placer.solving.transfer.cp_sat import PlacementModel
    from placer.solving.transfer.transfer_search import TransferSearch


@prove_first
def search_transfer(
    problem: UnitProblem,
    hints: Hints,
    best: BestSoFar,
    effort: Effort,
) -> None:
    """The least cost: where the problem is large a good placement in a second, on two devices
    minimum cuts, where it is large a bound from the devices that it takes, a heuristic search and
    simpler problems, then CP-SAT from the best on what it leaves to decide."""
    problem = problem.alone()
    # a good placement in a second
    _plan_first(problem, hints, best, effort)
    _improve(problem, hints, best, effort)


@prove_first
def search_few_units(problem: UnitProblem, hints: Hints, best: BestSoFar, effort: Effort) -> None:
    """The same of few units, without the first of it: there is no machine code to wait for."""
    _improve(problem.alone(), hints, best, effort)


def _improve(problem: UnitProblem, hints: Hints, best: BestSoFar, effort: Effort) -> None:
    """All that comes after a first placement."""
    # two devices: minimum cuts, before and after the search; more: accelerators as one
    known = _best_known(problem, hints, best)
    if _proves_by_cuts(problem, known, best, effort, SCHEDULE.first_cuts_share):
        return
    if _proves_with_one_accelerator(problem, known, best, effort):
        return
    # many units: a heuristic search, bounds from the devices that it takes and simpler problems
    if problem.unit_count > SCHEDULE.least_searched_units:
        from placer.solving.transfer.transfer_search import TransferSearch

        starts = [*([known] if known else []), *hints]
        searcher = TransferSearch(problem, starts, effort.seed, best.keep)
        variables = (problem.unit_count + len(problem.nets)) * problem.device_count
        share, proof_share = next(shares for most, *shares in SCHEDULE.shares if variables <= most)
        until = effort.until(share)
        prover = threading.Thread(
            target=_bound_by_devices, args=(problem, known, best, effort, until), daemon=True
        )
        prover.start()
        searcher.run(until, effort.work_limit, effort.threads)
        prover.join()
        known = _best_known(problem, hints, best)
        if _proves_by_cuts(problem, known, best, effort, SCHEDULE.cuts_share):
            return
        _prove_simpler_problems(
            problem, searcher, best, replace(effort, deadline=effort.until(proof_share))
        )
    # CP-SAT on what is left to decide
    known = _best_known(problem, hints, best)
    if _note_optimum(problem, known, best) or time.time() > effort.deadline:
        return
    from placer.solving.process.cp_sat_run import run_cp_sat
    from placer.solving.transfer.cp_sat import PlacementModel

    smaller = problem if known is None else contract(problem, problem.value(known))
    # Only a hint that keeps the limits: where strategies take turns, OR-Tools 9.10 to 9.15 ends the
    # process ("Check failed: heuristics.fixed_search != nullptr") when a worker that has a hint to
    # try sees, as it loads the model, that nothing fits; 9.10 does so without turns too
    model = PlacementModel(smaller, None if known is None else smaller.project(known))

    def expand(units: Sequence[int]) -> Sequence[int]:
        """CP-SAT may come by placements that are worse than the one it was given, or as good."""
        candidates = [*([] if known is None else [known]), smaller.expand(units)]
        return min(candidates, key=problem.value)

    run_cp_sat(model, best, effort, expand)


def _plan_first(problem: UnitProblem, hints: Hints, best: BestSoFar, effort: Effort) -> None:
    """Units dealt out along the depth and annealed at every scale, for a share of the time, or, in
    a first part, for as many cycles as mostly take a second."""
    from placer.solving.search.peak_search import PeakSearch

    known = _best_known(problem, hints, best)
    least = float("inf") if known is None else problem.value(known)

    def keep(device_of: Sequence[int]) -> None:
        """Takes what keeps the limits and costs less than what is known."""
        if problem.is_feasible(device_of) and problem.value(device_of) < least:
            best.keep(device_of)

    starts = [*([] if known is None else [known]), *hints]
    search = PeakSearch(to_row_problem(problem), starts, effort.seed, keep)
    cycles = effort.work_limit
    if effort.is_first:
        cycles = SCHEDULE.first_plan_cycles
    search.run(effort.until(SCHEDULE.plan_share), cycles, effort.threads)


def search_bound(problem: UnitProblem, hints: Hints, best: BestSoFar, effort: Effort) -> None:
    """The bound alone, of a large problem, for all of the time; the best hint says how much there
    is to prove, and need not keep the limits."""
    problem = problem.alone()
    known = min(hints, key=problem.value, default=None)
    _bound_by_devices(problem, known, best, effort, effort.deadline)


def _best_known(problem: UnitProblem, hints: Hints, best: BestSoFar) -> Sequence[int] | None:
    """The best placement found so far, else the best hint that keeps all limits."""
    if best.answer.device_of is not None:
        return best.answer.device_of
    return min(filter(problem.is_feasible, hints), key=problem.value, default=None)


def _note_optimum(problem: UnitProblem, known: Sequence[int] | None, best: BestSoFar) -> bool:
    """Whether ``known`` costs no more than the bound; if so, it is told to be the optimum."""
    bound = best.answer.lower_bound
    if known is None or bound is None or problem.value(known) > bound:
        return False
    best.keep(known)
    best.prove(Status.OPTIMAL)
    return True


def _proves_by_cuts(
    problem: UnitProblem,
    known: Sequence[int] | None,
    best: BestSoFar,
    effort: Effort,
    share: float,
) -> bool:
    """Branches on minimum cuts for a share of the time, if there are two devices and a placement to
    begin at; gives whether the best placement is then proven to be the optimum."""
    if problem.device_count != 2 or known is None:
        return False
    _branch(problem, known, best.keep, best, effort, share)
    return _note_optimum(problem, _best_known(problem, [known], best), best)


def _branch(
    problem: UnitProblem,
    known: Sequence[int],
    keep: Callable[[Sequence[int]], None],
    best: BestSoFar,
    effort: Effort,
    share: float,
) -> None:
    """Branches on minimum cuts of a problem with two devices, begun at ``known``."""
    from placer.solving.transfer.minimum_cuts import BranchAndBound

    smaller = contract(problem, problem.value(known))
    with contextlib.suppress(OverflowError):
        search = BranchAndBound(
            smaller,
            smaller.project(known),
            lambda units: keep(smaller.expand(units)),
            best.raise_bound,
        )
        search.run(effort.until(share), effort.work_limit)


def _proves_with_one_accelerator(
    problem: UnitProblem,
    known: Sequence[int] | None,
    best: BestSoFar,
    effort: Effort,
) -> bool:
    """Raises the bound to what minimum cuts prove where all accelerators are one; what fits on one
    of them is a placement.  Gives whether the best placement is then proven to be the optimum."""
    if problem.device_count <= 2 or known is None:
        return False
    one = with_one_accelerator(problem)
    others = [device for device in range(problem.device_count) if device != problem.host]

    def keep(sides: Sequence[int]) -> None:
        for device in others:
            placed = [device if side == 0 else problem.host for side in sides]
            if problem.is_feasible(placed):
                best.keep(placed)
                return

    sides = [int(device == problem.host) for device in known]
    _branch(one, sides, keep, best, effort, SCHEDULE.first_cuts_share)
    return _note_optimum(problem, _best_known(problem, [known], best), best)


def _bound_by_devices(
    problem: UnitProblem,
    known: Sequence[int] | None,
    best: BestSoFar,
    effort: Effort,
    deadline: float,
) -> None:
    """Raises the bound to what follows from the sets that devices may hold, beside the search: it
    is one core's work."""
    if known is None:
        return
    from placer.solving.bounds.bounded_units import BoundedUnits
    from placer.solving.bounds.device_sets import bound_by_sets

    steps = SCHEDULE.most_set_steps
    if effort.work_limit is not None:
        steps = min(steps, SCHEDULE.set_steps * effort.work_limit)
    if effort.is_first:
        now = time.time()
        deadline = now + SCHEDULE.first_devices_share * (deadline - now)
    with contextlib.suppress(OverflowError):
        bound_by_sets(
            BoundedUnits(problem, problem.value(known)), best.raise_bound, deadline, steps
        )
        best.note_time(deadline)


def _prove_simpler_problems(
    problem: UnitProblem,
    searcher: TransferSearch,
    best: BestSoFar,
    effort: Effort,
) -> None:
    """Raises the bound to what simpler problems prove, the simplest first, until one is too hard;
    their placements, made to fit, may be better than those known."""
    from ortools.sat.python import cp_model

    from placer.solving.process.cp_sat_run import cp_sat_solver
    from placer.solving.transfer.cp_sat import PlacementModel

    for loss in SCHEDULE.losses:
        known = [] if searcher.best is None else searcher.best.device_of.tolist()
        if time.time() > effort.deadline or not known or not problem.is_feasible(known):
            return
        if effort.without_cp_sat:
            return
        simpler = relax(problem, known, loss)
        model = PlacementModel(simpler, simpler.project(known))
        solver = cp_sat_solver(effort)
        if effort.workers == 1:
            solver.parameters.optimize_with_core = True
        else:
            solver.parameters.subsolvers.extend(
                SCHEDULE.provers if len(model.z) <= SCHEDULE.most_sent else SCHEDULE.provers[:1]
            )
            solver.parameters.num_workers = len(solver.parameters.subsolvers)
        solver.best_bound_callback = functools.partial(_note_bound, model, best)
        with best.in_cp_sat():
            status = solver.solve(model.model)
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            _note_bound(model, best, solver.best_objective_bound)
            searcher.keep_mended(simpler.expand(model.device_of(solver)))
        if status != cp_model.OPTIMAL:
            return


def _note_bound(model: PlacementModel, best: BestSoFar, bound: float) -> None:
    best.raise_bound(model.lower_bound(bound))
