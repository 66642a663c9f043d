"""Placements side by side, as text and CSV; the best of each column is marked."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from cost_models.byte_sizes import format_bytes
from placer.graph.walks import grouped
from placer.problem.limits import overruns
from placer.questions.comparison import ComparedPlacement, Comparison
from placer.rendering.quantities import drop_calls, format_seconds, known, share_of_cap
from placer.rendering.text.answers import model_line, plan_answer
from placer.rendering.text.formats import to_csv
from placer.rendering.text.layout import Facts, Rows, answer_line, model_title
from placer.rendering.text.plan_text import reserve_blocks

_FIGURES: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "sent_bytes": ("Sends", format_bytes),
    "step_seconds": ("Step", format_seconds),
    "bottleneck_seconds": ("Busiest", format_seconds),
}


def comparison_blocks(found: Comparison, width: int) -> list[RenderableType]:
    """A table with one row per placement, whoever came to it, and what the notes say."""
    groups = _alike(found)
    blocks: list[RenderableType] = [
        answer_line(_answer(found)),
        model_title(found.model["path"], model_line(found.plan), width),
        _table(found, groups, width),
        Text(
            "Sends: data, inputs and outputs of a step. Busiest: work + transfers of the busiest "
            "device. Devices: required memory as a share of the limit. "
            "Methods: see docs/glossary.md."
        ),
    ]
    blocks += reserve_blocks(found.plan)
    notes: list[tuple[str, RenderableType]] = []
    for row, *others in groups:
        same = f"same figures: {', '.join(each.name for each in others)}" if others else ""
        if told := "; ".join(filter(None, [drop_calls(_note(found, row)), same])):
            notes.append((row.name, Text(told)))
    return [*blocks, *([Facts("Notes", notes)] if notes else [])]


def _alike(found: Comparison) -> list[list[ComparedPlacement]]:
    """The solver's row, then the others, those together that differ in their names alone (of one
    placement TensorFlow's default may require more: its loader keeps no plan)."""
    ours, *others = found.strategies
    groups = grouped((repr(replace(row, name="")), row) for row in others)
    return [[ours], *groups.values()]


def comparison_csv(found: Comparison) -> str:
    """One row per placement; bytes and seconds are plain numbers."""
    names = "fits transfer_bytes transfer_count sent_bytes step_seconds bottleneck_seconds"
    keys = names.split()
    rows = [
        (
            row.name,
            *(getattr(row, key) for key in keys),
            *map(row.peak_bytes.get, found.caps),
            *map(row.required_bytes.get, found.caps),
            _note(found, row),
        )
        for row in found.strategies
    ]
    sizes = (f"{key} {device}" for key in ("peak_bytes", "required_bytes") for device in found.caps)
    return to_csv(("strategy", *keys, *sizes, "note"), rows)


def _answer(found: Comparison) -> str:
    """Returns what the solver's placement costs, and the best of the others that fit."""
    key = {"transfer": "sent_bytes", "step-time": "step_seconds"}.get(
        found.objective, "bottleneck_seconds"
    )
    _, render = _FIGURES[key]
    words, alike = {
        "sent_bytes": ("sends {} a step", "sends as much"),
        "step_seconds": ("takes {} a step", "takes as long"),
        "bottleneck_seconds": ("keeps its busiest device busy for {} a step", "does so too"),
    }[key]
    ours, *others = found.strategies
    own = words.format(render(getattr(ours, key))) if ours.fits else "has no placement that fits"
    fitting = [row for row in others if row.fits]
    if not fitting and not ours.fits:
        return f"{plan_answer(found.plan)} None of the {len(others)} other methods fits."
    if not fitting:
        return f"{ours.name} {own}; none of the {len(others)} other methods fits."
    best = min(fitting, key=lambda row: getattr(row, key))
    step, times = "", [known(row.step_seconds, format_seconds) for row in (best, ours)]
    if key == "sent_bytes" and ours.fits and times[0] != times[1]:
        step = f" (step {times[0]}; {ours.name} {times[1]})"
    count = f"{len(fitting)} of the {len(others)}"
    count = count if len(fitting) < len(others) else f"All {len(others)}"
    fit = "fits:" if len(fitting) == 1 else "fit; the best of them,"
    which = f"{best.name}{', which' if len(fitting) == 1 else ','}"
    theirs = words.format(render(getattr(best, key)))
    theirs = alike if theirs == own else theirs
    return f"{ours.name} {own}. {count} other methods {fit} {which} {theirs}{step}."


def _table(
    found: Comparison, groups: Sequence[Sequence[ComparedPlacement]], width: int
) -> RenderableType:
    figures = (header for header, _ in _FIGURES.values())
    headers = ["Method", "Fits", *(f"{name}>" for name in (*figures, *found.caps))]
    rows = [
        (
            row.name,
            "-" if row.transfer_bytes is None else "yes" if row.fits else "no",
            *(known(getattr(row, key), render) for key, (_, render) in _FIGURES.items()),
            *(
                share_of_cap(row.required_bytes.get(device), cap)
                for device, cap in found.caps.items()
            ),
        )
        for row, *_ in groups
    ]
    return Rows(headers, rows, width=width, marked=_best([row for row, *_ in groups]))


def _best(rows: Sequence[ComparedPlacement]) -> list[tuple[int, int]]:
    """The cells (row, column) with the least figure among what fits; all of equals."""
    cells = []
    for column, key in enumerate(_FIGURES, start=2):
        values = [getattr(row, key) if row.fits else None for row in rows]
        least = min((value for value in values if value is not None), default=None)
        cells += [(row, column) for row, v in enumerate(values) if v is not None and v == least]
    return cells


def _note(found: Comparison, row: ComparedPlacement) -> str:
    return "; ".join(filter(None, [row.note, *overruns(found.plan.devices, row.over_bytes)]))
