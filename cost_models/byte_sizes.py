"""Byte counts as people write them, ``8GiB``, ``8GB``, ``1GiB+10%``, and bytes and times as people
read them."""

import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction

MEBIBYTE = 2**20

AMPLE_BYTES = 2**50
"""The cap of a CPU whose memory nobody gave and that is not of this machine: no program needs it,
so the CPU is as large as needed."""

_BINARY = {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40, "pib": 1 << 50}
_DECIMAL = {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "pb": 10**15}
_UNITS = {"": 1, "b": 1, **_BINARY, **_DECIMAL}
_SIZE = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z]*)\s*")
_NUMBER = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*%\s*")


def parse_bytes(size: str | int) -> int:
    """Bytes written as ``"8GiB"`` (1024**3), ``"8GB"`` (1000**3), ``"512"`` or a plain integer.

    Case does not matter, except that ``Gb`` and its like are refused because they read as bits.
    ``ValueError`` says what is wrong with the text: no number, a sign, an unknown or an ambiguous
    unit.

    >>> parse_bytes("8GiB"), parse_bytes("8GB"), parse_bytes(512)
    (8589934592, 8000000000, 512)
    """
    if isinstance(size, int) and not isinstance(size, bool):
        if size < 0:
            raise ValueError(f"a size cannot be negative, got {size}")
        return size
    if not isinstance(size, str):
        raise ValueError(f"a size is an integer or text such as '8GiB', got {size!r}")
    match = _SIZE.fullmatch(size)
    if match is None:
        raise ValueError(f"{size!r} is not a size; write a number and a unit, such as 8GiB or 8GB")
    number, unit = match.groups()
    return int(Fraction(number) * _unit_bytes(unit, size))


def spell_bytes(size_bytes: int) -> str:
    """The size as an option takes it, rounded up where that is less than one per cent.

    >>> spell_bytes(120 * 2**20), spell_bytes(120 * 2**20 + 1), spell_bytes(7)
    ('120MiB', '121MiB', '7B')
    """
    for unit, scale in reversed(_BINARY.items()):
        if size_bytes >= 100 * scale or (size_bytes >= scale and size_bytes % scale == 0):
            return f"{-(-size_bytes // scale)}{unit[0].upper()}iB"
    return f"{size_bytes}B"


def _unit_bytes(unit: str, size: str) -> int:
    """Bytes of one ``unit``; ``ValueError`` where it is unknown or can be read in two ways."""
    if re.fullmatch(r"[KMGTPkmgtp]b", unit) and unit[0].isupper():
        upper = unit[0] + "B"
        raise ValueError(f"{unit!r} in {size!r} reads as bits; write {upper} or {unit[0]}iB")
    if unit.lower() in _UNITS:
        return _UNITS[unit.lower()]
    if re.fullmatch(r"[KMGTPkmgtp]i?", unit):
        letter = unit[0].upper()
        raise ValueError(
            f"{unit!r} in {size!r} can be read in two ways; write {letter}iB (1024) or "
            f"{letter}B (1000)"
        )
    raise ValueError(
        f"unknown unit {unit!r} in {size!r}; known are B, KiB, MiB, GiB, TiB, PiB and "
        "KB, MB, GB, TB, PB"
    )


def parse_rate(rate: object) -> object:
    """Bytes per second of a text such as ``"12GB/s"`` or ``"10Gbit/s"``; anything else as it is.

    ``ValueError`` says what is wrong with a text.

    >>> parse_rate("12GB/s"), parse_rate("10 Gbit/s"), parse_rate(1e9)
    (12000000000.0, 1250000000.0, 1000000000.0)
    """
    if not isinstance(rate, str):
        return rate
    size, slash, second = rate.rpartition("/")
    if not slash or second.strip() != "s":
        raise ValueError(f"{rate!r} is not a rate; write 12e9 (bytes/s), 12GB/s or 10Gbit/s")
    bits = size.rstrip().removesuffix("bit")
    return parse_bytes(size) * 1.0 if bits == size.rstrip() else parse_bytes(f"{bits}B") / 8


