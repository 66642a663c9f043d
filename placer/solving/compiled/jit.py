"""Numba's decorator with its types kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """``function`` as machine code, made at the first call and cached on disk where that can be
    written; it leaves other threads running (the solver process has one that ends it in time)."""
    try:
        return cast(Function, numba.njit(cache=True, nogil=True)(function))
    except RuntimeError:  # Numba found no folder for its cache
        return cast(Function, numba.njit(nogil=True)(function))
