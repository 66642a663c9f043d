"""The least step time under the caps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from placer.prediction.scoring import score
from placer.problem import PlacementProblem
from placer.solving.child_search import search_in_child
from placer.solving.solution import Solution, SolverParameters, Status
from placer.solving.step_time.problem import StepProblem

_OPTIMAL_GAP = 1e-6


def minimise_step(
    problem: PlacementProblem,
    parameters: SolverParameters,
    deadline: float,
    feasible: Solution,
    hint: Sequence[int] | None = None,
) -> Solution:
    """The least step time until ``deadline`` (of ``time.monotonic()``), begun at ``feasible``: a
    placement that keeps all limits and says what has to be spilled.

    Of placements that take equally long, the one that transfers less.
    """
    assert feasible.device_of is not None
    spilled = [
        op
        for op, device in enumerate(feasible.device_of)
        if device == problem.host and device not in problem.allowed[op]
    ]
    step = StepProblem(problem, spilled)
    starts = [step.loads.project(feasible.device_of)]
    if hint is not None and step.is_feasible(step.loads.project(hint)):
        starts.append(step.loads.project(hint))
    start = min(starts, key=step.value)
    left = deadline - time.monotonic()
    found = search_in_child(step, start, parameters, max(0.0, left))
    candidates = [*starts, *([found.device_of] if found.device_of is not None else [])]
    best = min(candidates, key=lambda units: _rank(step, units))
    value = step.value(best)
    bound = None if spilled else max(found.lower_bound or 0.0, step.least_step()) or None
    is_optimal = bound is not None and bound >= value * (1.0 - _OPTIMAL_GAP)
    return replace(
        feasible,
        status=Status.OPTIMAL if is_optimal else Status.FEASIBLE,
        device_of=step.loads.expand(best),
        value=value,
        lower_bound=min(bound, value) if bound is not None else None,
        spilled_bytes=score(problem, step.loads.expand(best)).spilled_bytes,
        warnings=(*feasible.warnings, *found.warnings),
    )


def _rank(step: StepProblem, units: Sequence[int]) -> tuple[float, int]:
    transfer = score(step.problem, step.loads.expand(units)).transfer_bytes
    return step.value(units), transfer