def parse_reserve(reserve: str | int | None, limit_bytes: int) -> int:
    """Bytes to keep free of ``limit_bytes``: ``"1GiB+10%"``, ``"5%"``, ``"512MiB"``, ``"0"``.

    Percentages are of the cap.  ``None`` keeps nothing free.  ``ValueError`` if a term cannot be
    read or nothing would be left of the cap.

    >>> parse_reserve("512MiB+5%", 8 * 2**30)
    966367642
    """
    if reserve is None:
        return 0
    terms = reserve.split("+") if isinstance(reserve, str) else [reserve]
    try:
        total = sum(_term_bytes(term, limit_bytes) for term in terms)
    except ValueError as error:
        raise ValueError(f"reserve {reserve}: {error}") from error
    if total >= limit_bytes:
        raise ValueError(
            f"the reserve {reserve} ({format_bytes(total)}) leaves nothing of a limit of "
            f"{format_bytes(limit_bytes)}; reserve less or raise the limit"
        )
    return total


def _term_bytes(term: str | int, limit_bytes: int) -> int:
    """Bytes of one term of a reserve, a percentage rounded up."""
    percent = _NUMBER.fullmatch(str(term))
    if percent is None:
        return bytes_with_unit(term)
    return -int(-Fraction(percent.group(1)) * limit_bytes // 100)


def format_bytes(size_bytes: float | None) -> str:
    """The size as a person reads it, in binary units with three digits; ``"unknown"`` for ``None``.

    >>> format_bytes(8 * 2**30), format_bytes(512)
    ('8.00 GiB', '512 B')
    """
    if size_bytes is None:
        return "unknown"
    if abs(size_bytes) < 999.5:
        return f"{size_bytes} B"
    scaled, units = size_bytes / 1024, iter(("KiB", "MiB", "GiB", "TiB", "PiB"))
    unit = next(units)
    while abs(scaled) >= 999.5 and unit != "PiB":
        scaled, unit = scaled / 1024, next(units)
    return f"{three_digits(scaled)} {unit}"


_SECONDS_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def format_seconds(seconds: float | None) -> str:
    """``"61.2 ms"``: a duration, ``"unknown"`` for ``None``."""
    if seconds is None:
        return "unknown"
    for size, unit in _SECONDS_UNITS:
        if seconds >= 0.9995 * size:
            return f"{three_digits(seconds / size)} {unit}"
    if 0 < seconds < 5e-9:
        return "<0.01 µs"
    return f"{three_digits(seconds / 1e-6)} µs" if seconds else "0 s"


def three_digits(number: float) -> str:
    """Three significant digits without an exponent."""
    size = abs(number)
    return rounded(number, 0 if size >= 99.95 else 1 if size >= 9.995 else 2)


def rounded(number: float, digits: int) -> str:
    """``number`` with so many decimals, halves up: what JavaScript's ``toFixed`` writes.

    >>> rounded(31.25, 1), f"{31.25:.1f}"
    ('31.3', '31.2')
    """
    return str(Decimal(number).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


def positive_bytes(
    size: str | int, what: str, read: Callable[[str | int], int] = parse_bytes
) -> int:
    """As ``read``; ``ValueError`` names ``what``, and refuses zero, too."""
    try:
        found = read(size)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from error
    if found <= 0:
        raise ValueError(f"{what}: the memory must be more than zero, got {size!r}")
    return found


def bytes_with_unit(size: str | int) -> int:
    """As :func:`parse_bytes`; ``ValueError`` for a text of under 1 MiB without a unit."""
    found = parse_bytes(size)
    if isinstance(size, str) and size.strip().isdecimal() and 0 < found < MEBIBYTE:
        unit = "GiB" if found < 1000 else "MiB"
        plural = "s" * (found > 1)
        raise ValueError(f"{size.strip()} byte{plural}? Write the unit: {found}{unit}, or {found}B")
    return found


def format_count(count: int, noun: str, plural: str = "") -> str:
    """``"1,024 ops"``, ``"1 op"``: a number with its noun."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
