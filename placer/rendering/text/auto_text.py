"""The best way to run a program on some devices, and why it is, as text and CSV."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from cost_models.devices import KERAS_SECONDS
from placer.questions.auto_result import DOUBT_SECONDS, AutoResult, AutoRow
from placer.questions.auto_ways import AS_IT_IS
from placer.rendering.quantities import drop_calls, format_seconds, share_of_cap
from placer.rendering.text.answers import kind_of_model
from placer.rendering.text.formats import records_csv
from placer.rendering.text.layout import Facts, answer_line, model_title
from placer.rendering.text.plan_text import reserve_blocks, warning_blocks


def auto_blocks(found: AutoResult, width: int) -> list[RenderableType]:
    """Returns the choice and its gain, every way in a line, and what would be better."""
    batch = "" if found.batch_size is None else f", batches of {found.batch_size:,}"
    kind = kind_of_program(found)
    note = f"{kind}: {found.task}{batch}, for {found.aim}"
    if kind == "Keras model" and not found.name:
        note += " (for training, call placer.auto(model) in Python)"
    blocks: list[RenderableType] = [
        answer_line(verdict(found)),
        model_title(found.name or found.model["path"], note, width),
        Facts("Strategies", [(row.name, _told(row, found)) for row in found.rows]),
    ]
    if found.keras_seconds:
        took = format_seconds(found.keras_seconds)
        assumed = (
            "Keras is assumed to take" if found.keras_seconds == KERAS_SECONDS else "Keras takes"
        )
        blocks.append(
            Text(
                f"{assumed} {took} more for each step (keras_seconds of CPU:0; placer calibrate "
                "--keras measures it). Steps and samples/s leave it out; 'N times as fast' "
                "includes it.",
                style="dim",
            )
        )
    if found.advice:
        title = "Would be better (predicted)" if found.row else "Would fit (tried)"
        blocks.append(Facts(title, [("", advice) for advice in found.advice]))
    blocks += reserve_blocks(found.plan)
    return blocks + (warning_blocks(found.plan.warnings) if found.row else [])


def kind_of_program(found: AutoResult) -> str:
    """Returns what was asked about: of a model of Keras its plans have a function."""
    known = kind_of_model(found.model["format"], found.model["path"])
    return "Keras model" if found.name else known


def auto_csv(found: AutoResult) -> str:
    """One row per way."""
    fields = "name changes fits is_exact step_seconds samples_per_second least_seconds note"
    return records_csv(found.rows, fields, found.caps, ("required_bytes",))


def verdict(found: AutoResult) -> str:
    """Returns the choice and its gain in a sentence; if no way fits, what would."""
    row = found.row
    if row is None:
        return f"No strategy fits {found.plan.request['devices']}{_nearest(found)}. {_fix(found)}"
    figures = _speed(row)
    if found.changes_nothing:
        if not found.name:
            return f"It fits as it is: change nothing ({figures})."
        return (
            "It fits as it is, without XLA: compile it with jit_compile=False and change nothing "
            f"else ({figures})."
        )
    following = "the next that was built and fits"
    gain = "" if found.gain is None else f", {found.gain:.2f} times as fast as {following}"
    if found.gain is not None and found.gain < 1:
        is_near = found.gain * (1 + found.margin) >= 1
        close = "within the margin of" if is_near else "too close to tell from"
        gain = f", {close} the fastest that fits"
    return f"Chosen: {row.name}, {row.changes} ({figures}{gain})."


def equal_words(found: AutoResult) -> str:
    """Returns which strategies count as equally fast, and what is taken of them."""
    if found.aim == "memory":
        return "The simplest strategy that fits is taken."
    if not found.margin:
        return "The fastest strategy that fits is taken."
    keras = found.keras_seconds
    adds = f", or shorter than the {format_seconds(keras)} that Keras adds" if keras else ""
    return (
        f"Steps within {found.margin:.0%} of the fastest, or longer by less than "
        f"{format_seconds(DOUBT_SECONDS)}{adds}, count as equally fast; the simplest of these "
        "strategies is taken."
    )


def _nearest(found: AutoResult) -> str:
    """The way that lacks least, and what it lacks."""
    row = found.nearest
    return f". The nearest, {row.name}, {row.note}" if row else ""


def _fix(found: AutoResult) -> str:
    """Returns the change that makes a way fit, or may."""
    if found.advice:
        change, _, way = found.advice[0].partition(": ")
        return f"Would fit (tried): {change} ({way})."
    return "May fit (not tried): more or larger devices, or fewer pins."


def _speed(row: AutoRow) -> str:
    rate = "" if row.samples_per_second is None else f"{row.samples_per_second:,.0f} samples/s, "
    return f"{rate}{format_seconds(row.step_seconds)} a step"


def _told(row: AutoRow, found: AutoResult) -> Text:
    told = []
    if row.step_seconds is not None:
        shares = [
            f"{name} {share}"
            for name, need in row.required_bytes.items()
            if name in found.caps and (share := share_of_cap(need, found.caps[name])) != "-"
        ]
        told = [_speed(row), ", ".join(shares)]
    reason = "chosen" if row.name == found.chosen else drop_calls(row.note)
    own = ["without XLA"] if row.name == AS_IT_IS and found.name else []
    return Text("; ".join(filter(None, [*told, *own, reason])))
