"""Progress of long calls as lines on stderr: in a CI job, and for callers from Python."""

from __future__ import annotations

import functools
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

LONG_SECONDS = 3.0
"""Seconds after which a line says what is done, and then between two lines."""


class Stage(logging.Handler):
    """As text, which a display asks for at each refresh: the message, the stage that was logged
    last, and what is left of its time if its record has ``limit_seconds``."""

    def __init__(self, message: str) -> None:
        super().__init__(logging.INFO)
        self.message, self.stage, self.ends = message, "", 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """Takes the stage of a record, which is no warning."""
        if record.levelno > logging.INFO:
            return
        limit = getattr(record, "limit_seconds", None)
        self.stage = record.getMessage()
        self.ends = time.monotonic() + limit if limit else 0.0

    def __str__(self) -> str:
        left = max(0.0, self.ends - time.monotonic())
        countdown = f", at most {left:.0f} s left" if self.ends else ""
        return f"{self.message}: {self.stage}{countdown}" if self.stage else self.message


class Lines(Stage):
    """Prints the stage when it is another one than it printed last."""

    shown: str | None = None

    def show(self) -> None:
        """Prints the stage."""
        if self.stage != self.shown:
            self.shown = self.stage
            sys.stderr.write(f"{self}\n")


@contextmanager
def printed_progress(message: str) -> Iterator[None]:
    """Prints ``message`` and the stage every :data:`LONG_SECONDS` while the block runs."""
    logger, stage, ended = logging.getLogger("placer"), Lines(message), threading.Event()

    def show() -> None:
        while not ended.wait(LONG_SECONDS):
            stage.show()

    threading.Thread(target=show, daemon=True).start()
    logger.addHandler(stage)
    try:
        yield
    finally:
        ended.set()
        logger.removeHandler(stage)


@functools.cache
def with_progress(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """``function``, which prints its progress on a terminal and in a notebook, unless the logs of
    this package are shown anyway."""

    @functools.wraps(function)
    def shown(*arguments: Any, **options: Any) -> Any:
        logger = logging.getLogger("placer")
        level = logger.getEffectiveLevel()
        is_seen = sys.stderr.isatty() or "ipykernel" in sys.modules
        if not (is_seen and level > logging.INFO):
            return function(*arguments, **options)
        with _stages_logged(logger, level), printed_progress(name):
            return function(*arguments, **options)

    return shown


@contextmanager
def _stages_logged(logger: logging.Logger, level: int) -> Iterator[None]:
    """Has stages logged while the block runs; whoever listens further up gets what he got."""
    own_level, propagates, root = logger.level, logger.propagate, _Further(level)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(root)
    try:
        yield
    finally:
        logger.removeHandler(root)
        logger.setLevel(own_level)
        logger.propagate = propagates


class _Further(logging.Handler):
    """Hands records of a level to the handlers of the root logger."""

    def emit(self, record: logging.LogRecord) -> None:
        logging.getLogger().callHandlers(record)
