"""A sweep over batch sizes as text and CSV."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from placer.questions.batch_sizes import Sweep, SweepRow
from placer.rendering.quantities import (
    format_bytes,
    format_cap,
    format_flops,
    format_seconds,
    format_share,
    known,
)
from placer.rendering.text.formats import figures_csv
from placer.rendering.text.layout import Rows, model_title
from placer.rendering.text.plan_text import FORMAT_WORDS

_BAR_WIDTH = 20
_EIGHTHS = " ▏▎▍▌▋▊▉"


def sweep_blocks(found: Sweep, width: int) -> list[RenderableType]:
    """A table with one row per batch size, a bar for the fullest device, and what fits."""
    placed = any(row.status for row in found.rows)
    headers = ["Batch>", *(f"Peak {d}>" for d in found.caps), *(["Transfer>"] if placed else [])]
    headers += ["Step>", "Samples/s>", "Work>", "Fits", "Fullest"]
    rows = [_cells(found, row, placed=placed) for row in found.rows]
    return [
        model_title(found.model["path"], _note(found), width),
        Rows(headers, rows, width=width),
        Text(_verdict(found), style="bold"),
    ]


def _note(found: Sweep) -> str:
    """The format, and where nothing was placed the device that the figures are of."""
    kind = FORMAT_WORDS[found.model["format"]]
    if any(row.status for row in found.rows) or not found.reports:
        return kind
    return f"{kind} · everything on one {found.reports[0].compute.reference}"


def sweep_csv(found: Sweep) -> str:
    """One row per batch size; bytes and seconds are plain numbers."""
    keys = ("batch_size", "fits", "step_seconds", "samples_per_second", "flops")
    return figures_csv((*keys, "transfer_bytes", "status"), found.rows, found.caps)


def _cells(found: Sweep, row: SweepRow, *, placed: bool) -> list[str]:
    peaks = [row.peak_bytes.get(device) for device in found.caps]
    has_step = bool(row.step_seconds)
    return [
        f"{row.batch_size:,}",
        *(known(peak, format_bytes) for peak in peaks),
        *([known(row.transfer_bytes, format_bytes)] if placed else []),
        format_seconds(row.step_seconds) if has_step else "-",
        f"{row.samples_per_second:,.0f}" if row.samples_per_second else "-",
        format_flops(row.flops),
        "yes" if row.fits else "no",
        _bar(found, row),
    ]


def _bar(found: Sweep, row: SweepRow) -> str:
    """The share of its cap that the fullest device takes, drawn and in numbers."""
    shares = [(peak, found.caps[device]) for device, peak in row.peak_bytes.items()]
    if not shares:
        return ""
    peak, cap = max(shares, key=lambda pair: pair[0] / max(1, pair[1]))
    eighths = round(8 * _BAR_WIDTH * min(1.0, peak / max(1, cap)))
    bar = "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
    return f"{bar:<{_BAR_WIDTH}} {format_share(peak, cap)}"


def _verdict(found: Sweep) -> str:
    caps = ", ".join(f"{device} {format_cap(cap)}" for device, cap in found.caps.items())
    low, high = found.largest_fitting, found.smallest_failing
    if low is None:
        return f"No batch size fits: {high} does not ({caps})."
    if high is None:
        return f"Every batch size tried fits, up to {low:,} ({caps})."
    if high == low + 1:
        return f"The largest batch that fits is {low:,}; {high:,} does not ({caps})."
    return f"A batch of {low:,} fits, {high:,} does not; between them none was tried ({caps})."
