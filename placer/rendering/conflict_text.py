"""Why nothing fits, as text: the ``conflict`` of an infeasible plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from placer.rendering.layout import facts
from placer.rendering.quantities import format_bytes, format_count, shorten


def render_conflict(conflict: Mapping[str, Any], width: int) -> RenderableType:
    """What stands against each other, and what would help, one line each."""
    rows: list[tuple[str, RenderableType]] = []
    for key, label, sentence in (
        ("caps", "caps", _cap),
        ("pins", "pins", _pin),
        ("groups", "groups", _group),
        ("fixes", "would fit", None),
    ):
        entries = conflict.get(key) or ()
        lines = [_line(entry, sentence, width) for entry in _as_rows(entries)]
        if lines:
            rows.append((label, Text("\n".join(lines))))
    return facts("Why nothing fits", rows)


def _as_rows(entries: Any) -> list[Any]:
    return list(entries) if isinstance(entries, list | tuple) else [entries]


def _line(entry: Any, sentence: Callable[[Mapping[str, Any], int], str] | None, width: int) -> str:
    """The entry as a sentence; one without the expected keys as ``key value`` pairs."""
    if not isinstance(entry, Mapping):
        return str(entry)
    try:
        if sentence is not None:
            return sentence(entry, width)
    except KeyError:
        pass
    return ", ".join(f"{key} {value}" for key, value in sorted(entry.items()))


def _cap(entry: Mapping[str, Any], _width: int) -> str:
    """What the ops confined to some devices need, beside what those can hold."""
    return (
        f"{entry['devices']}: {format_bytes(entry['needed_bytes'])} needed, "
        f"{format_bytes(entry['usable_bytes'])} usable"
    )


def _group(entry: Mapping[str, Any], width: int) -> str:
    """A group that is larger than every device it may use."""
    return (
        f"{format_bytes(entry['bytes'])} in {format_count(entry['op_count'], 'op')}, at most "
        f"{format_bytes(entry['largest_usable_bytes'])} usable: {shorten(entry['ops'], width // 2)}"
    )


def _pin(entry: Mapping[str, Any], width: int) -> str:
    """A group whose ops may run nowhere together."""
    return (
        f"{format_count(entry['op_count'], 'op')} that must share a device but may not "
        f"({entry['allowed']}): {shorten(entry['ops'], width // 2)}"
    )
