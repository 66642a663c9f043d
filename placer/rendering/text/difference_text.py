"""Differences as text and CSV."""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from cost_models.byte_sizes import format_bytes, format_count
from placer.pipeline.pipeline import REFERENCE_DEVICE
from placer.questions.difference import Change, Difference
from placer.rendering.quantities import format_flops, format_seconds, known, shorten, signed
from placer.rendering.text.formats import to_csv
from placer.rendering.text.layout import ROWS, Facts, Rows, Title, answer_line

_IN_FILE = ("transfer_", "slower_bytes", "peak ")
"""Figures that JSON and CSV have, beside what is sent and required."""

_NAMES = {
    "bottleneck_seconds": "busiest device",
    "peak_bytes": "expected peak",
    "high_bytes": "highest peak",
    "critical_path_seconds": "critical path",
    "slower_seconds": "extra time of slower devices",
    "step_seconds": "step",
}

_UNITS: Mapping[str, Callable[[Any], str]] = {
    "bytes": format_bytes,
    "seconds": format_seconds,
    "flops": format_flops,
}


def difference_blocks(found: Difference, width: int) -> list[RenderableType]:
    """Figures side by side, then what moved, what is gone and what is new."""
    before, after = (shorten(name, width // 2) for name in (found.before, found.after))
    heading = Title(f"{before} -> {after}", _kind(found))
    blocks: list[RenderableType] = [answer_line(_answer(found)), heading]
    if found.is_empty:
        return blocks
    if found.asked:
        lines = [(what, f"{first} -> {last}") for what, first, last in found.asked]
        blocks.append(Facts("Asked for", list(lines)))
    blocks.append(_figures(found, width))
    if found.moved:
        routes = Counter((before, after) for _, before, after in found.moved)
        summary = ", ".join(f"{n:,} {a} to {b}" for (a, b), n in routes.most_common())
        blocks.append(Text(f"{format_count(len(found.moved), 'op')} moved: {summary}"))
        headers = ("Moved", "From", "To")
        blocks.append(Rows(headers, found.moved, width=width, limit=ROWS))
    noun = "Transfer" if found.kind == "plans" else "Op"
    for label, names in (
        (f"{noun} only before", found.only_before),
        (f"{noun} only after", found.only_after),
        (f"{noun} changed", found.changed),
    ):
        if names:
            rows = [(name,) for name in names]
            blocks.append(Rows([f"{label} ({len(names):,})"], rows, width=width, limit=ROWS))
    return blocks


def difference_csv(found: Difference) -> str:
    """One row per figure, moved op, and name that only one of the two has."""
    rows: list[tuple[object, ...]] = [
        ("figure", change.name, change.before, change.after) for change in found.figures
    ]
    rows += [("moved", *row) for row in found.moved]
    rows += [("only_before", name, name, None) for name in found.only_before]
    rows += [("only_after", name, None, name) for name in found.only_after]
    rows += [("changed", name, None, None) for name in found.changed]
    return to_csv(("kind", "name", "before", "after"), rows)


def _answer(found: Difference) -> str:
    """Returns the differences that matter most, in a sentence."""
    if found.is_empty:
        return (
            "Nothing differs." if found.same_graph else "The graphs differ, their figures do not."
        )
    changes = {change.name: change for change in found.figures}
    told = []
    if found.asked:
        *names, last = [what for what, _, _ in found.asked]
        verb = "differ" if names or last.endswith("s") else "differs"
        told = [f"the {', '.join(names)}{' and ' * bool(names)}{last} {verb}"]
    step = changes.get("step_seconds")
    if step and None in (step.before, step.after):
        told.append(f"the {'first' if step.before is None else 'second'} plan has no placement")
    over = [change for change in found.figures if change.name.startswith("over limit ")]
    for side in ("before", "after"):
        if any(getattr(change, side) for change in over):
            told.append(f"the plan {side} does not fit")
    times = [] if step is None else [known(t, format_seconds) for t in (step.before, step.after)]
    if step and step.difference and len(set(times)) > 1:
        words = " -> ".join(times)
        on = f" on one {REFERENCE_DEVICE[2:]}" if found.kind == "models" else ""
        told.append(f"a step{on} is {'slower' if step.difference > 0 else 'faster'} ({words})")
    if (sent := changes.get("sent_bytes")) and sent.difference:
        more = "more" if sent.difference > 0 else "less"
        told.append(f"{format_bytes(abs(sent.difference))} {more} are sent")
    if found.moved:
        told.append(f"{format_count(len(found.moved), 'op')} moved")
    new, gone = len(found.only_after), len(found.only_before)
    if found.kind == "models" and (new or gone or found.changed):
        told.append(f"{new:,} ops are new, {gone:,} gone, {len(found.changed):,} changed")
    sentence = ", ".join(told) or "only figures differ"
    count = found.unknown_tensors
    least = f" {format_count(count, 'tensor')} of unknown size not counted." if count else ""
    return f"{sentence[0].upper()}{sentence[1:]}.{least}"


def _kind(found: Difference) -> str:
    graph = "the same graph" if found.same_graph else "different graphs"
    return f"{found.kind} of {graph}" if found.kind == "plans" else graph


def _figures(found: Difference, width: int) -> RenderableType:
    headers = ("Figure", "Before>", "After>", "Difference>", ">")
    rows = [
        (
            _NAMES.get(change.name, change.name.replace("_", " ")),
            _shown(change, change.before),
            _shown(change, change.after),
            signed(change.difference, partial(_shown, change)),
            f"{change.difference / change.before:+.1%}"
            if change.difference and change.before
            else "",
        )
        for change in found.figures
        if (change.before or change.after) and not change.name.startswith(_IN_FILE)
    ]
    return Rows(headers, rows, width=width)


def _shown(change: Change, value: float | None) -> str:
    return known(value, _UNITS.get(change.unit, "{:,.0f}".format))
