"""From a placement that fits to the best one for an objective in seconds."""

from collections.abc import Sequence
from dataclasses import replace

from placer.prediction.scoring import busy_seconds, cost, transfer_bytes
from placer.prediction.times.step_time import longest_step_seconds
from placer.problem.placement_problem import PlacementProblem
from placer.solving.objectives.step_time.problem import StepProblem
from placer.solving.objectives.throughput.problem import LoadProblem
from placer.solving.process import clock
from placer.solving.process.child_search import search_in_child
from placer.solving.solution import Solution, SolverParameters, Status

Objective = LoadProblem | StepProblem
"""A unit problem with what its placements are worth in seconds: ``search`` solves it in the solver
process, and of placements whose values differ by ``alike_share`` or less, the one that transfers
less is the better."""


def value_of(problem: PlacementProblem, device_of: Sequence[int]) -> float:
    """Returns what the objective of ``problem`` says of a placement, by the scorer."""
    if problem.objective == "step-time":
        return longest_step_seconds(problem, device_of)
    if problem.objective == "throughput":
        return max(busy_seconds(problem, device_of))
    return cost(problem, device_of)


def refine(
    problem: PlacementProblem,
    objective: Objective,
    parameters: SolverParameters,
    deadline: float,
    feasible: Solution,
    hint: Sequence[int] | None,
) -> Solution:
    """The best placement until ``deadline`` (of ``clock.monotonic()``), begun at ``feasible``: that
    keeps all limits."""
    assert feasible.device_of is not None
    units = objective.units
    starts = [units.project(feasible.device_of)]
    if hint is not None and objective.is_feasible(units.project(hint)):
        starts.append(units.project(hint))
    start = min(starts, key=objective.value)
    seconds = max(0.0, deadline - clock.monotonic())
    found = search_in_child(objective.search, objective, [start], parameters, seconds)
    # the best by the scorer; among those alike, the one that sends least
    placements = dict.fromkeys([*starts, *([] if found.device_of is None else [found.device_of])])
    values = {each: value_of(problem, units.expand(each)) for each in placements}
    most = min(values.values()) * (1.0 + objective.alike_share)
    alike = [each for each in placements if values[each] <= most]
    best = min(alike, key=lambda each: (transfer_bytes(problem, units.expand(each)), values[each]))
    device_of, value = units.expand(best), values[best]
    # what is proven of it
    bound = max(found.lower_bound or 0.0, objective.least()) or None
    # seconds are floats: within this share of each other, value and bound are one
    is_optimal = bound is not None and bound >= value * (1.0 - 1e-6)
    return replace(
        feasible,
        status=Status.OPTIMAL if is_optimal else Status.FEASIBLE,
        device_of=device_of,
        value=value,
        lower_bound=min(bound, value) if bound is not None else None,
        warnings=(*feasible.warnings, *found.warnings),
        is_cut=feasible.is_cut or found.is_cut,
    )
