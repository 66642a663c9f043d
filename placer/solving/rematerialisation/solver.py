"""Solving the rematerialisation problem: a sequence, its seconds, and a bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from placer.solving.process import clock
from placer.solving.process.child_search import search_in_child
from placer.solving.process.compiling import REMATERIALISATION
from placer.solving.rematerialisation.problem import RematerialisationProblem, check
from placer.solving.solution import SolverParameters, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Rematerialisation:
    """``sequence`` has node numbers, ``None`` when none is known that keeps the budget.

    ``value`` are its seconds and ``extra_share`` what they exceed those of every node once by, as
    a share; ``lower_bound`` is proven for the seconds of any sequence that the problem allows.
    """

    status: Status
    sequence: tuple[int, ...] | None
    value: float | None
    extra_share: float | None
    lower_bound: float | None
    peak_bytes: int | None
    seconds: float
    warnings: tuple[tuple[str, str], ...] = ()
    is_cut: bool = False


def solve_rematerialisation(
    problem: RematerialisationProblem,
    parameters: SolverParameters | None = None,
    hints: Sequence[Sequence[int]] = (),
) -> Rematerialisation:
    """The fewest seconds found in time, in the solver process; ``hints`` are sequences to begin at,
    which need not keep the budget.

    Raises :class:`~placer.errors.UsageError` for a problem that contradicts itself.
    """
    check(problem)
    parameters = parameters or SolverParameters()
    begun = clock.monotonic()
    limit = parameters.time_limit_seconds
    solution = search_in_child(REMATERIALISATION, problem, hints, parameters, limit)
    sequence, value = solution.device_of, solution.value
    status, bound = solution.status, solution.lower_bound
    if value is not None and bound is not None and bound >= value:
        status, bound = Status.OPTIMAL, value
    least = problem.least_seconds
    return Rematerialisation(
        status=status,
        sequence=sequence,
        value=value,
        extra_share=None if value is None else (value - least) / least if least else 0.0,
        lower_bound=bound,
        peak_bytes=None if sequence is None else problem.peak_bytes(sequence),
        seconds=clock.monotonic() - begun,
        warnings=solution.warnings,
        is_cut=solution.is_cut,
    )
