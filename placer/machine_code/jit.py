"""Numba's decorators with types kept, and with a cache that can do no harm."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import config
from numba.core.caching import FunctionCache

from placer.machine_code.folder import code_folder

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """``function`` as machine code, made at the first call and cached on disk where that can be
    written; it leaves other threads running (the solver process has one that ends it in time)."""
    return _compiled(function, no_cfunc_wrapper=True)


def compiled_part(function: Function) -> Function:
    """As :func:`compiled`, for a function that only compiled code calls: to let Python call all of
    them would make compiling a sixth longer."""
    return _compiled(function, no_cfunc_wrapper=True, no_cpython_wrapper=True)


def _compiled(function: Function, **options: bool) -> Function:
    machine_code = numba.njit(nogil=True, **options)(function)
    given = config.CACHE_DIR
    config.CACHE_DIR = given or str(code_folder())
    try:
        with suppress(RuntimeError):  # Numba found no folder for its cache
            machine_code._cache = _Cache(function)
    finally:
        config.CACHE_DIR = given
    return cast(Function, machine_code)


class _Cache(FunctionCache):  # type: ignore[misc] # numba: no types
    """Numba's own; what cannot be read (it is torn, or of another release) is made anew, what
    cannot be written is not kept."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The machine code for a signature, or ``None``."""
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # whatever unpickling comes by
            self._forget()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keeps the machine code for a signature."""
        try:
            super().save_overload(sig, data)
        except Exception:  # no room on the disk, or an index that cannot be read
            self._forget()

    def _forget(self) -> None:
        """Nothing is kept of this function, and the next search has all compiled before it."""
        with suppress(OSError):
            self.flush()
        for mark in Path(self.cache_path).parent.glob("*.done"):
            with suppress(OSError):
                mark.unlink()
