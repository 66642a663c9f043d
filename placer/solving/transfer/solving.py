"""The best placement under the limits: what is reduced and tried before the solver process."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from placer.graph.walks import grouped
from placer.problem.placement_problem import PlacementProblem, ProblemTensor
from placer.solving.conflicts.packing import Packing, fits
from placer.solving.process import clock
from placer.solving.process.child_search import search_in_child, start_searcher_ahead
from placer.solving.process.compiling import TRANSFER, is_compiled
from placer.solving.reduction.contraction import contract
from placer.solving.reduction.unit_problem import UnitProblem
from placer.solving.search.first_fit import first_placement
from placer.solving.solution import Solution, SolverParameters, Status
from placer.solving.transfer.schedule import SCHEDULE

_SEARCH = TRANSFER
_SEARCH_OF_FEW = "placer.solving.transfer.transfer_process:search_few_units"


def solve_units(
    units: UnitProblem,
    parameters: SolverParameters,
    deadline: float,
    hints: Sequence[Sequence[int]] = (),
) -> Solution:
    """The best placement of ``units`` until ``deadline`` (of ``clock.monotonic()``).

    ``hints`` are placements of the ops that may be good.  To expand and judge the placement found
    takes about as long as to reduce the problem: so much is kept back.
    """
    began = clock.monotonic()
    if units.unit_count > SCHEDULE.least_planned_units:
        start_searcher_ahead()
    problem = contract(units)
    deadline -= min(
        clock.monotonic() - began, SCHEDULE.most_reserved_share * max(0.0, deadline - began)
    )
    if cannot_fit(problem):
        return Solution(status=Status.INFEASIBLE)
    now = clock.monotonic()
    until = now + parameters.share(SCHEDULE.first_fit_share) * max(0.0, deadline - now)
    if _is_planned(problem, parameters) and parameters.work_limit is None:
        until = min(until, now + SCHEDULE.first_fit_seconds)
    known = [problem.project(hint) for hint in hints]
    start = first_placement(problem, known, until, forced_bytes(problem))
    is_cut = clock.monotonic() >= until
    if start is not None:
        value = problem.value(start)
        is_fixed = all(len(devices) == 1 for devices in problem.allowed)
        if value <= forced_bytes(problem) or is_fixed:
            return replace(_judge(problem, start, value), is_cut=is_cut)
        known = [problem.expand(each) for each in (start, *known)]
        problem = contract(problem, value)
        start, *known = map(problem.project, known)
    found = _search(problem, start, known, parameters, deadline)
    return replace(found, is_cut=found.is_cut or is_cut)


def on_host(problem: PlacementProblem, near: Sequence[int] | None = None) -> tuple[int, ...]:
    """The placement with all on the host that may be there, the rest as in ``near`` or on the first
    device allowed."""
    first = near or [allowed[0] if allowed else problem.host for allowed in problem.allowed]
    members = grouped((group, op) for op, group in enumerate(problem.group))
    device_of = list(first)
    for ops in members.values():
        if all(problem.may_use(op, problem.host) for op in ops):
            for op in ops:
                device_of[op] = problem.host
    return tuple(device_of)


def _is_planned(problem: UnitProblem, parameters: SolverParameters) -> bool:
    """Whether there is a heuristic search before CP-SAT: not of the fewest units, and of few only
    where there is no machine code to wait for, or where the same answer is asked for every time."""
    if problem.unit_count > SCHEDULE.least_searched_units:
        return True
    is_ready = parameters.work_limit is not None or is_compiled(TRANSFER)
    return problem.unit_count > SCHEDULE.least_planned_units and is_ready


def cannot_fit(problem: UnitProblem) -> bool:
    """Whether sums show that nothing fits (a unit, or all units of a set of devices), or a little
    search that the largest units alone do not."""
    if not problem.rows:
        return not all(problem.allowed)
    rows = [row.weights for row in problem.rows]
    capacity = [max(caps) for caps in zip(*(row.capacity for row in problem.rows), strict=True)]
    largest = max(*map(sum, rows), *capacity) * problem.device_count
    dtype = np.int64 if largest < 2**62 else object  # sums of more are Python's integers
    allowed = np.zeros((problem.unit_count, problem.device_count), np.bool_)
    for unit, devices in enumerate(problem.allowed):
        allowed[unit, list(devices)] = True
    packing = Packing(
        unit_of=np.arange(problem.unit_count),
        allowed=allowed,
        weights=np.array(rows, dtype),
        capacity=np.array(capacity, dtype),
        capped=np.ones(problem.device_count, np.bool_),
    )
    return fits(packing, most=64) is False


def _search(
    problem: UnitProblem,
    start: tuple[int, ...] | None,
    hints: Sequence[tuple[int, ...]],
    parameters: SolverParameters,
    deadline: float,
) -> Solution:
    """The search from ``start`` and ``hints``; whatever happens to it, ``start`` is not lost."""
    # late or not, a first placement takes no longer, and is mostly better than what is known
    left = max(deadline - clock.monotonic(), SCHEDULE.least_child_seconds)
    starts = [
        *([] if start is None else [start]),
        *(_where_allowed(problem, hint) for hint in hints),
    ]
    search = _SEARCH if _is_planned(problem, parameters) else _SEARCH_OF_FEW
    found = search_in_child(search, problem, starts, parameters, left)
    candidates = [device_of for device_of in (start, found.device_of) if device_of is not None]
    if not candidates:
        status = Status.INFEASIBLE if found.status is Status.INFEASIBLE else Status.UNKNOWN
        return Solution(status=status, warnings=found.warnings, is_cut=found.is_cut)
    bound = max(found.lower_bound or 0, forced_bytes(problem))
    best = min(candidates, key=lambda units: (problem.value(units), problem.tie_rank(units)))
    judged = _judge(problem, best, bound, found.warnings)
    return replace(judged, is_cut=found.is_cut)


def _where_allowed(problem: UnitProblem, hint: Sequence[int]) -> tuple[int, ...]:
    """The hint with every unit on a device that it may be on: searches take that for granted, and a
    hint may be of another round, in which it was free."""
    return tuple(
        device if device in allowed else allowed[0]
        for device, allowed in zip(hint, problem.allowed, strict=True)
    )


def _judge(
    problem: UnitProblem,
    best: tuple[int, ...],
    bound: float,
    warnings: tuple[tuple[str, str], ...] = (),
) -> Solution:
    """The placement with what is proven about it."""
    value = problem.value(best)
    is_optimal = bound >= value
    return Solution(
        status=Status.OPTIMAL if is_optimal else Status.FEASIBLE,
        device_of=problem.expand(best),
        value=value,
        lower_bound=value if is_optimal else bound or None,
        warnings=warnings,
    )


def forced_bytes(problem: UnitProblem) -> int:
    """The bytes that cross in every placement, such as an input on the host that only accelerators
    read: a lower bound that needs no search.

    With the producer on p, a net is sent to every device but p that is the only one of some
    consumer, and at least once if some consumer may not use p.  The least over the devices of the
    producer bounds the net, and the sum over the nets every placement, since each net is paid for
    by itself; to that comes the least that every unit costs on its devices.
    """
    sent = sum(net.bytes * _least_sends(net, problem) for net in problem.nets)
    units = zip(problem.cost, problem.allowed, strict=True)
    least = (min((costs[d] for d in devices), default=0) for costs, devices in units if any(costs))
    return sent + sum(least)


def _least_sends(net: ProblemTensor, problem: UnitProblem) -> int:
    readers = [problem.allowed[unit] for unit in net.consumers]
    only = {devices[0] for devices in readers if len(devices) == 1}
    return min(
        max(len(only - {home}), int(any(home not in devices for devices in readers)))
        for home in problem.allowed[net.producer]
    )
