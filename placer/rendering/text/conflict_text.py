"""Why nothing fits, as text: the ``conflict`` of an infeasible plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from placer.rendering.quantities import format_bytes, format_count, printable, shorten
from placer.rendering.text.layout import facts

_MOST_PARTS = 4
_NAME_WIDTH = 60


def render_conflict(conflict: Mapping[str, Any]) -> RenderableType:
    """What cannot be kept together, and what would help, one line each."""
    rows: list[tuple[str, RenderableType]] = [
        ("because", Text(line)) for line in conflict_sentences(conflict)
    ]
    fixes = "\n".join(fix_line(fix) for fix in conflict.get("fixes") or ())
    return facts("Why nothing fits", [*rows, *([("would fit", Text(fixes))] if fixes else [])])


def conflict_text(conflict: Mapping[str, Any]) -> str:
    """The same in one paragraph."""
    changes = "; ".join(fix_line(fix) for fix in conflict.get("fixes") or ())
    sentences = conflict_sentences(conflict)
    return " ".join([*sentences, *([f"Smallest changes that fit: {changes}."] if changes else [])])


def fix_line(fix: Any) -> str:
    """A change with how near to the least it is; plans of earlier versions hold sentences."""
    if not isinstance(fix, Mapping):
        return printable(str(fix))
    note = f"  ({fix['note']})" if fix.get("note") else ""
    return printable(f"{fix.get('change', '')}{note}")


def conflict_sentences(conflict: Mapping[str, Any]) -> list[str]:
    """What cannot be kept together, in words; the rows as they are where something is missing."""
    try:
        sentences = [_SENTENCES[conflict["reason"]](conflict)]
    except KeyError:
        rows = [row for key in ("caps", "pins", "groups") for row in conflict.get(key) or ()]
        return [_row(row) for row in rows]
    if not conflict.get("is_smallest"):
        sentences.append("Less may be in conflict: this was not proven the smallest set in time.")
    return sentences


def _overfull(conflict: Mapping[str, Any]) -> str:
    needed = format_bytes(conflict["needed_bytes"])
    return f"{_devices(conflict)} must hold {needed}: {_joined(_parts(conflict))}."


def _undividable(conflict: Mapping[str, Any]) -> str:
    return (
        f"{_devices(conflict)} would have room for {format_bytes(conflict['needed_bytes'])}, but "
        f"not in any division: {_joined(_parts(conflict))}."
    )


def _too_large(conflict: Mapping[str, Any]) -> str:
    needed, usable = (format_bytes(conflict[key]) for key in ("needed_bytes", "usable_bytes"))
    held = _joined([*_pins(conflict), *_groups(conflict)])
    return (
        f"{_named(conflict)} must be on one device and takes {needed}; "
        f"{_devices(conflict)} can hold {usable} at most{f' because of {held}' if held else ''}."
    )


def _contradiction(conflict: Mapping[str, Any]) -> str:
    held = _joined([*_pins(conflict), *_groups(conflict)])
    return f"{_named(conflict)} may run nowhere{f' because of {held}' if held else ''}."


_SENTENCES = {
    "overfull": _overfull,
    "undividable": _undividable,
    "too_large": _too_large,
    "contradiction": _contradiction,
}


def _devices(conflict: Mapping[str, Any]) -> str:
    """``"GPU:0 and GPU:1 (cap 300 KiB each)"``."""
    caps = {row["device"]: format_bytes(row["usable_bytes"]) for row in conflict["caps"]}
    names = [printable(name) for name in conflict["devices"]]
    sizes = [caps.get(name, "") for name in conflict["devices"]]
    if len(names) > 1 and len(set(sizes)) == 1 and sizes[0]:
        return f"{_joined(names)} (cap {sizes[0]} each)"
    pairs = zip(names, sizes, strict=True)
    return _joined([f"{name} (cap {size})" if size else name for name, size in pairs])


def _parts(conflict: Mapping[str, Any]) -> list[str]:
    """What has to be held, by who says so."""
    parts = [*_pins(conflict), *_groups(conflict)]
    if other := conflict["other_bytes"]:
        what = "what may go nowhere else" if parts else "all that may go nowhere else"
        parts.append(f"{what} ({format_bytes(other)})")
    return parts


def _pins(conflict: Mapping[str, Any]) -> Iterator[str]:
    for row in conflict["pins"]:
        ops = f"{format_count(row['op_count'], 'op')}, " if "op_count" in row else ""
        size = f" ({ops}{format_bytes(row['bytes'])})" if ops else ""
        yield f"{printable(row['request'])}{size}"


def _groups(conflict: Mapping[str, Any]) -> Iterator[str]:
    for row in conflict["groups"]:
        asked = row.get("request")
        what = printable(asked) if asked else f"the colocation group of {_first(row)}"
        yield f"{what} ({format_count(row['op_count'], 'op')}, {format_bytes(row['bytes'])})"


def _named(row: Mapping[str, Any]) -> str:
    """The first op and how many there are."""
    more = row["op_count"] - 1
    return _first(row) + (
        f" with {format_count(more, 'op')} that it shares a device with" if more else ""
    )


def _first(row: Mapping[str, Any]) -> str:
    return shorten(printable(row["ops"][0]), _NAME_WIDTH) if row["ops"] else "no op"


def _joined(parts: Sequence[str]) -> str:
    """``"a, b and c"``, of many the first few."""
    left = len(parts) - _MOST_PARTS
    shown = [*parts[:_MOST_PARTS], f"{left:,} more"] if left > 1 else list(parts)
    return f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else "".join(shown)


def _row(row: Any) -> str:
    """A row as ``key value`` pairs, sizes in words."""
    if not isinstance(row, Mapping):
        return printable(str(row))
    return ", ".join(
        f"{key.removesuffix('_bytes').replace('_', ' ')} "
        + (
            format_bytes(value)
            if key.endswith("bytes") and isinstance(value, int)
            else printable(str(value))
        )
        for key, value in row.items()
    )
