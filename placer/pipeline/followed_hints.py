"""Colocation hints that cost nothing are followed.

A search does not know them.  Where a placement parts what a hint ties, it may be worth as much with
both on one device, and ``plan.device_function`` gives plans that follow every hint.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from placer.graph.op_graph import OpGraph
from placer.pipeline.formulation import Formulation
from placer.prediction.orders.step_peaks import StepPeaks
from placer.prediction.scoring import cost
from placer.problem.placement_problem import PlacementProblem
from placer.solving.solution import Solution


def hints_apart(graph: OpGraph, placement: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The pairs of ops that a hint ties and ``placement`` parts."""
    pairs = [(group.ops[0], group.ops[1]) for group in graph.colocation_hints]
    return tuple(pair for pair in pairs if placement[pair[0]] != placement[pair[1]])


def follow_hints(formulation: Formulation, solution: Solution, peaks: StepPeaks) -> Solution:
    """``solution`` with groups moved to what hints tie them to, one by one, where that costs
    nothing; as it is where a cap would be exceeded, or seconds are asked for: in these no move is
    free, and to know what it costs takes long."""
    graph, problem, best = formulation.graph, formulation.problem, solution.device_of
    if best is None or not graph.colocation_hints or problem.objective != "transfer":
        return solution
    parted = hints_apart(graph, problem.placement(best))
    # a score looks at every op
    value, left = cost(problem, best), min(100, 500_000 // len(best))
    for pair in parted:
        if left <= 0:
            break
        for trial in _together(problem, best, pair):
            still = hints_apart(graph, problem.placement(trial))
            left -= 1
            if len(still) < len(parted) and cost(problem, trial) <= value:
                best, parted = trial, still
                break
    caps = problem.capacity_bytes
    if best == solution.device_of or any(
        peak.peak_bytes > cap for peak, cap in zip(peaks(best), caps, strict=True)
    ):
        return solution
    return replace(solution, device_of=best, value=cost(problem, best))


def _together(
    problem: PlacementProblem, device_of: tuple[int, ...], pair: tuple[str, str]
) -> Iterator[tuple[int, ...]]:
    """Yields the placements with the group of one op of a pair on the device of the other's."""
    first, second = map(problem.op_names.index, pair)
    for op, target in ((second, device_of[first]), (first, device_of[second])):
        group = {n for n, group in enumerate(problem.group) if group == problem.group[op]}
        if device_of[op] != target and all(target in problem.allowed[n] for n in group):
            yield tuple(target if n in group else here for n, here in enumerate(device_of))
