"""The least bottleneck under the caps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from placer.prediction.scoring import score
from placer.problem import PlacementProblem
from placer.solving.child_search import search_in_child
from placer.solving.solution import Solution, SolverParameters, Status
from placer.solving.throughput.problem import to_loads

_FEASIBILITY_SHARE = 0.25
_OPTIMAL_GAP = 1e-6
"""Seconds are floats: within this share of each other, value and bound are one."""


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
    spilled = [
        op
        for op, device in enumerate(feasible.device_of)
        if device == problem.host and device not in problem.allowed[op]
    ]
    loads = to_loads(problem, spilled)
    starts = [loads.project(feasible.device_of)]
    if hint is not None and loads.is_feasible(loads.project(hint)):
        starts.append(loads.project(hint))
    start = min(starts, key=loads.value)
    left = deadline - time.monotonic()
    found = search_in_child(loads, start, parameters, max(0.0, left))
    best = min(filter(None, (start, found.device_of)), key=loads.value)
    value = loads.value(best)
    bound = None if spilled else max(found.lower_bound or 0.0, loads.least_load()) or None
    is_optimal = bound is not None and bound >= value * (1.0 - _OPTIMAL_GAP)
    scored = score(problem, loads.expand(best))
    return replace(
        feasible,
        status=Status.OPTIMAL if is_optimal else Status.FEASIBLE,
        device_of=loads.expand(best),
        value=scored.bottleneck_seconds,
        lower_bound=min(bound, value) if bound is not None else None,
        spilled_bytes=scored.spilled_bytes,
        warnings=(*feasible.warnings, *found.warnings),
    )


def feasibility_parameters(parameters: SolverParameters) -> SolverParameters:
    """What part of the time may go into finding a placement that fits at all."""
    return replace(
        parameters, time_limit_seconds=_FEASIBILITY_SHARE * parameters.time_limit_seconds
    )
