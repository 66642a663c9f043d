"""The clock of searches: it stands still while machine code is made.

A time limit is of the search; :func:`monotonic` takes the place of ``time.monotonic`` wherever a
deadline of one is set or looked at.  A :class:`Deadline` knows that clock and counts of work.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

_lock = threading.Lock()
_stood_seconds = 0.0
_waiting = 0
_since = 0.0


def monotonic() -> float:
    """Seconds of ``time.monotonic()`` without those for which the clock stood still."""
    with _lock:
        return (_since if _waiting else time.monotonic()) - _stood_seconds


@contextmanager
def standing_still() -> Iterator[None]:
    """The clock does not run while the block does, in any thread."""
    global _waiting, _since, _stood_seconds
    with _lock:
        if not _waiting:
            _since = time.monotonic()
        _waiting += 1
    try:
        yield
    finally:
        with _lock:
            _waiting -= 1
            if not _waiting:
                _stood_seconds += time.monotonic() - _since


@dataclass(frozen=True, slots=True)
class Deadline:
    """When a part of a search ends: ``at`` a time of :func:`monotonic`.  Where work ``is_counted``
    parts end by that, and each may take all of the time that is left."""

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
