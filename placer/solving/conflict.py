"""Why a problem is infeasible, in numbers, and what would make it fit."""

from __future__ import annotations

from typing import Any

from placer.problem import PlacementProblem


def explain_conflict(problem: PlacementProblem) -> dict[str, Any]:
    """The conflict of an infeasible problem: ``caps``, ``pins``, ``groups`` and ``fixes``."""
    loads = [
        sum(problem.resident_bytes) + sum(moment.values()) for moment in problem.live_bytes or ({},)
    ]
    return {
        "caps": {
            "needed_bytes": max(loads),
            "usable_bytes": sum(problem.capacity_bytes) - sum(problem.transient_bytes),
        },
        "pins": [],
        "groups": [],
        "fixes": [],
    }
