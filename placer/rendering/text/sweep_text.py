"""A sweep over batch sizes as text and CSV."""

from rich.console import RenderableType
from rich.text import Text

from cost_models.byte_sizes import format_bytes, format_count
from placer.plan.request import NEVER
from placer.problem.limits import fullest
from placer.questions.batch_sizes import Sweep, SweepRow
from placer.rendering.quantities import (
    format_flops,
    format_seconds,
    known,
    limits_text,
    share_of_cap,
)
from placer.rendering.text.answers import kind_of_model
from placer.rendering.text.formats import records_csv
from placer.rendering.text.input_text import open_inputs
from placer.rendering.text.layout import Facts, Rows, answer_line, model_title

_BAR_WIDTH = 20
_EIGHTHS = " ▏▎▍▌▋▊▉"


def sweep_blocks(found: Sweep, width: int) -> list[RenderableType]:
    """A table with one row per batch size, a bar for the fullest device, and what fits."""
    placed = any(row.status for row in found.rows)
    headers = ["Batch>", "Fits", *(f"Required {device}>" for device in found.caps)]
    headers += [*(["Sends>"] if placed else []), "Step>", "Samples/s>", "Work>", "Fullest"]
    rows = [_cells(found, row, placed=placed) for row in found.rows]
    return [
        answer_line(_verdict(found)),
        model_title(found.model["path"], _note(found), width),
        Rows(headers, rows, width=width),
        *_reservations(found),
    ]


def _reservations(found: Sweep) -> list[RenderableType]:
    """Returns rows as in the reports of single sizes: what is not counted, and every warning."""
    blocks: list[RenderableType] = []
    if any(row.unknown_tensors for row in found.rows):
        most = max(row.unknown_tensors for row in found.rows)
        note = f"≥: at least; {format_count(most, 'tensor')} of unknown size not counted"
        still, ways = open_inputs(found.reports[0].model) if found.reports else ("", "")
        opened = f"; {still} still open: {ways}" if still else ""
        blocks.append(Text(note + opened, style="yellow"))
    if found.warnings:
        size = f"{found.rows[0].batch_size:,}"
        warnings = [(f"at {size}", Text(message, style="yellow")) for _, message in found.warnings]
        blocks.append(Facts("Warnings", warnings))
    return blocks


def _note(found: Sweep) -> str:
    """The format, and where nothing was placed the device that the figures are of."""
    kind = kind_of_model(found.model["format"], found.model["path"])
    if any(row.status for row in found.rows) or not found.reports:
        return kind
    return f"{kind} · everything on one {found.reports[0].compute.reference}"


def sweep_csv(found: Sweep) -> str:
    """One row per batch size."""
    figures = "batch_size fits step_seconds samples_per_second flops transfer_bytes sent_bytes"
    fields = f"{figures} status unknown_tensors"
    return records_csv(found.rows, fields, found.caps, ("peak_bytes", "required_bytes"))


def _cells(found: Sweep, row: SweepRow, *, placed: bool) -> list[str]:
    needs = [row.required_bytes.get(device) for device in found.caps]
    least, most = ("≥ ", "≤ ") if row.unknown_tensors else ("", "")
    return [
        f"{row.batch_size:,}",
        {True: "yes", False: "no", None: "not known"}[row.fits],
        *(known(need, lambda size: least + format_bytes(size)) for need in needs),
        *([known(row.sent_bytes, lambda size: least + format_bytes(size))] if placed else []),
        known(row.step_seconds, lambda seconds: least + format_seconds(seconds)),
        f"{most}{row.samples_per_second:,.0f}" if row.samples_per_second else "-",
        least + format_flops(row.flops),
        _bar(found, row),
    ]


def _bar(found: Sweep, row: SweepRow) -> str:
    """The share of its limit that the fullest device requires, drawn and in numbers."""
    name, share = fullest(row.required_bytes, found.caps)
    if not name:
        return ""
    eighths = round(8 * _BAR_WIDTH * min(1.0, share))
    bar = "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
    return f"{bar:<{_BAR_WIDTH}} {share_of_cap(row.required_bytes[name], found.caps[name])}"


def _verdict(found: Sweep) -> str:
    caps = f"limits: {limits_text(found.devices)}"
    low, high = found.largest_fitting, found.smallest_failing
    if any(row.fits is None for row in found.rows):
        failing = f"; {high:,} does not" if high is not None else ""
        return f"It is unknown which batch fits: too many sizes are unknown{failing} ({caps})."
    if not found.is_bound:
        return f"The required memory does not depend on the batch size ({caps})."
    placed = any(row.status for row in found.rows)
    how = f" with{'out' * (found.spill == NEVER)} offloading" if placed else ""
    if low is None:
        more = ""
        if found.offloaded_fitting is not None:
            more = f" With --offload auto, batch {found.offloaded_fitting:,} fits (tried)."
        none = f"No batch size{' that was tried' if high != 1 else ''}"
        fits = "was found to fit" if placed else "fits"
        return f"{none} {fits}{how}, not even {high:,} ({caps}).{more}"
    if high is None:
        beyond = max(row.batch_size for row in found.rows) < low
        return f"All fit{how}{f', and so does {low:,}' * beyond} ({caps})."
    fails = f"no placement was found for {high:,}" if placed else f"{high:,} does not fit"
    if high == low + 1:
        return f"The largest batch that fits{how} is {low:,}; {fails} ({caps})."
    return f"A batch of {low:,} fits{how}, {fails}; none between them was tried ({caps})."
