"""Blocks of text for a terminal: titles, lists of facts, tables that fit the width."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.box import HORIZONTALS
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from placer.rendering.quantities import drop_calls, shorten

MINIMUM_WIDTH = 30
"""Below this nothing is readable; the terminal wraps what is too long."""

_NAME_WIDTH = 16
"""A table gives up columns from the right before its first one gets narrower than this."""

_GAP = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table: its header, and whether it holds numbers (set to the right)."""

    header: str
    number: bool = True


def to_text(blocks: Iterable[RenderableType], *, width: int, colour: bool) -> str:
    """The blocks one under the other, an empty line between them, no spaces at line ends."""
    target = io.StringIO()
    console = Console(
        file=target,
        width=max(width, MINIMUM_WIDTH),
        force_terminal=colour,
        no_color=not colour,
        color_system="standard" if colour else None,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
    )
    for number, block in enumerate(blocks):
        if number:
            console.print()
        console.print(block)
    return "\n".join(line.rstrip() for line in target.getvalue().splitlines()) + "\n"


def title(text: str, note: str = "") -> RenderableType:
    """A heading, with a line of explanation under it."""
    heading = Text(text, style="bold")
    return Group(heading, Text(note)) if note else heading


def facts(heading: str, rows: Sequence[tuple[str, RenderableType]]) -> RenderableType:
    """A heading and labelled values, the values wrapped beside their labels."""
    grid = Table.grid(padding=(0, _GAP))
    grid.add_column(style="cyan", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, value in rows:
        grid.add_row(label, value)
    return Group(Text(heading, style="bold"), Padding(grid, (0, 0, 0, 2)))


def table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], *, width: int, limit: int = 0
) -> RenderableType:
    """A table of at most ``width`` columns.

    The first column is shortened in its middle, and columns are left out from the right where
    that is not enough; if one name is too long, all lose their call nodes, so that they can be
    compared.  With a ``limit`` that many rows are shown, and the rest counted.
    """
    shown_rows = rows[:limit] if limit else rows
    shown, name_width = _fit(columns, shown_rows, max(width, MINIMUM_WIDTH))
    grid = Table(box=HORIZONTALS, show_edge=False, pad_edge=False, padding=(0, _GAP - 1, 0, 0))
    for column in columns[:shown]:
        grid.add_column(column.header, justify="right" if column.number else "left", no_wrap=True)
    crowded = any(len(row[0]) > name_width for row in shown_rows)
    for row in shown_rows:
        name = shorten(drop_calls(row[0]) if crowded else row[0], name_width)
        grid.add_row(Text(name), *(Text(cell) for cell in row[1:shown]))
    if len(shown_rows) == len(rows):
        return grid
    return Group(grid, Text(f"and {len(rows) - len(shown_rows):,} more"))


def _fit(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> tuple[int, int]:
    """How many columns fit, and the width that is left for the first."""
    natural = [
        max(len(column.header), *(len(row[number]) for row in rows), 0)
        for number, column in enumerate(columns)
    ]
    for shown in range(len(columns), 1, -1):
        left = width - sum(natural[1:shown]) - _GAP * (shown - 1)
        if left >= min(natural[0], _NAME_WIDTH):
            return shown, min(left, natural[0])
    return 1, width
