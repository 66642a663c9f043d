"""Until when a baseline may go on: it searches nothing, but takes a while on a large program."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from placer.solving.process import clock

_until = ContextVar("until", default=math.inf)


class TooLateError(Exception):
    """A baseline has not ended in time."""


@contextmanager
def ending_by(until: float) -> Iterator[None]:
    """In the block a baseline raises :class:`TooLateError` from ``until`` on (of
    ``clock.monotonic()``)."""
    token = _until.set(until)
    try:
        yield
    finally:
        _until.reset(token)


def require_time() -> None:
    """Raises :class:`TooLateError` if nothing is left of it."""
    if _until.get() < clock.monotonic():
        raise TooLateError
