"""A time for tests of deadlines, which depends on no machine."""

from __future__ import annotations


class VirtualTime:
    """A clock that only ``sleep`` moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        """Seconds since it was made."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Moves it, at once."""
        self.now += seconds
