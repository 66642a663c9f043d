"""The bare rematerialisation problem solved: a sequence found at once, and what is known of it."""

from __future__ import annotations

from dataclasses import dataclass

from placer.solving.process import clock
from placer.solving.rematerialisation.greedy import first_sequence
from placer.solving.rematerialisation.problem import RematerialisationProblem, check
from placer.solving.solution import Status


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


def solve_rematerialisation(problem: RematerialisationProblem) -> Rematerialisation:
    """The sequence that ``--fit recompute`` takes for such a problem, which is the same every time.

    It is optimal where it computes nothing again; else the bound is that of every node once.
    Raises :class:`~placer.errors.UsageError` for a problem that contradicts itself.
    """
    check(problem)
    begun, least = clock.monotonic(), problem.least_seconds
    has_one = problem.keep_order and problem.most_computations == 1
    if problem.is_feasible(problem.order):
        sequence, status = problem.order, Status.OPTIMAL
    elif problem.working_set_bytes > problem.budget_bytes or has_one:
        sequence, status = None, Status.INFEASIBLE
    else:
        found = tuple(first_sequence(problem))
        sequence = found if problem.is_feasible(found) else None
        status = Status.UNKNOWN if sequence is None else Status.FEASIBLE
    value = None if sequence is None else problem.value(sequence)
    if value == least:
        status = Status.OPTIMAL
    return Rematerialisation(
        status=status,
        sequence=sequence,
        value=value,
        extra_share=None if value is None else (value - least) / least if least else 0.0,
        lower_bound=None if status is Status.INFEASIBLE else least,
        peak_bytes=None if sequence is None else problem.peak_bytes(sequence),
        seconds=clock.monotonic() - begun,
    )
