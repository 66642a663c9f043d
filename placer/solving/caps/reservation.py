"""A problem made tighter by what a prediction saw, and looser again.

What is reserved here (``transient_bytes``) is a guess of the solver; the ``--reserve`` of a user is
taken off the capacities before there is a problem.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from placer.problem.device_peaks import DevicePeak
from placer.problem.placement_problem import PlacementProblem


def tighten(
    problem: PlacementProblem,
    device_of: Sequence[int],
    peaks: Mapping[int, DevicePeak],
    *,
    cautious: bool = False,
    times: Mapping[int, int],
) -> PlacementProblem:
    """The problem with the moments of ``peaks`` as rows and with what else they held reserved.

    ``peaks`` are those above the capacity of their device under the placement ``device_of``,
    which breaks the tightened problem; so every call teaches something.  ``cautious`` reserves
    only as much as the peak was too high.
    """
    for device, peak in peaks.items():
        seen = _load_bytes(problem, device_of, device, peak.moment)
        unseen = peak.peak_bytes - seen
        overrun = peak.peak_bytes - problem.capacity_bytes[device]
        if cautious:
            unseen = min(unseen, problem.transient_bytes[device] + overrun)
        unseen += (times[device] - 1) * overrun
        if unseen > problem.transient_bytes[device]:
            problem = _tie_down(problem, device_of, device)
            problem = _reserve(problem, device, min(unseen, problem.capacity_bytes[device]))
    return with_moments(problem, peaks.values())


def with_moments(problem: PlacementProblem, peaks: Iterable[DevicePeak]) -> PlacementProblem:
    """The problem with the moments of ``peaks`` as rows too, where they are new."""
    return with_rows(problem, [dict(peak.moment) for peak in peaks if peak.moment])


def with_rows(problem: PlacementProblem, rows: Iterable[Mapping[int, int]]) -> PlacementProblem:
    """The problem with more rows of live bytes, where they are new."""
    learned = [row for row in rows if row not in problem.live_bytes]
    return replace(problem, live_bytes=(*problem.live_bytes, *learned))


def level(problem: PlacementProblem, share: float = 1.0) -> PlacementProblem:
    """The problem with a share of the most that is reserved on any accelerator reserved on all of
    the same capacity: what is moved from one to another takes its gaps along."""
    most: dict[int, int] = {}
    for device in problem.beside_host:
        capacity = problem.capacity_bytes[device]
        most[capacity] = max(most.get(capacity, 0), problem.transient_bytes[device])
    return replace(
        problem,
        transient_bytes=tuple(
            size if device == problem.host else max(size, int(share * most[capacity]))
            for device, (size, capacity) in enumerate(
                zip(problem.transient_bytes, problem.capacity_bytes, strict=True)
            )
        ),
    )


def spread(tightened: PlacementProblem, given: PlacementProblem) -> PlacementProblem:
    """The problem with at most a quarter of any capacity reserved beyond ``given``, and half of the
    most that is reserved on any device reserved on all others of the same capacity too: where
    placements change much from round to round, the next overrun is on another device."""
    sizes = tuple(
        size if device == given.host else max(before, min(size, capacity // 4))
        for device, (size, before, capacity) in enumerate(
            zip(
                tightened.transient_bytes,
                given.transient_bytes,
                given.capacity_bytes,
                strict=True,
            )
        )
    )
    return level(replace(tightened, transient_bytes=sizes), share=0.5)


def loosen(tightened: PlacementProblem, given: PlacementProblem, share: float) -> PlacementProblem:
    """The problem with a share of what was reserved beyond ``given``; with nothing of it, groups
    that were tied down are free again."""
    return replace(
        tightened,
        allowed=tightened.allowed if share else given.allowed,
        transient_bytes=tuple(
            before + int((now - before) * share)
            for before, now in zip(given.transient_bytes, tightened.transient_bytes, strict=True)
        ),
    )


def _load_bytes(
    problem: PlacementProblem, device_of: Sequence[int], device: int, moment: Mapping[int, int]
) -> int:
    """Resident and live bytes of the ops on a device at a moment."""
    return sum(
        size + moment.get(op, 0)
        for op, size in enumerate(problem.resident_bytes)
        if device_of[op] == device
    )


def _reserve(problem: PlacementProblem, device: int, reserved_bytes: int) -> PlacementProblem:
    transient = list(problem.transient_bytes)
    transient[device] = reserved_bytes
    return replace(problem, transient_bytes=tuple(transient))


def _tie_down(problem: PlacementProblem, device_of: Sequence[int], device: int) -> PlacementProblem:
    """The problem where the heaviest group on ``device`` may no longer use devices that are
    interchangeable with it.

    Without this, a reserve on one of two equal devices makes the next placement the mirror image
    of the last.  Nothing is lost: swapping two interchangeable devices brings any placement of
    the group there back to ``device``.
    """
    twins = _interchangeable(problem, device)
    here = [op for op, place in enumerate(device_of) if place == device]
    if not twins or not here:
        return problem
    leader = problem.group[max(here, key=lambda op: problem.resident_bytes[op])]
    return replace(
        problem,
        allowed=tuple(
            tuple(d for d in allowed if d not in twins) if group == leader else allowed
            for group, allowed in zip(problem.group, problem.allowed, strict=True)
        ),
    )


def _interchangeable(problem: PlacementProblem, device: int) -> set[int]:
    """The other devices that differ from ``device`` in their name only."""
    twins = {
        other
        for other in range(len(problem.device_names))
        if other not in (device, problem.host)
        and problem.capacity_bytes[other] == problem.capacity_bytes[device]
        and problem.transient_bytes[other] == problem.transient_bytes[device]
    }
    for allowed in set(problem.allowed):
        twins = {other for other in twins if (other in allowed) == (device in allowed)}
    return set() if device == problem.host else twins
