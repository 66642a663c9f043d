"""When a part of a search ends: by the clock of searches, and by counts of work."""

from __future__ import annotations

from dataclasses import dataclass, replace

from placer.solving.process.clock import monotonic


@dataclass(frozen=True, slots=True)
class Deadline:
    """When a part of a search ends: ``at`` a time of the clock of searches.  Where work
    ``is_counted`` parts end by that, and each may take all of the time that is left."""

    at: float
    is_counted: bool = False

    def left(self) -> float:
        """Seconds until then, zero once it is over."""
        return max(0.0, self.at - monotonic())

    def is_over(self, needed: float = 0.0) -> bool:
        """Whether there is no time, or less than ``needed`` seconds, until then."""
        return self.left() <= needed

    def part(self, share: float, least: float = 0.0) -> Deadline:
        """The deadline of a part that has a share of the time that is left, at least so many
        seconds of it; all of it where work is counted."""
        left = self.left()
        seconds = left if self.is_counted else min(left, max(least, share * left))
        return replace(self, at=monotonic() + seconds)

    def before(self, seconds: float) -> Deadline:
        """The deadline so many seconds earlier."""
        return replace(self, at=self.at - seconds)
