"""As much of TensorFlow as reading a graph takes, each part no sooner than it is needed.

extension modules ---> our own modules, the file parsed ------> the core in Python
                 '---> TensorFlow's native libraries (thread) --'
"""

import ctypes
import importlib
import importlib.util
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

PACKAGE = "tensorflow"

EXTENSIONS = (
    *("bz2", "decimal", "fcntl", "hashlib", "json", "lzma", "random", "resource", "ssl", "zlib"),
    *("google.protobuf.descriptor", "ml_dtypes", "numpy", "wrapt"),
)
"""Modules with a library of their own, or with a function of one: these would wait until
TensorFlow's are loaded."""


def load_libraries_meanwhile() -> None:
    """Loads TensorFlow's libraries in a thread; what is not there is left to TensorFlow itself."""
    for name in EXTENSIONS:
        with suppress(ImportError):
            importlib.import_module(name)
    threading.Thread(target=_load, daemon=True).start()


def _load() -> None:
    specification = importlib.util.find_spec(PACKAGE)
    folders = specification.submodule_search_locations if specification is not None else None
    if not folders or os.name != "posix":
        return
    load = ctypes.CDLL(None).dlopen  # without the interpreter's lock, which ctypes.CDLL() holds
    load.argtypes, load.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p
    # three quarters of the import of TensorFlow's core, in order of dependence
    for name in ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2"):
        path = Path(folders[0]) / name
        if path.exists():
            load(os.fsencode(path), os.RTLD_LAZY)  # a third faster: few functions will be called


_waiting: list[Callable[[], None]] = []
"""Calls that :func:`import_core` makes in the end; empty once the core is imported."""


def allow_parts(then: Callable[[], None] = lambda: None) -> None:
    """Lets modules of TensorFlow be imported without ``tensorflow/__init__.py`` and its Keras and
    pandas, unless it is there already.

    The messages (``tensorflow.core``) need nothing else; what needs the libraries calls
    :func:`import_core` before.  As soon as these are there, ``then`` is called.
    """
    if PACKAGE in sys.modules:
        then()
        return
    specification = importlib.util.find_spec(PACKAGE)
    if specification is None:
        raise ModuleNotFoundError(f"No module named {PACKAGE!r}", name=PACKAGE)
    sys.modules[PACKAGE] = importlib.util.module_from_spec(specification)
    _waiting.append(then)


def import_core() -> None:
    """Imports what reads graphs, if :func:`allow_parts` was called before, in half the time that
    the whole takes; the whole of TensorFlow where that fails."""
    if not _waiting:
        return
    then = _waiting.pop()
    try:
        importlib.import_module(f"{PACKAGE}.python.framework.ops")
    except (ImportError, AttributeError):
        for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
            del sys.modules[name]
        importlib.import_module(PACKAGE)
    then()
