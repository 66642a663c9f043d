"""Runs in every Python process of ``placer simulate``: says which memory is which variable's.

The libraries know the op that asked for memory; that it became a variable, and its name, only
Python knows.  A ``sitecustomize`` of the user's own runs as it would have without this one.
"""

import atexit
import gc
import importlib
import os
import sys
from typing import Any


def _run_the_users_own() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    this = sys.modules.pop("sitecustomize", None)
    try:
        importlib.import_module("sitecustomize")  # the next one on the path
    except ImportError:
        if this is not None:
            sys.modules["sitecustomize"] = this


def _address_of(tensor: Any, dlpack: Any) -> Any:
    """Where a tensor lies; DLPack's first field is that address."""
    import ctypes

    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    capsule = dlpack.to_dlpack(tensor)
    return ctypes.cast(pointer_of(capsule, b"dltensor"), ctypes.POINTER(ctypes.c_void_p))[0]


def _name_variables() -> None:
    """Gives the memory of all variables on GPUs their names, when the script has ended."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None or not hasattr(tensorflow, "experimental"):
        return
    import ctypes

    try:
        from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable

        name_holding = ctypes.CDLL(None).placer_name_holding
        dlpack = tensorflow.experimental.dlpack
    except (ImportError, AttributeError):
        return
    name_holding.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
    for found in gc.get_objects():
        try:
            if isinstance(found, BaseResourceVariable) and "GPU" in found.device:
                name = found.name.partition(":")[0]
                name_holding(_address_of(found.read_value(), dlpack), f"variable {name}".encode())
        except Exception:  # one of a graph, without a value, of a type that DLPack lacks
            continue


def _leave_xla_out() -> None:
    """Has Keras take ``jit_compile="auto"`` as False (``--no-xla``)."""
    from importlib.abc import MetaPathFinder
    from importlib.machinery import PathFinder

    class Finder(MetaPathFinder):
        def find_spec(self, name: str, path: Any = None, *_: Any) -> Any:
            if name != "keras.src.trainers.trainer":
                return None
            spec = PathFinder.find_spec(name, path)
            if spec is None or spec.loader is None:
                return None
            run = spec.loader.exec_module

            def run_and_change(module: Any) -> None:
                run(module)
                module.model_supports_jit = lambda _: False

            spec.loader.exec_module = run_and_change  # type: ignore[method-assign]
            return spec

    sys.meta_path.insert(0, Finder())


def _tell_where_python_is(seconds: float) -> None:
    """Prints what the main thread runs after so long, shortly before the command is ended.

    By a thread that holds the interpreter's lock: ``faulthandler`` looks at a running thread
    without it, which once ended the program with a segmentation fault.
    """
    import threading
    import time
    import traceback

    main = threading.main_thread().ident

    def tell() -> None:
        time.sleep(seconds)
        frame = sys._current_frames().get(main) if main is not None else None
        if frame is not None:
            sys.stderr.write(f"after {seconds:g} s the main thread was here:\n")
            traceback.print_stack(frame)

    threading.Thread(target=tell, daemon=True).start()


_run_the_users_own()
if os.environ.get("PLACER_SIMULATION_RECORDS"):
    atexit.register(_name_variables)
if os.environ.get("PLACER_SIMULATION_NO_XLA"):
    _leave_xla_out()
if os.environ.get("PLACER_SIMULATION_TIME_LIMIT"):
    _tell_where_python_is(float(os.environ["PLACER_SIMULATION_TIME_LIMIT"]))
