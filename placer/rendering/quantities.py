"""Numbers as people read them; ``cost_models.byte_sizes`` writes bytes and times."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from cost_models.byte_sizes import AMPLE_BYTES, format_bytes, rounded, three_digits
from cost_models.byte_sizes import format_seconds as format_seconds
from placer.graph.walks import grouped
from placer.problem.limits import Limited, limit_words

if TYPE_CHECKING:  # help and wrong usage load no dataclasses
    from placer.plan.rows import PlannedDevice

_CALLS = re.compile(r"(?<![\w/])((Stateful)?PartitionedCall(_\d+)?/)+")


def format_flops(flops: float | None) -> str:
    """``"771 GFLOP"``: floating-point operations in decimal units, ``"unknown"`` for ``None``."""
    if flops is None:
        return "unknown"
    return f"{round(flops)} FLOP" if flops < 999.5 else format_rate(flops, "FLOP")


def format_intensity(flops_per_byte: float) -> str:
    """``"0.041"``, ``"11"``: FLOP per byte accessed."""
    return f"{flops_per_byte:.2g}" if flops_per_byte < 10 else f"{flops_per_byte:.0f}"


def format_rate(per_second: float, unit: str) -> str:
    """``"1.56 TB/s"``: a rate in decimal units."""
    scaled, prefixes = per_second, iter(("", "k", "M", "G", "T", "P", "E"))
    prefix = next(prefixes)
    while scaled >= 999.5 and prefix != "E":
        scaled, prefix = scaled / 1000, next(prefixes)
    return f"{three_digits(scaled)} {prefix}{unit}"


def known(value: Any, render: Callable[[Any], str]) -> str:
    """The rendered value, ``"-"`` for ``None``."""
    return "-" if value is None else render(value)


def signed(value: float | None, render: Callable[[Any], str]) -> str:
    """A difference with its sign, ``"0"`` if there is none, ``"-"`` for ``None``."""
    if not value:
        return known(value, lambda _: "0")
    return f"{'+' if value > 0 else '-'}{render(abs(value))}"


def format_share(part: float, whole: float) -> str:
    """``"12.3%"``: the share of ``part`` in ``whole``, ``"-"`` if there is no whole; a little is
    ``"<0.1%"``, so that it does not read as nothing."""
    if whole <= 0:
        return "-"
    share = rounded(100 * part / whole, 1)
    return "<0.1%" if share == "0.0" and part > 0 else f"{share}%"


def format_shape(shape: Sequence[int | None] | None) -> str:
    """``"[?, 224, 224, 3]"``: ``?`` for an unknown dimension, ``"[...]"`` for unknown rank."""
    if shape is None:
        return "[...]"
    return f"[{', '.join('?' if size is None else str(size) for size in shape)}]"


def drop_calls(text: str) -> str:
    """Op names without the call nodes at their front, which every exported model has:
    ``"…/conv1/Conv2D"`` for ``"StatefulPartitionedCall/conv1/Conv2D"``."""
    return _CALLS.sub("…/", text)


def format_cap(cap_bytes: int | None) -> str:
    """A cap in words: that of a host whose memory nobody gave is ``"as needed"``."""
    return "as needed" if cap_bytes == AMPLE_BYTES else format_bytes(cap_bytes)


def share_of_cap(required_bytes: int | None, usable_bytes: int) -> str:
    """The share of what is usable that is required, ``"-"`` where nothing was placed or there is no
    limit; what is a little less or more than all of it does not read as all.

    >>> share_of_cap(999_999, 1_000_000), share_of_cap(8, 8), share_of_cap(1_000_001, 1_000_000)
    ('<100%', '100.0%', '>100%')
    """
    if usable_bytes == AMPLE_BYTES or required_bytes is None:
        return "-"
    share = format_share(required_bytes, usable_bytes)
    if share == "100.0%" and required_bytes != usable_bytes:
        return "<100%" if required_bytes < usable_bytes else ">100%"
    return share


def shorten(name: str, width: int) -> str:
    """``name``, :func:`printable`, in at most ``width`` columns.

    Of a long op name the call nodes at its front go first, then the middle: both ends say most.
    """
    name = printable(name)
    if len(name) <= width:
        return name
    inner = drop_calls(name)
    if len(inner) <= width or width < 2:
        return inner[: max(width, 0)]
    head = (width - 1) // 3
    return f"{inner[:head]}…{inner[len(inner) - (width - 1 - head) :]}"


def printable(text: str, *, keep: str = "") -> str:
    """``text`` with every character escaped that a terminal would obey instead of showing it, but
    those in ``keep``."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text
    )


def limit_lines(devices: Iterable[PlannedDevice]) -> list[str]:
    """Returns a line for each reserve in a plan."""
    return reserve_lines((row.name, row.memory_limit_bytes, row.usable_bytes) for row in devices)


def limits_text(devices: Iterable[Limited]) -> str:
    """Returns the limits of devices, with their reserves."""
    return ", ".join(
        f"{row.name} {limit_words(row.memory_limit_bytes, row.usable_bytes)}" for row in devices
    )


def reserve_lines(limits: Iterable[tuple[str, int, int]]) -> list[str]:
    """Returns a line for each reserve, of devices as (name, limit, usable bytes).

    >>> reserve_lines([("GPU:0", 4096, 3072), ("GPU:1", 4096, 3072), ("CPU:0", 4096, 4096)])
    ['Limit of GPU:0, GPU:1: 4.00 KiB less the reserve of 1.00 KiB.']
    """
    names = grouped(((limit, usable), name) for name, limit, usable in limits if usable < limit)
    return [f"Limit of {', '.join(found)}: {limit_words(*pair)}." for pair, found in names.items()]
