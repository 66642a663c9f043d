"""Placements side by side, as text and CSV; the best of each column is marked."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from cost_models.byte_sizes import format_bytes
from placer.questions.comparison import ComparedPlacement, Comparison
from placer.rendering.quantities import drop_calls, format_seconds, known, overruns, share_of_cap
from placer.rendering.text.answers import model_line, plan_answer
from placer.rendering.text.formats import to_csv
from placer.rendering.text.layout import Facts, Rows, answer_line, model_title

_FIGURES: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "sent_bytes": ("Sends", format_bytes),
    "step_seconds": ("Step", format_seconds),
    "bottleneck_seconds": ("Busiest", format_seconds),
}


def comparison_blocks(found: Comparison, width: int) -> list[RenderableType]:
    """A table with one row per placement, and what the notes say."""
    blocks: list[RenderableType] = [
        answer_line(_answer(found)),
        model_title(found.model["path"], model_line(found.plan), width),
        _table(found, width),
        Text(
            "Sends: data, inputs and outputs of a step. Busiest: work and transfers of the busiest "
            "device, which overlap in a step. "
            "Devices: required memory as a share of the limit. Methods: see docs/glossary.md."
        ),
    ]
    notes = [(row.name, Text(drop_calls(_note(row)))) for row in found.strategies]
    shown = [(label, note) for label, note in notes if note.plain]
    return [*blocks, *([Facts("Notes", shown)] if shown else [])]


def comparison_csv(found: Comparison) -> str:
    """One row per placement; bytes and seconds are plain numbers."""
    names = "fits transfer_bytes transfer_count sent_bytes step_seconds bottleneck_seconds"
    keys = names.split()
    rows = [
        (
            row.name,
            *(getattr(row, key) for key in keys),
            *map(row.peak_bytes.get, found.caps),
            *map(row.need_bytes.get, found.caps),
            _note(row),
        )
        for row in found.strategies
    ]
    sizes = (f"{key} {device}" for key in ("peak_bytes", "need_bytes") for device in found.caps)
    return to_csv(("strategy", *keys, *sizes, "note"), rows)


def _answer(found: Comparison) -> str:
    """Returns what the solver's placement costs, and the best of the others that fit."""
    key = {"transfer": "sent_bytes", "step-time": "step_seconds"}.get(
        found.objective, "bottleneck_seconds"
    )
    _, render = _FIGURES[key]
    words = {
        "sent_bytes": "sends {} a step",
        "step_seconds": "takes {} a step",
        "bottleneck_seconds": "keeps its busiest device busy for {} a step",
    }[key]
    ours, *others = found.strategies
    own = words.format(render(getattr(ours, key))) if ours.fits else "has no placement that fits"
    fitting = [row for row in others if row.fits]
    if not fitting and not ours.fits:
        return f"{plan_answer(found.plan)} None of the {len(others)} other methods fits."
    if not fitting:
        return f"{ours.name} {own}; none of the {len(others)} other methods fits."
    best = min(fitting, key=lambda row: getattr(row, key))
    step = ""
    if key == "sent_bytes" and ours.fits and best.step_seconds and ours.step_seconds:
        step = (
            f" (step {format_seconds(best.step_seconds)}; {ours.name} "
            f"{format_seconds(ours.step_seconds)})"
        )
    count = f"{len(fitting)} of the {len(others)}"
    count = count if len(fitting) < len(others) else f"All {len(others)}"
    fit = "fits:" if len(fitting) == 1 else "fit; the best of them,"
    which = f"{best.name}{', which' if len(fitting) == 1 else ','}"
    theirs = words.format(render(getattr(best, key)))
    return f"{ours.name} {own}. {count} other methods {fit} {which} {theirs}{step}."


def _table(found: Comparison, width: int) -> RenderableType:
    figures = (header for header, _ in _FIGURES.values())
    headers = ["Method", "Fits", *(f"{name}>" for name in (*figures, *found.caps))]
    rows = [
        (
            row.name,
            "-" if row.transfer_bytes is None else "yes" if row.fits else "no",
            *(known(getattr(row, key), render) for key, (_, render) in _FIGURES.items()),
            *(share_of_cap(row.need_bytes.get(device), cap) for device, cap in found.caps.items()),
        )
        for row in found.strategies
    ]
    return Rows(headers, rows, width=width, marked=_best(found.strategies))


def _best(rows: Sequence[ComparedPlacement]) -> list[tuple[int, int]]:
    """The cells (row, column) with the least figure among what fits; all of equals."""
    cells = []
    for column, key in enumerate(_FIGURES, start=2):
        values = [getattr(row, key) if row.fits else None for row in rows]
        least = min((value for value in values if value is not None), default=None)
        cells += [(row, column) for row, v in enumerate(values) if v is not None and v == least]
    return cells


def _note(row: ComparedPlacement) -> str:
    largest_first = dict(Counter(row.over_bytes).most_common())
    return "; ".join(filter(None, [row.note, ", ".join(overruns(largest_first))]))
