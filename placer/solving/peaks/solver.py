"""The least transfer found under caps on peaks, along orders that are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from placer.prediction.orders.possible_lifetimes import PossibleLifetimes
from placer.prediction.scoring import score
from placer.problem.placement_problem import PlacementProblem
from placer.solving.following import hold_followers
from placer.solving.objectives.refining import spilled_ops
from placer.solving.peaks.problem import to_peak_problem
from placer.solving.process import clock
from placer.solving.process.child_search import search_in_child
from placer.solving.reduction.unit_problem import SpillRules, reduce_to_units
from placer.solving.search.depth import find_depths
from placer.solving.signals import settle_signals
from placer.solving.solution import Solution, SolverParameters, Status
from placer.solving.tidying import tidy

CONFINED = (
    "spill_confined",
    "the placement was compared with some of those that spill as much, not with all",
)

_SEARCH = "placer.solving.peaks.search:search_peaks"


Overruns = Callable[[Sequence[int]], Sequence[int]]
"""From one device number per op to the bytes that each device is predicted to peak above its cap;
zero or less where it is not above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrySchedule:
    """The searches along the orders, each begun at what the one before found."""

    most_tries: int = 4
    first_share: float = 0.75  # of the time
    next_share: float = 0.6  # of what is left then
    margin: float = 0.998  # of the caps: what prediction and search mostly differ by
    most_tidied: int = 2  # times that a placement without debris may be above the caps
    too_much: float = 1.1  # lower caps by so much more than a device was above


_SCHEDULE = TrySchedule()


def solve_along_orders(
    problem: PlacementProblem,
    lifetimes: PossibleLifetimes,
    find_overruns: Overruns,
    parameters: SolverParameters,
    deadline: float,
    hint: Sequence[int] | None,
    *,
    least_bytes: float = 0.0,
    host_bytes: int | None = None,
) -> Solution | None:
    """A placement whose predicted peaks keep all caps, or ``None`` if none was found until
    ``deadline`` (of ``clock.monotonic()``).

    What the ``hint`` spills may be spilled; with ``host_bytes``, anything that may, as long as the
    host peaks at hardly more than that.  The search is over where a placement transfers
    ``least_bytes``, what is proven to be the least.  Where the prediction is above what the search
    went by, the caps of the next search are lower.
    """
    spilled = frozenset([] if hint is None else spilled_ops(problem, hint))
    rules = SpillRules(candidates=spilled) if spilled else None
    held = problem
    if host_bytes is not None:
        rules = SpillRules()
    else:
        held = hold_followers(problem, spills=bool(spilled))
    units = reduce_to_units(replace(held, live_bytes=()), rules)
    if not all(units.allowed):
        return None
    capacity = [int(_SCHEDULE.margin * cap) for cap in problem.capacity_bytes]
    if host_bytes is not None:
        capacity[problem.host] = min(capacity[problem.host], host_bytes)
    known = [] if hint is None else [units.project(hint)]
    positions = find_depths(problem, units).orders()
    share, overhead, is_cut = parameters.share(_SCHEDULE.first_share), 0.0, False
    for _ in range(_SCHEDULE.most_tries):
        seconds = share * (deadline - clock.monotonic()) - overhead
        if seconds <= 0.0:
            return None
        peaks = to_peak_problem(problem, units, lifetimes, capacity, least_bytes, positions)
        found = search_in_child(_SEARCH, peaks, known, parameters, seconds)
        is_cut = is_cut or found.is_cut
        if found.device_of is None:
            return None
        began = clock.monotonic()
        device_of, overruns = _tidied(problem, units.expand(found.device_of), find_overruns)
        overhead = clock.monotonic() - began
        if max(overruns) <= 0:
            scored = score(replace(problem, live_bytes=()), device_of)
            return Solution(
                status=Status.FEASIBLE,
                device_of=device_of,
                value=scored.transfer_bytes,
                spilled_bytes=scored.spilled_bytes,
                warnings=(
                    *found.warnings,
                    *([CONFINED] if spilled_ops(problem, device_of) else []),
                ),
                is_cut=is_cut,
            )
        capacity = [
            cap - int(_SCHEDULE.too_much * max(0, over))
            for cap, over in zip(capacity, overruns, strict=True)
        ]
        known, share = [found.device_of], parameters.share(_SCHEDULE.next_share)
    return None


def _tidied(
    problem: PlacementProblem, device_of: Sequence[int], find_overruns: Overruns
) -> tuple[tuple[int, ...], Sequence[int]]:
    """The placement without debris if it keeps the caps so, if need be with what it was above them
    reserved; else as it is; with its overruns."""
    found = settle_signals(problem, device_of)
    reserved = problem
    for _ in range(_SCHEDULE.most_tidied):
        tidied = tidy(reserved, found)
        if tidied == found:
            break
        overruns = find_overruns(tidied)
        if max(overruns) <= 0:
            return tidied, overruns
        more = zip(reserved.transient_bytes, overruns, strict=True)
        reserved = replace(reserved, transient_bytes=tuple(a + max(0, b) for a, b in more))
    return found, find_overruns(found)
