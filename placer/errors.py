"""Errors by what the caller can do; each carries the exit code of the command line."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from operator import index
from typing import TYPE_CHECKING, SupportsIndex

from placer.front_words import in_front_words, keyword_of

if TYPE_CHECKING:
    from placer.problem.conflict import Conflict


class PlacerError(Exception):
    """Anything that is told to a person without a traceback."""

    exit_code = 1

    @property
    def message(self) -> str:
        """The text with the options of the command line, as records keep it; ``str`` has those of
        the front."""
        return super().__str__()

    def __str__(self) -> str:
        return in_front_words(self.message)


class UsageError(PlacerError):
    """The request itself is wrong: an option, a device, a pin, a file that would be overwritten."""

    exit_code = 2


class ArgumentError(UsageError, TypeError):
    """An argument is of another type than the function takes."""


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


def near_names(name: str, known: Iterable[str], cutoff: float = 0.6, most: int = 3) -> str:
    """Returns ``; did you mean ...?`` where some of the ``known`` begin or end as ``name`` does,
    have its last part, or are spelled like it (``most`` of these), else nothing.

    >>> near_names("Matmul", ["VarHandleOp", "MatMul"]), near_names("zzz*", ["a"])
    ('; did you mean MatMul?', '')
    """
    wanted, spellings = name.strip("*").casefold(), dict.fromkeys(known)
    if not wanted:
        return ""
    near = [each for each in spellings if each.casefold().startswith(wanted)]
    near = near or [each for each in spellings if each.casefold().endswith(wanted)]
    if not near and len(spellings) <= 20_000:  # of more it would take long
        folded = {each.casefold(): each for each in spellings}
        last = f"/{wanted.rpartition('/')[2]}"
        ends = [key for key in folded if "/" in wanted and key.endswith(last)]
        near = get_close_matches(wanted, ends or folded, n=most, cutoff=0.0 if ends else cutoff)
        near = [folded[key] for key in near]
    return f"; did you mean {' or '.join(near[:3])}?" if near else ""


def unknown_option(name: str, known: Collection[str]) -> ArgumentError:
    """The error for a keyword argument that is none of the ``known``, with the nearest of them."""
    own = keyword_of(name)
    is_taken = own != name and own.partition("=")[0] in (*known, "exact", "source")
    near = f"did you mean {own}?" if is_taken else near_names(name, known, cutoff=0.7)[2:]
    return ArgumentError(f"there is no option {name!r}: {near or f'known are {some(known)}'}")


def reason_of(error: OSError) -> str:
    """Why a file cannot be read, as the end of a sentence."""
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    return (
        "it is a folder" if isinstance(error, IsADirectoryError) else error.strerror or str(error)
    )


_NODE = re.compile(r"(?:Detected at node|\{\{node) '?([^\s'}]+)")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_BESIDE = re.compile(
    r"Graph execution error|Exception encountered when|Detected at|<stack|Node: |  |\t"
)


def run_error(error: Exception) -> str:
    r"""What TensorFlow or Keras raised, as one line: the op, the message, the kind of error.

    >>> run_error(ValueError("Graph execution error:\n\nDetected at node x/y defined\nToo big"))
    'x/y: Too big (ValueError)'
    """
    text = _COLOUR.sub("", str(error)).strip()
    op = _NODE.search(text)
    lines = [line for line in text.splitlines() if line.strip() and not _BESIDE.match(line)]
    where = f"{op[1]}: " if op else ""
    return f"{where}{(lines or [text])[0][:500]} ({type(error).__name__})"


def require_count(name: str, given: object) -> None:
    """Raises :class:`UsageError` unless the argument ``name`` is a whole number of one or more."""
    if isinstance(given, bool) or not isinstance(given, SupportsIndex) or index(given) < 1:
        raise UsageError(f"{name} is {given!r}; give a whole number of 1 or more")


class ChoiceError(UsageError):
    """The model has no tag set, signature or output of that name."""


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
    """No placement was found within the time limit, though there may be one."""

    exit_code = 6


class TimeLimitError(PlacerError):
    """A run did not end within its time limit."""

    exit_code = 6


class GateError(PlacerError):
    """A limit given with ``--fail-above`` or ``--fail-on`` was exceeded."""

    exit_code = 7


class VerificationError(PlacerError):
    """The run differs from the plan."""

    exit_code = 8
