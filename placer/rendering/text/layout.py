"""Blocks of text for a terminal: titles, lists of facts, tables that fit the width."""

import io
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from rich.box import HORIZONTALS
from rich.console import Console, Group, RenderableType
from rich.containers import Lines
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from placer.rendering.quantities import drop_calls, printable, shorten

MINIMUM_WIDTH = 30
"""Below this nothing is readable; the terminal wraps what is too long."""

_GAP = 2

ROWS = 10
"""Rows of a table where there may be thousands; JSON and plan files have all of them."""


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
        if isinstance(block, Text) and block.no_wrap:  # names to copy are on one line
            console.print(block, crop=False, no_wrap=True, overflow="ignore")
        else:
            console.print(Group(_lines(block)))  # joined by itself, a text would forget its class
    return "\n".join(line.rstrip() for line in target.getvalue().splitlines()) + "\n"


class Words(Text):
    """Text in which a name longer than a line goes on in the next one after a separator."""

    def wrap(self, console: Console, width: int, **options: Any) -> Lines:
        """Returns the lines, each of at most ``width`` columns."""
        lines = Lines()
        for line in self.split(allow_blank=True):
            for part in line.divide(_breaks(line.plain, width)):
                lines.extend(Text.wrap(part, console, width, **options))
        return lines


def _breaks(line: str, width: int) -> list[int]:
    """Where a line is broken: before a word, and in one that is too long after a separator."""
    found, column = [], 0
    parts = _WORDS.findall(line)
    for separators in (_SCOPES, _JOINTS):
        parts = [
            each
            for part in parts
            for each in (separators.findall(part) if len(part.rstrip()) > width else [part])
        ]
    start = 0
    for part in parts:
        if column and column + len(part.rstrip()) > width:
            found.append(start)
            column = 0
        column, start = column + len(part), start + len(part)
    return found


_FIGURE = r"[^\s\d]*\d[\d.,]*\s(?:[KMGTP]i)?(?:B|[mµn]?s)\b\S*"
"""A number with its unit, which no line parts."""

_WORDS, _SCOPES, _JOINTS = map(
    re.compile, (rf"\s*(?:{_FIGURE}|\S+)\s*", r"[^/]*/|[^/]+", r"[^_.,:=-]*[_.,:=-]|[^_.,:=-]+")
)


class Title:
    """A heading, with a line of explanation under it."""

    def __init__(self, text: str, note: str = "") -> None:
        self.text, self.note = printable(text), printable(note)

    def __rich__(self) -> RenderableType:
        heading = Text(self.text, style="bold")
        return Group(heading, Text(self.note)) if self.note else heading


class Facts:
    """A heading and labelled values, the values wrapped beside their labels."""

    def __init__(self, heading: str, rows: Sequence[tuple[str, RenderableType]]) -> None:
        self.heading = heading
        self.rows = [(label, _lines(value)) for label, value in rows]

    def __rich__(self) -> RenderableType:
        grid = Table.grid(padding=(0, _GAP))
        grid.add_column(style="cyan", no_wrap=True)
        grid.add_column(overflow="fold")
        for label, value in self.rows:
            grid.add_row(label, value)
        return Group(Text(self.heading, style="bold"), Padding(grid, (0, 0, 0, 2)))


class Rows:
    """A table of at most ``width`` columns; those whose header ends with ``>`` hold numbers.

    The first column is shortened in its middle, and columns are left out from the right where
    that is not enough, or makes two names one; if one name is too long, all lose their call nodes,
    so that they can be compared, but those that would then be alike.  With a ``limit`` that many
    rows are shown, and the rest counted.  ``marked`` cells (row, column) are the best of their
    column, those that are ``over`` a limit are red.
    """

    def __init__(
        self,
        headers: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        width: int,
        limit: int = 0,
        marked: Collection[tuple[int, int]] = (),
        over: Collection[tuple[int, int]] = (),
    ) -> None:
        self.headers = [header.removesuffix(">") for header in headers]
        self.are_numbers = [header.endswith(">") for header in headers]
        shown = rows[:limit] if limit else rows
        self.rows = [[printable(cell) for cell in row] for row in shown]
        self.rest = f"and {len(rows) - len(shown):,} more" if len(rows) > len(shown) else ""
        self.width, self.marked, self.over = width, marked, over

    def __rich__(self) -> RenderableType:
        count, name_width = self._fit(max(self.width, MINIMUM_WIDTH))
        grid = Table(box=HORIZONTALS, show_edge=False, pad_edge=False, padding=(0, _GAP - 1, 0, 0))
        for header, is_number in zip(self.headers[:count], self.are_numbers, strict=False):
            grid.add_column(header, justify="right" if is_number else "left", no_wrap=True)
        names = self._shown_names(name_width)
        for number, row in enumerate(self.rows):
            cells = (names[row[0]], *row[1:count])
            grid.add_row(*(self._cell(number, index, cell) for index, cell in enumerate(cells)))
        hidden = [header for header in self.headers[count:] if header]
        left_out = f"(hidden: {', '.join(hidden)}; a wider terminal shows all)" if hidden else ""
        lines = [Text(line, style="dim") for line in (self.rest, left_out) if line]
        return Group(grid, *lines) if lines else grid

    def _cell(self, row: int, column: int, cell: str) -> Text:
        at = row, column
        return Text(cell, "bold green" if at in self.marked else "red" if at in self.over else "")

    def _fit(self, width: int) -> tuple[int, int]:
        """How many columns fit, and the width that is left for the first."""
        columns = zip(self.headers, *self.rows, strict=True)
        natural = [max(map(len, column)) for column in columns]
        fitting = [
            (shown, min(left, natural[0]))
            for shown in range(len(natural), 1, -1)
            if (left := width - sum(natural[1:shown]) - _GAP * (shown - 1))
            >= min(natural[0], 16)  # the first one narrows last
        ]
        told_apart = (fit for fit in fitting if self._names_differ(fit[1]))
        return next(told_apart, fitting[0] if fitting else (1, width))

    def _names_differ(self, width: int) -> bool:
        """Whether names that are not alike are not alike in so many columns either."""
        names = self._shown_names(width)
        return len({*names.values()}) == len(names)

    def _shown_names(self, width: int) -> dict[str, str]:
        """The names as the first column has them."""
        if all(len(row[0]) <= width for row in self.rows):
            return {row[0]: row[0] for row in self.rows}
        names = {row[0]: drop_calls(row[0]) for row in self.rows}
        alike = Counter(names.values())
        return {
            name: name if alike[short] > 1 and len(name) <= width else shorten(short, width)
            for name, short in names.items()
        }


def answer_line(sentence: str) -> Text:
    """The first line of a screen."""
    return Text(printable(sentence), style="bold")


def model_title(path: str, note: str, width: int) -> Title:
    """The heading of what is said of a model."""
    return Title(shorten(path or "Live program", width), note)


def _lines(value: RenderableType) -> RenderableType:
    """The value with its lines, and nothing else that a terminal obeys."""
    if isinstance(value, str):
        return Words(printable(value, keep="\n"))
    if isinstance(value, Text):
        shown = printable(value.plain, keep="\n")
        return Words(shown, style=value.style, spans=value.spans if shown == value.plain else [])
    return value
