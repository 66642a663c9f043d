"""TensorFlow's native libraries, loaded while the interpreter is busy with something else."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import threading
from pathlib import Path

LIBRARIES = ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2")
"""What takes three quarters of the time of importing TensorFlow's core, in order of dependence."""


def load_meanwhile() -> None:
    """Loads the libraries in a thread; what is not there is left to TensorFlow itself."""
    threading.Thread(target=_load, daemon=True).start()


def _load() -> None:
    specification = importlib.util.find_spec("tensorflow")
    folders = specification.submodule_search_locations if specification is not None else None
    if not folders or os.name != "posix":
        return
    load = ctypes.CDLL(None).dlopen  # without the interpreter's lock, which ctypes.CDLL() holds
    load.argtypes, load.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p
    for name in LIBRARIES:
        path = Path(folders[0]) / name
        if path.exists():
            load(os.fsencode(path), os.RTLD_NOW)
