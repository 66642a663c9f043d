"""A bar that shows how much of a checkpoint is read; only on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable


def checkpoint_bar(after_seconds: float = 0.0) -> Callable[[int, int, str], None]:
    """A function of (bytes read, bytes in all, variable that comes next), which draws on stderr,
    ``after_seconds`` from now on."""
    if not sys.stderr.isatty():
        return lambda *_: None
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    bar = Progress(
        TextColumn("loading"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TextColumn("{task.fields[name]}"),
        console=Console(stderr=True),
    )
    task = bar.add_task("loading", total=None, name="")
    begin = time.monotonic() + after_seconds

    def show(done: int, total: int, name: str) -> None:
        if time.monotonic() < begin:
            return
        bar.start()
        bar.update(task, completed=done, total=total, name=name)
        if done >= total:
            bar.stop()

    return show
