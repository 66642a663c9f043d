"""Blocks of text as Markdown (GitHub's dialect), for pull requests and summaries of CI jobs."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.console import RenderableType
from rich.text import Text

from placer.rendering.text.layout import Facts, Rows, Title

WIDTH = 1 << 16
"""Columns to render for: nothing is shortened, Markdown has no edge."""

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~])")


def to_markdown(blocks: Iterable[RenderableType]) -> str:
    """The blocks one under the other: titles as headings, facts as lists, tables as tables."""
    return "\n\n".join(_block(block) for block in blocks) + "\n"


def _block(block: RenderableType) -> str:
    if isinstance(block, Title):
        return f"## {escape(block.text)}" + (f"\n\n{escape(block.note)}" if block.note else "")
    if isinstance(block, Facts):
        lines = [f"- **{escape(label)}**: {_value(value)}" for label, value in block.rows]
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
