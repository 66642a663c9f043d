"""Defaults of options out of ``placer.toml``, or ``[tool.placer]`` in ``pyproject.toml``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from placer.commands.terminal import wrapped
from placer.errors import UsageError, near_names, reason_of

FILES = ("placer.toml", "pyproject.toml")
"""Files in the current folder, the first that sets options counts."""


def default_words(flags: Sequence[str], known: Collection[str]) -> list[str]:
    """Returns options as a command line has them, for those of ``flags`` that a file sets, and
    prints them to stderr.

    Raises :class:`UsageError` for a file that cannot be read, and for a name that is not among the
    ``known`` options.
    """
    for path in FILES:
        rows = dict(_read(path)) if os.path.exists(path) else {}
        if rows:
            break
    else:
        return []
    words: list[str] = []
    for name, value in rows.items():
        flag = f"--{name.replace('_', '-')}"
        if flag not in known:
            meant = near_names(name, [each[2:] for each in known], most=1)
            raise UsageError(f"{path} sets {name}, which is not an option of such a file{meant}")
        if flag in flags:
            words += _words(flag, value)
    if words:
        sys.stderr.write(wrapped(f"placer: from {path}: {' '.join(words)}") + "\n")
    return words


def is_given(option: argparse.Action, words: Sequence[str]) -> bool:
    """Whether ``words`` have an option in one of the ways that argparse reads."""
    short = tuple(name for name in option.option_strings if not name.startswith("--"))
    return any(
        word.partition("=")[0] in option.option_strings or (short and word.startswith(short))
        for word in words
    )


def _read(path: str) -> Iterator[tuple[str, Any]]:
    """Yields the options that a file sets."""
    import tomllib

    try:
        with open(path, "rb") as file:
            found: Mapping[str, Any] = tomllib.load(file)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {reason_of(error)}") from error
    except ValueError as error:
        raise UsageError(f"{path} is not TOML: {error}") from error
    if path == "pyproject.toml":
        found = found.get("tool", {}).get("placer", {})
    yield from found.items()


def _words(flag: str, value: Any) -> list[str]:
    """Returns ``flag`` with its value, as often as the value has entries."""
    if value is True or value is False:
        return [flag] if value else []
    if isinstance(value, dict):
        value = [f"{key}={each}" for key, each in value.items()]
    values = value if isinstance(value, list) else [value]
    return [f"{flag}={each}" for each in values]
