"""One content in the formats that people read: text for a terminal, Markdown, CSV."""

import csv
import io
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from placer.front_words import in_front_words
from placer.rendering.text.layout import Facts, Rows, Title, to_text

Document = Callable[[int], list[RenderableType]]
"""A function from a width to titles, facts and tables that fit it."""

WIDTH = 1 << 16
"""Columns to render for: nothing is shortened, Markdown has no edge."""

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~])")


def render(document: Document, format_name: str, *, width: int, colour: bool) -> str:
    """The document as ``"text"`` of ``width`` columns or as ``"markdown"``."""
    if format_name == "markdown":
        return to_markdown(map(_in_front_words, document(WIDTH)))
    return to_text(map(_in_front_words, document(width)), width=width, colour=colour)


def _in_front_words(block: Any) -> Any:
    """The sentences of a block with the options as its reader writes them."""
    if isinstance(block, Facts):
        block.rows = [(label, _in_front_words(value)) for label, value in block.rows]
    elif isinstance(block, str):
        return in_front_words(block)
    elif isinstance(block, Text) and (words := in_front_words(block.plain)) != block.plain:
        return Text(words, style=block.style, no_wrap=block.no_wrap)
    return block


def to_csv(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Comma-separated values (RFC 4180 but for the line ends); ``None`` is an empty field."""
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return target.getvalue()


def records_csv(
    records: Iterable[Any], fields: str, devices: Iterable[str] = (), by_device: Sequence[str] = ()
) -> str:
    """A line per record: its ``fields``, then what it has ``by_device``; bytes and seconds are
    plain numbers."""
    names, pairs = fields.split(), [(key, name) for key in by_device for name in devices]
    rows = (
        (
            *(getattr(record, name) for name in names),
            *(getattr(record, key).get(device) for key, device in pairs),
        )
        for record in records
    )
    return to_csv((*names, *map(" ".join, pairs)), rows)


def to_markdown(blocks: Iterable[RenderableType]) -> str:
    """The blocks one under the other: titles as headings, facts as lists, tables as tables."""
    return "\n\n".join(_block(block) for block in blocks) + "\n"


def _block(block: RenderableType) -> str:
    if isinstance(block, Title):
        return f"## {escape(block.text)}" + (f"\n\n{escape(block.note)}" if block.note else "")
    if isinstance(block, Facts):
        lines = [
            f"- **{escape(label)}**: {_value(value)}" if label else f"- {_value(value)}"
            for label, value in block.rows
        ]
        return "\n".join([f"### {escape(block.heading)}", "", *lines])
    if isinstance(block, Rows):
        return _table(block)
    return _value(block)


def _value(value: RenderableType) -> str:
    """Text without its style, lines kept."""
    if not isinstance(value, str | Text):
        raise TypeError(f"{type(value).__name__} has no form in Markdown")
    return "<br>".join(escape(line) for line in str(value).splitlines())


def _table(block: Rows) -> str:
    header = " | ".join(map(escape, block.headers))
    rule = " | ".join("---:" if is_number else "---" for is_number in block.are_numbers)
    lines = [f"| {header} |", f"| {rule} |"]
    for number, row in enumerate(block.rows):
        cells = [
            f"**{escape(cell)}**" if (number, index) in block.marked else escape(cell)
            for index, cell in enumerate(row)
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, *(["", block.rest] if block.rest else [])])


def escape(text: str) -> str:
    """``text`` with everything that Markdown or HTML would take for markup made literal."""
    return _SPECIAL.sub(r"\\\1", text.replace("&", "&amp;"))
