"""Why nothing fits, as text: the ``conflict`` of an infeasible plan."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

from rich.console import RenderableType
from rich.text import Text

from cost_models.byte_sizes import format_bytes, format_count
from placer.problem.conflict import (
    CONTRADICTION,
    OVERFULL,
    TOO_LARGE,
    UNDIVIDABLE,
    CapInConflict,
    Conflict,
    Fix,
    OpsInConflict,
)
from placer.problem.limits import limit_words, overrun_words
from placer.rendering.quantities import printable, shorten
from placer.rendering.text.layout import Facts

_MOST_PARTS = 4
_NAME_WIDTH = 60


def render_conflict(conflict: Conflict, *, is_proven: bool) -> RenderableType:
    """Returns the requests that cannot be kept together (unless it ``is_proven``: the caps that the
    placement breaks), and the changes that would help, one line each."""
    rows: list[tuple[str, RenderableType]] = [
        ("because", Text(line)) for line in conflict_sentences(conflict)
    ]
    fixes = "\n".join(fix_line(fix) for fix in conflict.fixes)
    title = "Why no placement fits" if is_proven else "Where this placement does not fit"
    label = "would fit" if is_proven else "not tried"
    return Facts(title, [*rows, *([(label, Text(fixes))] if fixes else [])])


def conflict_text(conflict: Conflict) -> str:
    """The same in one paragraph."""
    changes = "; ".join(fix_line(fix) for fix in conflict.fixes)
    sentences = conflict_sentences(conflict)
    found = [f"Smallest changes that make it fit: {changes}."] if changes else []
    return " ".join([*sentences, *found])


_SHARED = {
    **dict.fromkeys(("resource", "reference"), "one variable"),
    **{kind: f"one {kind}" for kind in ("table", "queue", "stack", "iterator")},
    "frame": "one loop",
    "small_constant": "small constants",
    "returned": "an output",
    "keep_together": "--keep-together",
    "gradient": "--colocate-gradients",
    "colocation_hint": "--keep-colocation",
    "pieces": "parts of a batch",
}
"""Words for what ops share, by the reason why they are together."""


def shared_words(reasons: Iterable[str]) -> str:
    """Returns why ops share a device: ``"one variable, small constants"``."""
    words = (_SHARED.get(reason, reason.replace("_", " ")) for reason in reasons)
    return ", ".join(dict.fromkeys(words))


def conflict_reason(conflict: Conflict) -> str:
    """The conflict in half a sentence."""
    names, (needed, usable) = _joined(conflict.devices or ()), _sizes(conflict)
    kept_free = any((row.limit_bytes or 0) > (row.usable_bytes or 0) for row in conflict.caps)
    beside = " beside the reserve" * kept_free
    reasons = {
        OVERFULL: f"{names} must hold at least {needed} and can hold {usable}{beside}",
        UNDIVIDABLE: f"{names} have room for {needed}{beside}, but no division of the ops fits",
        TOO_LARGE: f"{_named(conflict)} requires {needed} on one device, and none that it may use "
        f"has more than {usable}{' left' if _is_partly_taken(conflict) else ''}{beside}"
        if conflict.usable_bytes
        else f"{names} has no room left for {_named(conflict)} ({needed})",
        CONTRADICTION: f"no device may run {_named(conflict)}",
    }
    return printable(reasons.get(conflict.reason or "", "the requests contradict each other"))


def _sizes(conflict: Conflict) -> tuple[str, str]:
    """The bytes that are needed and those that are usable, to the byte where they read alike."""
    sizes = conflict.needed_bytes, conflict.usable_bytes
    needed, usable = map(format_bytes, sizes)
    if needed == usable and None not in sizes:
        needed, usable = (f"{size:,} B" for size in sizes)
    return needed, usable


def fix_line(fix: Fix) -> str:
    """A change with how near to the least it is."""
    return printable(f"{fix.change}  ({fix.note})" if fix.note else fix.change)


def conflict_sentences(conflict: Conflict) -> list[str]:
    """Returns the requests that cannot be kept together, in words; the rows as they are where no
    reason is known."""
    devices, (needed, usable) = _devices(conflict), _sizes(conflict)
    held, pinned = _joined(_parts(conflict)), _because(_pins(conflict.pins))
    given = _joined([*_pins(row for row in conflict.pins if row.op_count is None)])
    given = f" with {given}" if given else ""
    held = f": {held}" if held else ""
    bound = given if held or not conflict.other_bytes else f" that may run nowhere else{given}"
    ops = bound if bound == given else f" of ops{bound}"
    sentences = {
        OVERFULL: f"{devices} must hold at least {needed}{ops}{held}.",
        UNDIVIDABLE: f"{devices} have room for {needed}, but no division of the ops{bound} "
        f"fits{held}.",
        TOO_LARGE: f"{_named(conflict)} requires {needed} on one device"
        f"{_because(_groups(conflict, sized=False))}, and {devices} "
        f"{_room(conflict, usable)}"
        f"{pinned and f'; no other device is allowed{pinned}'}.",
        CONTRADICTION: f"No device may run {_named(conflict)}: {_joined(_asked(conflict))}.",
    }
    if conflict.reason not in sentences:
        return [*map(_row, conflict.caps), *map(_row, (*conflict.pins, *conflict.groups))]
    unproven = "A part of this may be enough: there was no time to find out."
    return [sentences[conflict.reason], *([] if conflict.is_smallest else [unproven])]


def _devices(conflict: Conflict) -> str:
    """``"GPU:0 and GPU:1 (limit 300 KiB each)"``."""
    caps = {row.device: limit_words(row.limit_bytes, row.usable_bytes) for row in conflict.caps}
    names = [printable(name) for name in conflict.devices or ()]
    sizes = [caps.get(name, "") for name in conflict.devices or ()]
    if len(names) > 1 and len(set(sizes)) == 1 and sizes[0]:
        return f"{_joined(names)} (limit {sizes[0]} each)"
    pairs = zip(names, sizes, strict=True)
    return _joined([f"{name} (limit {size})" if size else name for name, size in pairs])


def _parts(conflict: Conflict) -> list[str]:
    """Returns the amounts that have to be held, by who says so."""
    sized = (row for row in conflict.pins if row.op_count is not None)
    parts = [*_pins(sized), *_groups(conflict)]
    if parts and (other := conflict.other_bytes):
        parts.append(f"other ops that may run nowhere else ({format_bytes(other)})")
    return parts


def _because(requests: Iterable[str]) -> str:
    held = _joined([*requests])
    return f" because of {held}" if held else ""


def _pins(rows: Iterable[OpsInConflict]) -> Iterator[str]:
    for row in rows:
        yield printable(row.request or "a request") + ("" if row.op_count is None else _size(row))


def _groups(conflict: Conflict, *, sized: bool = True) -> Iterator[str]:
    """Returns the groups, with what is resident of them unless all they require is said."""
    for row in conflict.groups:
        asked = f"the colocation group of {_first(row)}"
        yield (printable(row.request) if row.request else asked) + _size(row) * sized


def _asked(conflict: Conflict) -> list[str]:
    """Returns what each request and colocation group asks for."""
    pins = [
        f"{pin} asks for {_joined(row.devices or ())}"
        for row, pin in zip(conflict.pins, _pins(conflict.pins), strict=True)
    ]
    return [*pins, *(f"{group} asks for one device" for group in _groups(conflict))]


def _room(conflict: Conflict, usable: str) -> str:
    """Returns what the devices can hold, less what is there before any op is placed."""
    if not conflict.usable_bytes:
        taken = format_bytes(conflict.other_bytes or 0)
        return f"can hold nothing more: loading puts {taken} there that nothing uses"
    more = ": what loading puts there and nothing uses takes the rest"
    each = " each" if len(conflict.devices or ()) > 1 else ""
    return f"can hold {usable}{each} at most{more * _is_partly_taken(conflict)}"


def _is_partly_taken(conflict: Conflict) -> bool:
    """Whether a device of :data:`TOO_LARGE` has a limit above what an op may take of it."""
    return any((row.usable_bytes or 0) > (conflict.usable_bytes or 0) for row in conflict.caps)


def _size(row: OpsInConflict) -> str:
    return f" ({format_count(row.op_count or 0, 'op')}, {format_bytes(row.bytes)})"


def _named(conflict: Conflict) -> str:
    """The first op and how many there are."""
    more = (conflict.op_count or 1) - 1
    return _first(conflict) + (
        f" with {format_count(more, 'op')} that must share its device" if more else ""
    )


def _first(row: Conflict | OpsInConflict) -> str:
    return shorten(printable(row.ops[0]), _NAME_WIDTH) if row.ops else "no op"


def _joined(parts: Sequence[str]) -> str:
    """``"a, b and c"``, of many the first few."""
    left = len(parts) - _MOST_PARTS
    shown = [*parts[:_MOST_PARTS], f"{left:,} more"] if left > 1 else list(parts)
    return f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else "".join(shown)


def _row(row: CapInConflict | OpsInConflict) -> str:
    """A row as ``key value`` pairs, sizes in words; of a cap, what is required under it."""
    if isinstance(row, CapInConflict) and row.peak_bytes and row.usable_bytes:
        limit = row.limit_bytes or row.usable_bytes
        return overrun_words(row.device, row.peak_bytes, row.usable_bytes, limit)
    return ", ".join(
        f"{key.removesuffix('_bytes').replace('_', ' ')} "
        + (format_bytes(value) if key.endswith("bytes") else printable(str(value)))
        for key, value in asdict(row).items()
        if value is not None
    )
