"""Readers of the values of options; they raise ``argparse.ArgumentTypeError``."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, TypeVar

from placer.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

Value = TypeVar("Value")


def unique(pairs: Iterable[tuple[str, Value]], flag: str) -> dict[str, Value]:
    """Values by name (devices by glob).  Raises ``UsageError`` if one name has two values."""
    found: dict[str, Value] = {}
    for name, value in pairs:
        if found.setdefault(name, value) != value:
            raise UsageError(f"{flag} {name} is given twice, for {found[name]} and for {value}")
    return found


def split(text: str) -> list[str]:
    """The parts between commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def count(text: str, least: int = 0, most: int = 0) -> int:
    """A whole number from ``least`` to ``most`` (0: of 64 bits); raises ``ArgumentTypeError``."""
    if not text.isdecimal() or int(text) < least:
        kind = "a positive integer" if least else "an integer of 0 or more"
        raise argparse.ArgumentTypeError(f"must be {kind}, got {text!r}")
    from cost_models.tensor_size import MOST_ELEMENTS

    most = most or MOST_ELEMENTS
    if int(text) > most:
        raise argparse.ArgumentTypeError(f"must be at most {most:,}, got {text}")
    return int(text)


def size(text: str, least: int = 0) -> int:
    """The size of a dimension, of ``least`` or more; raises ``ArgumentTypeError``."""
    from cost_models.tensor_size import MOST_SIZE

    return count(text, least, MOST_SIZE)


def positive(text: str) -> int:
    """A whole number of one or more.  Raises ``ArgumentTypeError`` for anything else."""
    return count(text, least=1)


def batch_size(text: str) -> int:
    """One batch size; raises ``ArgumentTypeError`` saying what takes several."""
    if "," in text and all(part.strip().isdecimal() for part in text.split(",")):
        raise argparse.ArgumentTypeError(
            f"must be one batch size, got {text!r}: placer report compares several"
        )
    return size(text, least=1)


def positives(text: str) -> int | tuple[int, ...]:
    """One whole number of one or more, or several with commas between them."""
    found = tuple(size(part.strip(), least=1) for part in text.split(","))
    return found if len(found) > 1 else found[0]


def file_name(text: str) -> str:
    """A name that is not empty, as it is where a shell's variable is."""
    if not text:
        raise argparse.ArgumentTypeError("must be the name of a file, got ''")
    return text


def seconds(text: str) -> float:
    """A finite time above zero.  Raises ``ArgumentTypeError`` for anything else."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a positive number of seconds, got {text!r}")
    return value


def names(text: str) -> tuple[str, ...]:
    """Names with commas between them; there is one at least."""
    found = tuple(split(text))
    if not found:
        raise argparse.ArgumentTypeError(f"must be names with commas between them, got {text!r}")
    return found


def share(text: str) -> float:
    """A share from 0 to below 1: ``10%`` or ``0.1``."""
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"must be a share such as 10% or 0.1, got {text!r}")
    return value


def shape(text: str) -> tuple[str, tuple[int | str | None, ...]]:
    """Input name and shape, with ``=`` or ``:`` between them; nothing behind it is a scalar.

    A dimension is a number, ``?`` or a name without the letter x, which stands between them.
    """
    name, colon, sizes = text.rpartition("=" if "=" in text else ":")
    found = _sizes(sizes) if sizes else ()
    if not colon or not name or found is None:
        raise argparse.ArgumentTypeError(f"must be NAME=32x128 or NAME=BxT, got {text!r}")
    return name, found


def lengths(text: str) -> tuple[str, tuple[int | str | None, ...]]:
    """Name of a ragged or sparse input, its rows and their mean lengths, written as in a shape."""
    name, equals, sizes = text.rpartition("=")
    found = _sizes(sizes)
    if not equals or not name or found is None or len(found) < 2:
        raise argparse.ArgumentTypeError(
            f"must be NAME=32x50 (32 rows of 50 on average), got {text!r}"
        )
    return name, found


def _sizes(text: str) -> tuple[int | str | None, ...] | None:
    """Dimensions with an x between them; ``None`` if the text is none."""
    parts = re.split("[xX]", text)
    if not all(part.isdecimal() or part == "?" or part.isidentifier() for part in parts):
        return None
    return tuple(
        size(part) if part.isdecimal() else None if part == "?" else part for part in parts
    )


def dimension(text: str) -> tuple[str, int]:
    """Name and size of a dimension."""
    name, equals, given = text.partition("=")
    if equals and name.isidentifier() and not given.isdecimal():
        raise argparse.ArgumentTypeError(
            f"the size of {name} must be a whole number, got {given!r}"
        )
    if not equals or not name.isidentifier() or "x" in name.lower():
        raise argparse.ArgumentTypeError(f"must be T=128 (without an x in the name), got {text!r}")
    return name, size(given)


def pin(text: str) -> tuple[str, str]:
    """Glob and device."""
    glob, equals, device = text.rpartition("=")
    if not equals or not glob or not device:
        raise argparse.ArgumentTypeError(f"must be 'GLOB=GPU:0', got {text!r}")
    return glob, device


def splits(text: str) -> str:
    """Tables with the number of their parts; raises ``ArgumentTypeError`` for what is none."""
    from placer.plan.request import format_splits, read_splits

    try:
        return format_splits(read_splits(text))
    except UsageError as error:
        message = str(error).removeprefix("split_tables ")
        raise argparse.ArgumentTypeError(message) from error


def strategy(text: str) -> str:
    """A strategy by name; raises ``ArgumentTypeError`` saying what there is."""
    from placer.strategies.requests import read_strategy

    try:
        return str(read_strategy(text))
    except UsageError as error:
        message = str(error).removeprefix(f"--strategy {text}: ").removeprefix("--strategy ")
        raise argparse.ArgumentTypeError(message) from error


def micro_batches(text: str) -> str:
    """The strategy of so many micro-batches, or of as few as fit (``auto``)."""
    if text != "auto" and (not text.isdecimal() or int(text) < 1):
        raise argparse.ArgumentTypeError(f"must be a positive integer or auto, got {text!r}")
    return strategy(f"micro-batches:{text}")
