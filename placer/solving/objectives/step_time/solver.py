"""The least step time under the caps."""

from __future__ import annotations

from collections.abc import Sequence

from placer.prediction.scoring import transfer_bytes
from placer.problem.placement_problem import PlacementProblem
from placer.solving.objectives.refining import refine, spilled_ops
from placer.solving.objectives.step_time.problem import StepProblem
from placer.solving.solution import Solution, SolverParameters

_ALIKE_SHARE = 1e-3
"""What is gained by less is lost to what the problem leaves out, such as the way of results back to
the host."""


def minimise_step(
    problem: PlacementProblem,
    parameters: SolverParameters,
    deadline: float,
    feasible: Solution,
    hint: Sequence[int] | None = None,
) -> Solution:
    """The least step time until ``deadline`` (of ``time.monotonic()``), begun at ``feasible``: a
    placement that keeps all limits and says what has to be spilled.

    Of placements that take equally long, or nearly, the one that transfers less.
    """
    assert feasible.device_of is not None
    step = StepProblem(problem, spilled_ops(problem, feasible.device_of))

    def rank(units: Sequence[int]) -> tuple[float, ...]:
        return step.value(units), transfer_bytes(problem, step.units.expand(units))

    return refine(
        problem,
        "placer.solving.objectives.step_time.search:search_steps",
        step,
        rank,
        step.least_step,
        parameters,
        deadline,
        feasible,
        hint,
        _ALIKE_SHARE,
    )
