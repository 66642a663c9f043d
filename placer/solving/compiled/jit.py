"""Numba's decorator with its types kept."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """``function`` as machine code, made at the first call and cached on disk where that can be
    written; it leaves other threads running (the solver process has one that ends it in time)."""
    try:
        machine_code = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:  # Numba found no folder for its cache
        return cast(Function, numba.njit(nogil=True)(function))
    _drop_unreadable(machine_code._cache)
    return cast(Function, machine_code)


def _drop_unreadable(cache: Any) -> None:
    """Empty a cache of another release: one that names types of modules that are no longer there
    cannot be read, not even to see that it is out of date."""
    try:
        cache._cache_file._load_index()
    except (ImportError, AttributeError):
        with suppress(OSError):
            cache.flush()
