"""What is left where nothing else is known to keep the caps: the host alone.

From there others are sought that spill less: with less and less of the host's memory, as shares of
what the host alone peaks at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from placer.prediction.scoring import score
from placer.problem.placement_problem import PlacementProblem
from placer.solving.objectives.refining import value_of
from placer.solving.solution import Solution, Status

_LEAST_SHARE = 0.125
_STAYING = (0.25, 0.5, 1.0)

SPILLED_ALL = (
    "spill_all",
    "all that may is on the host: no placement that spills less was found to keep the caps in time",
)


def on_host(problem: PlacementProblem, near: Sequence[int] | None) -> tuple[int, ...]:
    """The placement with all on the host that may be there, the rest as in ``near`` or on the first
    device allowed."""
    places = (allowed[0] if allowed else problem.host for allowed in problem.allowed)
    return tuple(
        problem.host if problem.host in allowed or spillable else place
        for allowed, spillable, place in zip(
            problem.allowed, problem.spillable, near or places, strict=True
        )
    )


def host_alone(problem: PlacementProblem, device_of: Sequence[int]) -> Solution:
    """That placement, with nothing proven about it."""
    return Solution(
        status=Status.FEASIBLE,
        device_of=tuple(device_of),
        value=value_of(problem, device_of),
        spilled_bytes=score(problem, device_of).spilled_bytes,
        warnings=(SPILLED_ALL,),
    )


def host_memories(problem: PlacementProblem, peak_bytes: int) -> Iterator[int]:
    """How much of the host's memory to try, if the host alone peaks at ``peak_bytes``: first nearly
    all, at last what the other devices have no room for."""
    others = sum(problem.capacity_bytes) - problem.capacity_bytes[problem.host]
    staying = min(1.0 - _LEAST_SHARE, others / max(1, peak_bytes))
    for share in _STAYING:
        yield int((1.0 - share * staying) * peak_bytes)
