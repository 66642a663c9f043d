"""Processes that keep the processor busy beside a measurement."""

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """So many processes that turn round beside the block."""
    beside = [multiprocessing.Process(target=_turn, daemon=True) for _ in range(loops)]
    for each in beside:
        each.start()
    try:
        yield
    finally:
        for each in beside:
            each.kill()


def _turn() -> None:
    while True:
        pass
