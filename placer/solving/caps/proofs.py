"""What is proven of placements under caps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from placer.problem.placement_problem import PlacementProblem
from placer.solving.caps.bound_beside import BoundBeside
from placer.solving.solution import Solution, SolverParameters, Status


class Proofs:
    """``solutions`` are those of problems in which nothing is reserved on a guess: their bounds are
    proven for ``problem``.  Another bound may be sought beside, on a core of its own."""

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
        """What no placement can cost less than."""
        return self.bound() or 0.0

    def bound(self) -> float | None:
        """The highest bound proven."""
        bounds = [found.lower_bound for found in self.solutions if found.lower_bound is not None]
        return max(bounds, default=None)

    def proven(self, best: Solution) -> Solution:
        """``best`` with the bound proven."""
        bound = 0.0 if best.value == 0 else self.bound()  # nothing is less
        return replace(
            best,
            status=Status.OPTIMAL if bound == best.value else Status.FEASIBLE,
            lower_bound=bound,
        )
