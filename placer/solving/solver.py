"""Solving a placement problem: the map of the whole algorithm.

Under caps on predicted peaks the map is :mod:`placer.solving.caps.stages`, which calls this one."""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from placer.errors import PlacerError, UsageError, some
from placer.prediction.scoring import score
from placer.problem.placement_problem import PlacementProblem, check
from placer.solving.baselines import BASELINES, DoesNotFitError
from placer.solving.objectives.refining import refine, value_of
from placer.solving.objectives.step_time.problem import StepProblem
from placer.solving.objectives.throughput.problem import to_loads
from placer.solving.process import clock
from placer.solving.process.child_search import one_search_process
from placer.solving.reduction.unit_problem import reduce_to_units
from placer.solving.solution import Solution, SolverParameters, Status
from placer.solving.tidying import tidy
from placer.solving.transfer.schedule import SCHEDULE
from placer.solving.transfer.solving import on_host, solve_units

Hint = Sequence[int] | None
SolverFunction = Callable[[PlacementProblem, SolverParameters, Hint], Solution]

DEFAULT_SOLVER = "cp-sat"

_solvers: dict[str, SolverFunction] = {}


def register_solver(name: str, function: SolverFunction) -> None:
    """Makes ``solve(..., solver=name)`` call ``function(problem, parameters, hint)``.

    Raises :class:`~placer.errors.UsageError` if the name is taken.
    """
    if not isinstance(name, str) or not callable(function):
        raise UsageError(f"a solver is a name and a function, got {name!r} and {function!r}")
    if name in _solvers:
        raise UsageError(f"there is a solver {name!r} already; register yours under another name")
    _solvers[name] = function


def solver_names() -> tuple[str, ...]:
    """The names that ``solve`` knows."""
    return tuple(sorted(_solvers))


def require_solver(name: str) -> None:
    """Raises :class:`~placer.errors.UsageError` for a solver that is not registered."""
    if name not in _solvers:
        raise UsageError(f"there is no solver {name!r}; there are {', '.join(solver_names())}")


def solve(
    problem: PlacementProblem,
    parameters: SolverParameters | None = None,
    *,
    hint: Hint = None,
    solver: str = DEFAULT_SOLVER,
) -> Solution:
    """The best placement of ``problem`` found in time, and how good it is proven to be.

    ``hint`` is a placement to start from, one device number per op; it need not be feasible.
    Raises :class:`~placer.errors.UsageError` for a problem that contradicts itself, an objective
    that is not known, or a solver that is not registered, and
    :class:`~placer.errors.PlacerError` if what a registered solver claims does not hold.
    """
    check(problem)
    devices = range(len(problem.device_names))
    if hint is not None and (
        len(hint) != len(problem.op_names) or any(device not in devices for device in hint)
    ):
        raise UsageError(
            f"hint must have a device number from 0 to {len(devices) - 1} for each of "
            f"{len(problem.op_names)} ops; got {some(hint)}"
        )
    require_solver(solver)
    started = clock.monotonic()
    with one_search_process():
        solution = _solvers[solver](problem, parameters or SolverParameters(), hint)
    if not isinstance(solution, Solution):
        raise PlacerError(f"the solver {solver!r} returned {solution!r} in place of a Solution")
    if solver not in (DEFAULT_SOLVER, *BASELINES):
        check_claims(problem, solution, solver)
    return replace(solution, seconds=clock.monotonic() - started)


def check_claims(problem: PlacementProblem, solution: Solution, solver: str) -> None:
    """Raises :class:`~placer.errors.PlacerError` for the first claim of a solution that does not
    hold: its placement, the limits that it keeps, its value, its bound."""

    def claim(what: str) -> PlacerError:
        return PlacerError(f"the solver {solver!r} claims {solution.status.value}, but {what}")

    is_solved = solution.status in (Status.FEASIBLE, Status.OPTIMAL)
    device_of, bound = solution.device_of, solution.lower_bound
    if device_of is None:
        if is_solved:
            raise claim("gives no placement (device_of is None)")
        return
    ops, devices = len(problem.op_names), len(problem.device_names)
    if len(device_of) != ops or not all(device in range(devices) for device in device_of):
        raise claim(f"device_of is not a list of {ops} device numbers below {devices}")
    violations = score(problem, device_of).violations
    if is_solved and violations:
        raise claim(f"its placement breaks a limit: {violations[0]}")
    value = value_of(problem, device_of)
    if is_solved and not _is_near(solution.value, value):
        raise claim(f"its placement is worth {value:,.9g}, not value={solution.value}")
    if is_solved and bound is not None and bound > value and not _is_near(bound, value):
        raise claim(f"lower_bound={bound} is above what its placement is worth, {value:,.9g}")
    if solution.status is Status.OPTIMAL and not _is_near(bound, value):
        raise claim(f"nothing proves it: lower_bound={bound}, its placement is worth {value:,.9g}")


