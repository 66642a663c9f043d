"""One content in the formats that people read: text for a terminal, Markdown, CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich.console import RenderableType

from placer.rendering.text.layout import to_text
from placer.rendering.text.markdown import WIDTH, to_markdown

Document = Callable[[int], list[RenderableType]]
"""A function from a width to titles, facts and tables that fit it."""


def render(document: Document, format_name: str, *, width: int, colour: bool) -> str:
    """The document as ``"text"`` of ``width`` columns or as ``"markdown"``."""
    if format_name == "markdown":
        return to_markdown(document(WIDTH))
    return to_text(document(width), width=width, colour=colour)


def to_csv(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Comma-separated values (RFC 4180 but for the line ends); ``None`` is an empty field."""
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return target.getvalue()
