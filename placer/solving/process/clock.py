"""The clock of searches: it stands still while machine code is made.

A time limit is of the search; :func:`monotonic` takes the place of ``time.monotonic`` wherever a
deadline of one is set or looked at.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

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
