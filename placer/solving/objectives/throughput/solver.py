"""The least bottleneck under the caps."""

from __future__ import annotations

from collections.abc import Sequence

from placer.prediction.scoring import busy_seconds
from placer.problem.placement_problem import PlacementProblem
from placer.solving.objectives.refining import refine, spilled_ops
from placer.solving.objectives.throughput.problem import to_loads
from placer.solving.solution import Solution, SolverParameters


def minimise_bottleneck(
    problem: PlacementProblem,
    parameters: SolverParameters,
    deadline: float,
    feasible: Solution,
    hint: Sequence[int] | None = None,
) -> Solution:
    """The least bottleneck until ``deadline`` (of ``time.monotonic()``), begun at ``feasible``: a
    placement that keeps all limits and says what has to be spilled."""
    assert feasible.device_of is not None
    loads = to_loads(problem, spilled_ops(problem, feasible.device_of))

    def rank(units: Sequence[int]) -> tuple[float, ...]:
        return (max(busy_seconds(problem, loads.units.expand(units))),)

    return refine(
        problem,
        "placer.solving.objectives.throughput.search:search_loads",
        loads,
        rank,
        loads.least_load,
        parameters,
        deadline,
        feasible,
        hint,
    )
