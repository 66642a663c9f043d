"""Numba's decorator with its types kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """``function`` as machine code, made at the first call and cached on disk."""
    return cast(Function, numba.njit(cache=True)(function))
