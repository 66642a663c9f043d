"""Seconds in the whole numbers that CP-SAT takes, and the bounds that come back."""

from __future__ import annotations

from placer.fitting.recompute_problem import RematerialisationProblem

_UNITS = 10**6
"""Seconds are counted in so many parts of the sum of all."""


class WholeSeconds:
    """``costs`` are the seconds of every node in parts; ``is_whole`` says that they are whole
    numbers in the problem, so that nothing is rounded."""

    def __init__(self, problem: RematerialisationProblem) -> None:
        self._least = problem.least_seconds
        self.is_whole = all(float(value).is_integer() for value in problem.seconds)
        self._scale = 1.0 if self.is_whole else _UNITS / self._least
        self.costs = [round(value * self._scale) for value in problem.seconds]

    def lower_bound(self, objective: float, nodes: int) -> float:
        """The bound of the problem, in its seconds, where ``nodes`` may be computed again and that
        takes ``objective`` parts at least."""
        parts = objective
        if not self.is_whole:  # each cost was rounded by half a part at most
            parts -= 0.5 * nodes
        return self._least + max(0.0, parts) / self._scale
