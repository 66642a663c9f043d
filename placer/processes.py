"""No cycle collection while many objects are made that form no cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_paused() -> Iterator[None]:
    """Python's cycle collector waits; for a graph of 50,000 ops its walks over all objects take
    two fifths of a prediction.  Also a decorator.

    What was made meanwhile counts as old afterwards, as if it had been walked over."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()
