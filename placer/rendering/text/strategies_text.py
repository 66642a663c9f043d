"""Strategies for one program side by side, as text and CSV."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from placer.questions.strategies import StrategyComparison, StrategyRow
from placer.rendering.quantities import format_bytes, format_seconds, known, overruns, share_of_cap
from placer.rendering.text.formats import figures_csv
from placer.rendering.text.layout import Facts, Rows, model_title
from placer.rendering.text.plan_text import FORMAT_WORDS

_SOURCES = (
    "Predicted from the placement of one part, the pipeline from all of it; peaks are a share of "
    "the cap."
)


def strategies_blocks(found: StrategyComparison, width: int) -> list[RenderableType]:
    """A table with one row per strategy, what each changes, and which is recommended."""
    note = f"{FORMAT_WORDS[found.model['format']]} · batch {found.batch_size}"
    return [
        model_title(found.model["path"], note, width),
        _table(found, width),
        Facts("What changes, and how it is built", [(r.name, _how(r)) for r in found.rows]),
        *([Text(f"One placement only: {found.undivided}")] if found.undivided else []),
        Text(_verdict(found), style="bold"),
        Text(_SOURCES),
    ]


def strategies_csv(found: StrategyComparison) -> str:
    """One row per strategy; bytes and seconds are plain numbers."""
    keys = ("name", "parts", "part_size", "in_flight", "fits", "step_seconds")
    more = ("samples_per_second", "transfer_bytes", "changes", "call", "note")
    return figures_csv((*keys, *more), found.rows, found.caps)


def _table(found: StrategyComparison, width: int) -> RenderableType:
    headers = ["Strategy", "Fits", "Samples/s>", "Step>", "Transfer>", "Part>", "In flight>"]
    headers += [f"{device}>" for device in found.caps]
    rows = [
        (
            row.name,
            "-" if row.step_seconds is None else "yes" if row.fits else "no",
            "-" if row.samples_per_second is None else f"{row.samples_per_second:,.0f}",
            known(row.step_seconds, format_seconds),
            known(row.transfer_bytes, format_bytes),
            f"{row.part_size:,}",
            f"{row.in_flight:,}",
            *(share_of_cap(row.peak_bytes.get(device), cap) for device, cap in found.caps.items()),
        )
        for row in found.rows
    ]
    best = [(number, 2) for number, row in enumerate(found.rows) if row.name == found.recommended]
    return Rows(headers, rows, width=width, marked=best)


def _how(row: StrategyRow) -> Text:
    told = [row.note, *overruns(row.over_bytes), row.changes, row.call]
    return Text("; ".join(filter(None, told)))


def _verdict(found: StrategyComparison) -> str:
    if found.recommended is None:
        return "Nothing fits: more pieces, more devices, or higher caps."
    row = next(row for row in found.rows if row.name == found.recommended)
    return f"Recommended: {row.name}, the most samples per second of those that fit."
