"""Warnings and the conflict of a placement whose predicted peaks are above some caps."""

from __future__ import annotations

from collections.abc import Mapping

from cost_models.byte_sizes import format_bytes
from placer.problem.conflict import CapInConflict, Conflict, Fix
from placer.problem.device_peaks import DevicePeak
from placer.problem.placement_problem import PlacementProblem

PEAK_OVER_CAP = "peak_over_cap"
"""The code of the warning."""


def overrun_warnings(
    problem: PlacementProblem, overruns: Mapping[int, DevicePeak]
) -> list[tuple[str, str]]:
    """One warning per device, with its peak, or what its allocator needs, and its cap."""
    return [
        (
            PEAK_OVER_CAP,
            f"{problem.device_names[device]} requires {format_bytes(peak.peak_bytes)}, "
            f"{format_bytes(peak.peak_bytes - problem.capacity_bytes[device])} more than its limit "
            f"of {format_bytes(problem.capacity_bytes[device])}",
        )
        for device, peak in overruns.items()
    ]


def overrun_conflict(problem: PlacementProblem, overruns: Mapping[int, DevicePeak]) -> Conflict:
    """The caps that the placement breaks, and those that it would keep."""
    names = problem.device_names
    request = ",".join(f"{names[d]}={peak.peak_bytes}" for d, peak in overruns.items())
    advice = (
        f"raise the caps to what is predicted: --max-memory {request} "
        "(bytes, beside any --reserve)",
        "give the solver more time: --time-limit",
    )
    return Conflict(
        caps=tuple(
            CapInConflict(
                device=names[device],
                peak_bytes=peak.peak_bytes,
                usable_bytes=problem.capacity_bytes[device],
            )
            for device, peak in overruns.items()
        ),
        fixes=tuple(Fix(change=sentence) for sentence in advice),
    )
