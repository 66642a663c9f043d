"""Strategies for one program side by side, as text and CSV."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from placer.rendering.quantities import format_bytes, format_seconds, format_share, shorten
from placer.rendering.text.formats import to_csv
from placer.rendering.text.layout import facts, table, title
from placer.rendering.text.plan_text import FORMAT_WORDS

if TYPE_CHECKING:
    from placer.questions.strategies import StrategyComparison, StrategyRow


def strategies_blocks(found: StrategyComparison, width: int) -> list[RenderableType]:
    """A table with one row per strategy, what each changes, and which is recommended."""
    name = found.model["path"] or "Live program"
    note = f"{FORMAT_WORDS[found.model['format']]} · batch {found.batch_size}"
    return [
        title(shorten(name, width), note),
        _table(found, width),
        facts("What changes, and how it is built", [(r.name, _how(r)) for r in found.rows]),
        *([Text(f"One placement only: {found.undivided}")] if found.undivided else []),
        Text(_verdict(found), style="bold"),
        Text("Predicted from the placement of one part; peaks are a share of the cap."),
    ]


def strategies_csv(found: StrategyComparison) -> str:
    """One row per strategy; bytes and seconds are plain numbers."""
    keys = ["name", "parts", "part_size", "in_flight", "fits", "step_seconds"]
    keys += ["samples_per_second", "transfer_bytes", "changes", "call", "note"]
    header = [*keys, *(f"peak_bytes {device}" for device in found.caps)]
    rows = [
        [*(getattr(row, key) for key in keys), *(row.peak_bytes.get(d) for d in found.caps)]
        for row in found.rows
    ]
    return to_csv(header, rows)


def _table(found: StrategyComparison, width: int) -> RenderableType:
    headers = ["Strategy", "Fits", "Samples/s>", "Step>", "Transfer>", "Part>", "In flight>"]
    headers += [f"{device}>" for device in found.caps]
    rows = [
        (
            row.name,
            "-" if row.step_seconds is None else "yes" if row.fits else "no",
            "-" if row.samples_per_second is None else f"{row.samples_per_second:,.0f}",
            "-" if row.step_seconds is None else format_seconds(row.step_seconds),
            "-" if row.transfer_bytes is None else format_bytes(row.transfer_bytes),
            f"{row.part_size:,}",
            f"{row.in_flight:,}",
            *(_peak(row, device, cap) for device, cap in found.caps.items()),
        )
        for row in found.rows
    ]
    best = [(number, 2) for number, row in enumerate(found.rows) if row.name == found.recommended]
    return table(headers, rows, width=width, marked=best)


def _peak(row: StrategyRow, device: str, cap: int) -> str:
    peak = row.peak_bytes.get(device)
    return "-" if peak is None else format_share(peak, cap)


def _how(row: StrategyRow) -> Text:
    over = [
        f"{device} {format_bytes(size)} over its cap" for device, size in row.over_bytes.items()
    ]
    return Text("; ".join(filter(None, [row.note, *over, row.changes, row.call])))


def _verdict(found: StrategyComparison) -> str:
    if found.recommended is None:
        return "Nothing fits: more pieces, more devices, or higher caps."
    row = next(row for row in found.rows if row.name == found.recommended)
    return f"Recommended: {row.name}, the most samples per second of those that fit."
