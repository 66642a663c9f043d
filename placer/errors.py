"""Errors by what the caller can do; each carries the exit code of the command line."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING

from placer.front_words import in_front_words

if TYPE_CHECKING:
    from placer.problem.conflict import Conflict


class PlacerError(Exception):
    """Anything that is told to a person without a traceback."""

    exit_code = 1

    def __str__(self) -> str:
        return in_front_words(super().__str__())


class UsageError(PlacerError):
    """The request itself is wrong: an option, a device, a pin, a file that would be overwritten."""

    exit_code = 2


SHOWN = 5
"""Names in a message; of the others it says how many there are."""


def some(names: Iterable[object], separator: str = ", ") -> str:
    """The first of ``names`` for a message.

    >>> some("abcdefg"), some(["a", "b"], "; ")
    ('a, b, c, d, e and 2 more', 'a; b')
    """
    texts = [*map(str, names)]
    left = len(texts) - SHOWN
    comma = "" if separator == ", " else ";"
    return separator.join(texts[:SHOWN]) + (f"{comma} and {left:,} more" if left > 0 else "")


TENSORFLOW_MISSING = (
    "TensorFlow is not installed: pip install 'graph-placer[tensorflow]', or 'graph-placer[cpu]' "
    "for the package that uses no GPU"
)


def missing_tensorflow(error: Exception) -> UsageError | None:
    """The error to tell a person if ``error`` says that there is no TensorFlow to import."""
    missing = isinstance(error, ModuleNotFoundError) and error.name == "tensorflow"
    return UsageError(TENSORFLOW_MISSING) if missing else None


def unknown_option(name: str, known: Collection[str]) -> UsageError:
    """The error for a keyword argument that is none of the ``known``, with the nearest of them."""
    near = get_close_matches(name, known, n=3, cutoff=0.5)
    meant = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(known)}"
    return UsageError(f"there is no option {name!r}: {meant}")


class ModelError(PlacerError):
    """The model cannot be read or is not supported."""

    exit_code = 3


class ShapeError(PlacerError):
    """Shapes stay unknown that a placement needs."""

    exit_code = 4


class InfeasibleError(PlacerError):
    """It is proven that no placement fits the caps and pins; ``conflict`` says why, as the plan
    does (see ``docs/plan.md``)."""

    exit_code = 5

    def __init__(self, message: str, conflict: Conflict | None = None) -> None:
        super().__init__(message)
        self.conflict = conflict


class NoSolutionError(PlacerError):
    """No placement was found within the time limit, and none is proven impossible."""

    exit_code = 6


class GateError(PlacerError):
    """A limit given with ``--fail-above`` or ``--fail-on`` was exceeded."""

    exit_code = 7


class VerificationError(PlacerError):
    """The run differs from the plan."""

    exit_code = 8
