"""Solving a placement problem: the map of the whole algorithm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from placer.errors import UsageError
from placer.prediction.scoring import score
from placer.problem.placement_problem import PlacementProblem, check
from placer.solving.baselines import BASELINES, DoesNotFitError
from placer.solving.objectives.refining import refine, spilled_ops, value_of
from placer.solving.objectives.step_time.problem import StepProblem
from placer.solving.objectives.throughput.problem import to_loads
from placer.solving.process import clock
from placer.solving.signals import settle_signals
from placer.solving.solution import Solution, SolverParameters, Status
from placer.solving.tidying import tidy
from placer.solving.transfer.schedule import SCHEDULE
from placer.solving.transfer.spilling import may_spill, solve_with_spilling, solve_within

Hint = Sequence[int] | None
SolverFunction = Callable[[PlacementProblem, SolverParameters, Hint], Solution]

DEFAULT_SOLVER = "cp-sat"

_FEASIBILITY_SHARE = 0.25
"""Of the time, for a placement that fits at all, before another objective than transfer."""

_UNSPILLED_SHARE = 0.4
"""Of the time, while it is not known whether anything must be spilled."""

_solvers: dict[str, SolverFunction] = {}


def register_solver(name: str, function: SolverFunction) -> None:
    """Make ``solve(..., solver=name)`` call ``function(problem, parameters, hint)``.

    A later registration of the same name takes its place.
    """
    _solvers[name] = function


def solver_names() -> tuple[str, ...]:
    """The names that ``solve`` knows."""
    return tuple(sorted(_solvers))


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
    that is not known, or a solver that is not registered.
    """
    check(problem)
    if solver not in _solvers:
        raise UsageError(f"there is no solver {solver!r}; there are {', '.join(solver_names())}")
    started = clock.monotonic()
    solution = _solvers[solver](problem, parameters or SolverParameters(), hint)
    return replace(solution, seconds=clock.monotonic() - started)


def solve_by_cp_sat(
    problem: PlacementProblem, parameters: SolverParameters, hint: Hint = None
) -> Solution:
    """The best placement under the caps for the objective of the problem: our own solver, named
    after the last of its steps.

    Any objective but transfer begins at a placement of little transfer, which says what fits; a
    ``hint`` that fits without the host says as much.
    """
    deadline = clock.monotonic() + parameters.time_limit_seconds
    if problem.objective == "transfer":
        return _least_transfer(problem, parameters, hint)
    seconds = parameters.share(_FEASIBILITY_SHARE) * parameters.time_limit_seconds
    feasible = _unspilled(problem, hint)
    if feasible is None:
        feasible = _least_transfer(problem, replace(parameters, time_limit_seconds=seconds), hint)
    if feasible.device_of is None:
        return feasible
    to_objective = to_loads if problem.objective == "throughput" else StepProblem
    objective = to_objective(problem, spilled_ops(problem, feasible.device_of))
    return refine(problem, objective, parameters.after(feasible), deadline, feasible, hint)


def _unspilled(problem: PlacementProblem, hint: Hint) -> Solution | None:
    """The hint as a solution, if it keeps all limits and nothing is spilled."""
    if hint is None:
        return None
    scored = score(problem, hint)
    if scored.violations or spilled_ops(problem, hint):
        return None
    return Solution(
        status=Status.FEASIBLE,
        device_of=tuple(hint),
        value=scored.cost,
        spilled_bytes=scored.spilled_bytes,
        spill_allowance_bytes=problem.asked_spill_bytes(),
    )


def _least_transfer(
    problem: PlacementProblem, parameters: SolverParameters, hint: Hint = None
) -> Solution:
    """The least transfer (the steps: :mod:`placer.solving.transfer.stage`, and in the solver
    process :mod:`placer.solving.transfer.transfer_process`); without a given allowance the host
    takes what does not fit only if there is no placement without."""
    deadline = clock.monotonic() + parameters.time_limit_seconds
    hints = _layers(problem) if hint is None else [hint]
    given = problem.spill_allowance_bytes
    allowance = problem.asked_spill_bytes() if given is None else given
    can_spill = given is None and may_spill(problem)
    limit = parameters.time_limit_seconds * (
        parameters.share(_UNSPILLED_SHARE) if can_spill else 1.0
    )
    result = solve_within(problem, allowance, parameters, clock.monotonic() + limit, hints)
    if can_spill and result.device_of is None:
        result = solve_with_spilling(problem, parameters, deadline, hints, result)
    elif can_spill and result.is_cut and result.status is Status.FEASIBLE:
        result = _continue(problem, allowance, parameters, deadline, result)
    return _solution(problem, result)


def _layers(problem: PlacementProblem) -> list[Sequence[int]]:
    """Where nothing is known to begin at and the problem is large: whole layers dealt out."""
    if len(problem.op_names) <= SCHEDULE.least_searched_units:
        return []
    with suppress(DoesNotFitError):
        return [BASELINES["layers"](problem)]
    return []


def _continue(
    problem: PlacementProblem,
    allowance_bytes: int,
    parameters: SolverParameters,
    deadline: float,
    known: Solution,
) -> Solution:
    """The solution after the rest of the time, as it turned out that nothing must be spilled."""
    hints = [] if known.device_of is None else [known.device_of]
    parameters = parameters.after(known)
    result = solve_within(problem, allowance_bytes, parameters, deadline, hints)
    bounds = [b for b in (known.lower_bound, result.lower_bound) if b is not None]
    bound = max(bounds, default=None)
    is_optimal = result.value is not None and bound == result.value
    status = Status.OPTIMAL if is_optimal else result.status
    warnings = tuple((known.crashes | dict(result.warnings)).items())
    return replace(result, status=status, lower_bound=bound, warnings=warnings, is_cut=True)


def _solution(problem: PlacementProblem, result: Solution) -> Solution:
    """The solution with its value taken from the scorer, which knows no solver."""
    if result.device_of is None:
        # a given allowance is no element of a conflict
        is_told = result.status is Status.INFEASIBLE and problem.spill_allowance_bytes is None
        return replace(result, unsolvable=problem if is_told else None)
    settled = settle_signals(problem, result.device_of)
    device_of = tidy(problem, settled)
    scored = score(problem, device_of)
    if scored.violations:  # sums above 2^53 bytes are rounded there
        device_of, scored = settled, score(problem, settled)
    if scored.violations:
        raise AssertionError(f"the solver broke a constraint: {scored.violations[0]}")
    is_optimal = scored.cost == result.lower_bound
    return replace(
        result,
        status=Status.OPTIMAL if is_optimal else result.status,
        device_of=device_of,
        value=scored.cost,
        spilled_bytes=scored.spilled_bytes,
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
            spilled_bytes=scored.spilled_bytes,
            spill_allowance_bytes=scored.spilled_bytes,
            warnings=tuple(("does_not_fit", text) for text in scored.violations),
        )

    return solve_by_baseline


register_solver(DEFAULT_SOLVER, solve_by_cp_sat)
for _name, _function in BASELINES.items():
    register_solver(_name, solver_of(_function))
