"""What is proven of placements under caps: bounds, each for a spill allowance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from placer.problem.placement_problem import PlacementProblem
from placer.solving.caps.bound_beside import BoundBeside
from placer.solving.solution import Solution, SolverParameters, Status
from placer.solving.transfer.spilling import UNPROVEN_LEAST, allowance_for


class Proofs:
    """``solutions`` are those of problems in which nothing is reserved on a guess: their bounds are
    proven for ``problem``, each for its spill allowance and any lower one.  Another bound may be
    sought beside, on a core of its own."""

    def __init__(self, problem: PlacementProblem) -> None:
        self.problem = problem
        self.solutions: list[Solution] = []
        self._beside: BoundBeside | None = None

    def seek_beside(
        self,
        known: Sequence[int],
        value: float | None,
        parameters: SolverParameters,
        seconds: float,
    ) -> None:
        """Begins the search for a bound, unless there is one already; see :class:`BoundBeside`."""
        if self._beside is None:
            self._beside = BoundBeside(self.problem, known, value, parameters, seconds)

    def end(self, *, wait: bool) -> None:
        """Ends the search for a bound, after the rest of its time if it is to ``wait``."""
        beside, self._beside = self._beside, None
        found = None if beside is None else beside.end(wait=wait)
        if found is not None:
            self.solutions.append(found)

    def least_bytes(self) -> float:
        """What no placement known to be possible can transfer less than."""
        return min((found.lower_bound or 0.0 for found in self.solutions), default=0.0)

    def bound_for(self, solution: Solution) -> float | None:
        """The highest bound proven for the spill allowance of ``solution`` or a higher one."""
        allowance = solution.spill_allowance_bytes or 0
        bounds = [
            known.lower_bound
            for known in self.solutions
            if known.lower_bound is not None and (known.spill_allowance_bytes or 0) >= allowance
        ]
        return max(bounds, default=None)

    def proven(self, best: Solution) -> Solution:
        """``best`` with the allowance that it keeps to, and the bound proven for that."""
        taken = best.spilled_bytes
        known = [s.spill_allowance_bytes or 0 for s in self.solutions if s.device_of is not None]
        allowance = min((size for size in known if size >= taken), default=None)
        if allowance is None:  # no round asked for the least that fits these peaks
            allowance = allowance_for(self.problem, taken)
            told = dict((*best.warnings, UNPROVEN_LEAST))
            best = replace(best, warnings=tuple(told.items()))
        best = replace(best, spill_allowance_bytes=allowance)
        bound = self.bound_for(best)
        if best.value == 0 and taken <= self.problem.asked_spill_bytes():
            bound = 0.0  # nothing is less
        return replace(
            best,
            status=Status.OPTIMAL if bound == best.value else Status.FEASIBLE,
            lower_bound=bound,
        )
