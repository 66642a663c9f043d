"""Modules that load while a child process works and this one would only wait."""

from __future__ import annotations

import threading
from importlib import import_module

from placer.beside import IMPORTING


def load_meanwhile(*modules: str) -> None:
    """Imports ``modules`` in a thread.  What cannot be imported is told where it is needed."""
    threading.Thread(target=_load, args=modules, daemon=True, name=IMPORTING).start()


def _load(*modules: str) -> None:
    try:
        for name in modules:
            import_module(name)
    except ImportError:
        return
