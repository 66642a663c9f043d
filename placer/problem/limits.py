"""Limits of devices: what exceeds them, in words, and the limits that would be enough."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from cost_models.byte_sizes import AMPLE_BYTES, format_bytes, parse_reserve, spell_bytes


class Limited(Protocol):
    """A device of a cluster or of a plan, of whose limit a part may be reserved."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def type(self) -> str: ...  # noqa: D102
    @property
    def memory_limit_bytes(self) -> int: ...  # noqa: D102
    @property
    def usable_bytes(self) -> int: ...  # noqa: D102


def limit_words(limit_bytes: int | None, usable_bytes: int | None) -> str:
    """Returns a limit and its reserve.

    >>> limit_words(4096, 3072), limit_words(4096, 4096), limit_words(AMPLE_BYTES, AMPLE_BYTES)
    ('4.00 KiB less the reserve of 1.00 KiB', '4.00 KiB', 'as needed')
    """
    if limit_bytes is None or usable_bytes is None or usable_bytes >= limit_bytes:
        return "as needed" if usable_bytes == AMPLE_BYTES else format_bytes(usable_bytes)
    reserve = format_bytes(limit_bytes - usable_bytes)
    return f"{format_bytes(limit_bytes)} less the reserve of {reserve}"


def overrun_words(name: str, required_bytes: int, usable_bytes: int, limit_bytes: int) -> str:
    """Returns what a device requires, by how much that exceeds its limit, and the limit.

    >>> overrun_words("GPU:0", 5120, 3072, 4096)
    'GPU:0 requires 5.00 KiB, 2.00 KiB more than its limit of 4.00 KiB less the reserve of 1.00 KiB'
    """
    more, limit = (
        format_bytes(required_bytes - usable_bytes),
        limit_words(limit_bytes, usable_bytes),
    )
    return f"{name} requires {format_bytes(required_bytes)}, {more} more than its limit of {limit}"


def overruns(devices: Iterable[Limited], over_bytes: Mapping[str, int]) -> list[str]:
    """Returns a sentence for every device that exceeds its limit, by so many bytes."""
    return [
        overrun_words(row.name, row.usable_bytes + more, row.usable_bytes, row.memory_limit_bytes)
        for row in devices
        if (more := over_bytes.get(row.name, 0)) > 0
    ]


def fullest(required: Mapping[str, int], usable: Mapping[str, int]) -> tuple[str, float]:
    """Returns the device that requires most of its limit, and that share; ``("", 0.0)`` where
    nothing is required of a limit.

    >>> fullest({"GPU:0": 3, "CPU:0": 9}, {"GPU:0": 4, "CPU:0": AMPLE_BYTES})
    ('GPU:0', 0.75)
    """
    limited = (name for name in required if usable[name] != AMPLE_BYTES and required[name])
    shares = {name: required[name] / max(1, usable[name]) for name in limited}
    return max(shares.items(), key=lambda pair: pair[1], default=("", 0.0))


def limits_for(
    devices: Iterable[Limited],
    usable_bytes: Mapping[str, int],
    asked: object,
    reserve: str | int | None,
) -> dict[str, int]:
    """Returns the limits to ask for instead of those ``asked``, so that of some devices so many
    bytes are usable once the ``reserve`` is taken off; the others keep theirs."""
    rows = tuple(devices)
    host = "cpu" in str(asked).lower()
    limits = {
        row.name: row.memory_limit_bytes
        for row in rows
        if row.name in usable_bytes or (asked and (row.type != "CPU" or host))
    }
    for row in rows:
        known = reserve if row.usable_bytes < row.memory_limit_bytes else None
        for _ in range(64 if row.name in usable_bytes else 0):  # a percentage is of the limit
            least = usable_bytes[row.name] + parse_reserve(known, limits[row.name])
            limits[row.name] = max(limits[row.name], least)
    return limits


def spell_limits(limits: Mapping[str, int]) -> str:
    """Returns limits as ``--max-memory`` takes them."""
    return ",".join(f"{name}={spell_bytes(size)}" for name, size in limits.items())


def limits_option(limits: Mapping[str, int]) -> str:
    """Returns limits as an option of the command line."""
    return f"--max-memory {spell_limits(limits)}"
