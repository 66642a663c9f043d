"""Which of the solutions of two rounds is better."""

from __future__ import annotations

from placer.solving.solution import Solution
from placer.solving.transfer.schedule import SCHEDULE


def better(known: Solution | None, found: Solution | None) -> Solution | None:
    """The one that spills clearly less (by more than the slack that spilling has), else the one
    that transfers less, else the first."""
    if known is None or found is None:
        return known or found
    for one, other in ((known, found), (found, known)):
        if one.spilled_bytes * (100 + SCHEDULE.slack_percent) < other.spilled_bytes * 100:
            return one
    return min(known, found, key=lambda solution: solution.value or 0)
