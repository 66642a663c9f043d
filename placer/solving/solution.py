"""The answer of a solver: a placement, and how good it is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isnan

from placer.errors import UsageError
from placer.problem.conflict import Conflict
from placer.problem.placement_problem import PlacementProblem
from placer.problem.status import Stage
from placer.problem.status import Status as Status

CRASHED = "solver_crashed"
"""The warning of a search whose process did not end as it should."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverParameters:
    """How long and how to search.  ``time_limit_seconds`` is wall-clock."""

    time_limit_seconds: float = 30.0
    seed: int = 0
    workers: int = 0
    """CP-SAT workers; 0 takes one per core, and eight at least: each runs another subsolver."""
    work_limit: int | None = None
    """Steps of each search, in place of shares of the time: the answer then depends on the problem,
    the seed and the workers alone, unless the time limit comes first."""
    to_prove: bool = False
    """A bound is wanted rather than a placement: of several cores one is left to it."""

    without_cp_sat: bool = False
    """CP-SAT has crashed on this problem: everything else is searched."""

    def __post_init__(self) -> None:
        """Raises :class:`~placer.errors.UsageError` for numbers that say nothing."""
        if isnan(self.time_limit_seconds):
            raise UsageError("time_limit_seconds is nan; give a number of seconds")
        for name in ("seed", "workers"):
            if getattr(self, name) < 0:
                raise UsageError(
                    f"{name} is {getattr(self, name)}; give a whole number of 0 or more"
                )

    def after(self, found: Solution) -> SolverParameters:
        """How to search once ``found`` is known: without CP-SAT if that has crashed."""
        return replace(self, without_cp_sat=self.without_cp_sat or bool(found.crashes))

    def share(self, share: float) -> float:
        """That share of the time that is left; all of it where work is counted instead."""
        return share if self.work_limit is None else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """``device_of`` is one device number per op (per unit, in what a search answers), ``None`` when
    no placement is known.

    ``value`` is the objective (the cost in bytes, the seconds of a step or of the bottleneck),
    ``lower_bound`` is proven (``None``: none proven).  ``warnings`` are (code, message) pairs.

    ``unsolvable`` is the problem that is proven infeasible: the given one, maybe with moments
    learned on the way; :func:`placer.solving.conflicts.conflict.explain_conflict` says why it is.
    ``conflict`` says which caps a placement breaks that is here all the same.

    ``is_cut``: the clock ended some part of the search, so that another run may end elsewhere.
    ``stages`` are what the search did, one after the other.  ``others`` are placements that it
    found beside, the best of them first.
    """

    status: Status
    device_of: tuple[int, ...] | None = None
    value: float | None = None
    lower_bound: float | None = None
    seconds: float = 0.0
    warnings: tuple[tuple[str, str], ...] = ()
    conflict: Conflict | None = None
    unsolvable: PlacementProblem | None = None
    is_cut: bool = False
    stages: tuple[Stage, ...] = ()
    others: tuple[tuple[int, ...], ...] = ()

    @property
    def crashes(self) -> dict[str, str]:
        """The warning of a search whose process crashed, by its code."""
        return {code: message for code, message in self.warnings if code == CRASHED}

    @property
    def relative_gap(self) -> float | None:
        """(value - bound) / value, as CP-SAT and MIP solvers define it; ``None``: none proven."""
        if self.value is None or self.lower_bound is None:
            return None
        return (self.value - self.lower_bound) / self.value if self.value else 0.0
