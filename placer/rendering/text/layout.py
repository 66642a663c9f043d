"""Blocks of text for a terminal: titles, lists of facts, tables that fit the width."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.box import HORIZONTALS
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from placer.rendering.quantities import drop_calls, printable, shorten

MINIMUM_WIDTH = 30
"""Below this nothing is readable; the terminal wraps what is too long."""

_NAME_WIDTH = 16
"""A table gives up columns from the right before its first one gets narrower than this."""

_GAP = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table: its header, and whether it holds numbers (set to the right)."""

    header: str
    number: bool


def to_text(blocks: Iterable[RenderableType], *, width: int, colour: bool) -> str:
    """The blocks one under the other, an empty line between them, no spaces at line ends."""
    target = io.StringIO()
    console = Console(
        file=target,
        width=max(width, MINIMUM_WIDTH),
        force_terminal=colour,
        force_jupyter=False,
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


@dataclass(frozen=True, slots=True)
class Title:
    """A heading, with a line of explanation under it."""

    text: str
    note: str

    def __rich__(self) -> RenderableType:
        heading = Text(self.text, style="bold")
        return Group(heading, Text(self.note)) if self.note else heading


@dataclass(frozen=True, slots=True)
class Facts:
    """A heading and labelled values, the values wrapped beside their labels."""

    heading: str
    rows: Sequence[tuple[str, RenderableType]]

    def __rich__(self) -> RenderableType:
        grid = Table.grid(padding=(0, _GAP))
        grid.add_column(style="cyan", no_wrap=True)
        grid.add_column(overflow="fold")
        for label, value in self.rows:
            grid.add_row(label, value)
        return Group(Text(self.heading, style="bold"), Padding(grid, (0, 0, 0, 2)))


@dataclass(frozen=True, slots=True)
class Rows:
    """A table of at most ``width`` columns, see :func:`table`."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    width: int
    limit: int
    marked: frozenset[tuple[int, int]] = frozenset()

    @property
    def shown(self) -> Sequence[Sequence[str]]:
        """The rows up to the limit."""
        return self.rows[: self.limit] if self.limit else self.rows

    @property
    def rest(self) -> str:
        """How many more there are, ``""`` if all are shown."""
        left = len(self.rows) - len(self.shown)
        return f"and {left:,} more" if left else ""

    def __rich__(self) -> RenderableType:
        count, name_width = _fit(self.columns, self.shown, max(self.width, MINIMUM_WIDTH))
        grid = Table(box=HORIZONTALS, show_edge=False, pad_edge=False, padding=(0, _GAP - 1, 0, 0))
        for column in self.columns[:count]:
            side: Literal["left", "right"] = "right" if column.number else "left"
            grid.add_column(column.header, justify=side, no_wrap=True)
        crowded = any(len(row[0]) > name_width for row in self.shown)
        for number, row in enumerate(self.shown):
            name = shorten(drop_calls(row[0]) if crowded else row[0], name_width)
            cells = (name, *row[1:count])
            grid.add_row(*(self._cell(number, index, cell) for index, cell in enumerate(cells)))
        return Group(grid, Text(self.rest)) if self.rest else grid

    def _cell(self, row: int, column: int, cell: str) -> Text:
        return Text(cell, style="bold green" if (row, column) in self.marked else "")


def title(text: str, note: str = "") -> Title:
    """A heading, with a line of explanation under it."""
    return Title(printable(text), printable(note))


def model_title(path: str, note: str, width: int) -> Title:
    """The heading of what is said of a model."""
    return title(shorten(path or "Live program", width), note)


def facts(heading: str, rows: Sequence[tuple[str, RenderableType]]) -> Facts:
    """A heading and labelled values, the values wrapped beside their labels."""
    return Facts(heading, [(label, _lines(value)) for label, value in rows])


def _lines(value: RenderableType) -> RenderableType:
    """The value with its lines, and nothing else that a terminal obeys."""
    if isinstance(value, str):
        return printable(value, keep="\n")
    if isinstance(value, Text) and not value.plain.isprintable():
        shown = printable(value.plain, keep="\n")
        return value if shown == value.plain else Text(shown, style=value.style)
    return value


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    width: int,
    limit: int = 0,
    marked: Iterable[tuple[int, int]] = (),
) -> Rows:
    """A table of at most ``width`` columns; those whose header ends with ``>`` hold numbers.

    The first column is shortened in its middle, and columns are left out from the right where
    that is not enough; if one name is too long, all lose their call nodes, so that they can be
    compared.  With a ``limit`` that many rows are shown, and the rest counted.  ``marked`` cells
    (row, column) are the best of their column.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    columns = [Column(header=h.removesuffix(">"), number=h.endswith(">")) for h in headers]
    return Rows(columns, rows, width, limit, frozenset(marked))


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