def _is_near(claimed: float | None, value: float) -> bool:
    return claimed is not None and math.isclose(claimed, value, rel_tol=1e-9, abs_tol=1e-12)


def solve_by_search(
    problem: PlacementProblem, parameters: SolverParameters, hint: Hint = None
) -> Solution:
    """The best placement under the caps for the objective of the problem: our own solver, named
    after the last of its steps.

    Any objective but transfer begins at a placement of little cost, or at a ``hint`` that fits.
    """
    deadline = clock.monotonic() + parameters.time_limit_seconds
    if problem.objective == "transfer":
        return _least_transfer(problem, parameters, hint)
    seconds = parameters.share(0.25) * parameters.time_limit_seconds  # a placement that fits at all
    feasible = _fitting(problem, hint)
    if feasible is None:
        feasible = _least_transfer(problem, replace(parameters, time_limit_seconds=seconds), hint)
    if feasible.device_of is None:
        return feasible
    to_objective = to_loads if problem.objective == "throughput" else StepProblem
    objective = to_objective(problem)
    return refine(problem, objective, parameters.after(feasible), deadline, feasible, hint)


def _fitting(problem: PlacementProblem, hint: Hint) -> Solution | None:
    """The hint as a solution, if it keeps all limits."""
    if hint is None:
        return None
    scored = score(problem, hint)
    if scored.violations:
        return None
    return Solution(status=Status.FEASIBLE, device_of=tuple(hint), value=scored.cost)


def _least_transfer(
    problem: PlacementProblem, parameters: SolverParameters, hint: Hint = None
) -> Solution:
    """The least cost (the steps: :mod:`placer.solving.transfer.solving`, and in the solver process
    :mod:`placer.solving.transfer.transfer_process`)."""
    deadline = clock.monotonic() + parameters.time_limit_seconds
    hints = _layers(problem) if hint is None else [hint]
    hints.append(on_host(problem))
    return _solution(problem, solve_units(reduce_to_units(problem), parameters, deadline, hints))


def _layers(problem: PlacementProblem) -> list[Sequence[int]]:
    """Where nothing is known to begin at and the problem is large: whole layers dealt out."""
    if len(problem.op_names) <= SCHEDULE.least_searched_units:
        return []
    with suppress(DoesNotFitError):
        return [BASELINES["layers"](problem)]
    return []


def _solution(problem: PlacementProblem, result: Solution) -> Solution:
    """The solution with its value taken from the scorer, which knows no solver."""
    if result.device_of is None:
        is_told = result.status is Status.INFEASIBLE
        return replace(result, unsolvable=problem if is_told else None)
    device_of = tidy(problem, result.device_of)
    scored = score(problem, device_of)
    if scored.violations:  # sums above 2^53 bytes are rounded there
        device_of, scored = result.device_of, score(problem, result.device_of)
    if scored.violations:
        raise AssertionError(f"the solver broke a constraint: {scored.violations[0]}")
    is_optimal = scored.cost == result.lower_bound
    return replace(
        result,
        status=Status.OPTIMAL if is_optimal else result.status,
        device_of=device_of,
        value=scored.cost,
    )


def solver_of(place: Callable[[PlacementProblem], tuple[int, ...]]) -> SolverFunction:
    """A named baseline under the solver's interface."""

    def solve_by_baseline(
        problem: PlacementProblem, _parameters: SolverParameters, _hint: Hint = None
    ) -> Solution:
        try:
            device_of = place(problem)
        except DoesNotFitError as error:
            return Solution(status=Status.UNKNOWN, warnings=(("does_not_fit", str(error)),))
        scored = score(problem, device_of)
        return Solution(
            status=Status.UNKNOWN if scored.violations else Status.FEASIBLE,
            device_of=device_of,
            value=value_of(problem, device_of),
            warnings=tuple(("does_not_fit", text) for text in scored.violations),
        )

    return solve_by_baseline


register_solver(DEFAULT_SOLVER, solve_by_search)
for _name, _function in BASELINES.items():
    register_solver(_name, solver_of(_function))
