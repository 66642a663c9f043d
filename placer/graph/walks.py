"""Finds everything that something leads to, and puts together what has a key in common."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


def reached(starts: Iterable[Key], following: Callable[[Key], Iterable[Key]]) -> list[Key]:
    """Returns ``starts`` and all that ``following`` leads to from them, each once, as it is found;
    what was found last is followed first.

    >>> reached("a", {"a": "bc", "b": "d", "c": "d", "d": ""}.__getitem__)
    ['a', 'b', 'c', 'd']
    """
    found = dict.fromkeys(starts)
    pending = list(found)
    while pending:
        for other in following(pending.pop()):
            if other not in found:
                found[other] = None
                pending.append(other)
    return list(found)


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Returns the values of every key, in their order.

    >>> grouped([("a", 1), ("b", 2), ("a", 3)])
    {'a': [1, 3], 'b': [2]}
    """
    found: dict[Key, list[Value]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found
