"""A bar that shows how much of a checkpoint is read; only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable


def checkpoint_bar() -> Callable[[int, int, str], None]:
    """A function of (bytes read, bytes in all, variable that comes next), which draws on stderr."""
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

    def show(done: int, total: int, name: str) -> None:
        bar.start()
        bar.update(task, completed=done, total=total, name=name)
        if done >= total:
            bar.stop()

    return show
