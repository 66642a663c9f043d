"""Variables that live on another device for a while.

A ``tf.Variable`` is a handle to a buffer, and a handle has one device.  Here the variable gets the
handle of a buffer elsewhere, so that everybody who holds the variable follows, and the old buffer
is given back at once.  A function that was traced before holds the old handle: it would keep that
memory and run on with old values, without a word.  So a ``tf.function`` forgets what it traced,
and a ConcreteFunction in somebody's hands refuses until its handles are in use again.
"""

import gc
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.core.function.polymorphism.function_cache import FunctionCache
from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

from cost_models.byte_sizes import format_bytes
from placer.application.devices.device_mapping import HOST
from placer.errors import UsageError

_LOG = logging.getLogger(__name__)

_NO_ROOM = (tf.errors.ResourceExhaustedError, tf.errors.InternalError)
"""The errors that TensorFlow raises where a value finds no room: the latter if it comes from
another device ("Dst tensor is not initialized")."""


_TRIES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moved:
    """A variable and its ``handle`` on the device to which it returns; without one a variable that
    was made elsewhere than on its ``home``."""

    variable: Any
    handle: Any
    home: str


class MovedVariables:
    """Variables away from home; :meth:`bring_home` ends it."""

    def __init__(self) -> None:
        self._moved: list[_Moved] = []
        self._refusing: list[Any] = []

    def move(self, variable: Any, device: str) -> None:
        """Has ``variable`` on ``device``, and nothing of it where it was."""
        handle = variable.handle
        variable._handle = made_snug(device, lambda: copy_variable(variable, device)).handle
        self._moved.append(_Moved(variable=variable, handle=handle, home=handle.device))
        _give_back(handle, variable)

    def expect_home(self, variable: Any, home: str) -> None:
        """``variable`` is where it should be for now, and goes to ``home`` at the end."""
        if variable.device != home:
            self._moved.append(_Moved(variable=variable, handle=None, home=home))

    def forget(self, variables: Sequence[Any]) -> None:
        """Leaves variables that nobody uses any more where they are."""
        gone = set(map(id, variables))
        self._moved = [moved for moved in self._moved if id(moved.variable) not in gone]

    def drop_functions(self) -> None:
        """Has functions that hold old handles traced again, or refuse; call it after moves."""
        self._refusing += _drop_functions(
            [moved.handle for moved in self._moved if moved.handle is not None],
            "was traced before the model was bound and holds variables that have moved since: "
            "trace it inside of the block",
        )

    def bring_home(self) -> None:
        """Gives every variable its old handle, with its value; where that finds no room, it stays
        on the host, with a warning."""
        left = list[Any]()
        away = list[Any]()
        for moved in self._moved:
            away.append(moved.variable.handle)
            if not _return(moved):
                left.append(moved.variable)
        self._moved.clear()
        for function in self._refusing:
            vars(function).pop("_call_flat", None)
        self._refusing.clear()
        _drop_functions(
            away,
            "was traced while the model was bound and holds variables that have moved since: "
            "trace it again",
        )
        if left:
            size = sum(variable.shape.num_elements() * variable.dtype.size for variable in left)
            _LOG.warning(
                "%d variables (%s) do not fit where they were before the block: they are on the "
                "host now",
                len(left),
                format_bytes(size),
            )


def copy_variable(variable: Any, device: str) -> Any:
    """A variable with the value of ``variable`` on ``device``."""
    with tf.init_scope(), tf.device(device):
        return tf.Variable(
            variable.read_value(),
            trainable=variable.trainable,
            name=variable.name.partition(":")[0],
            dtype=variable.dtype,
            shape=variable.shape,
        )


def made_snug(device: str, make: Callable[[], Any]) -> Any:
    """The variable that ``make`` makes on ``device``, in a chunk of its size if there is one.

    TensorFlow's allocator gives out a free chunk whole if it is less than twice what was asked
    for, and where variables have left there are such chunks: another try, while the first is
    held, gets another chunk.
    """
    if "GPU" not in device:
        return make()
    tries: list[tuple[int, int, Any]] = []
    while len(tries) < _TRIES:
        before = tf.config.experimental.get_memory_info(device)["current"]
        try:
            variable = make()
        except _NO_ROOM:
            if tries:
                break
            raise
        taken = tf.config.experimental.get_memory_info(device)["current"] - before
        # a chunk up to 2% larger than the variable is as good as one of its size
        if taken <= 1.02 * (variable.shape.num_elements() or 0) * variable.dtype.size + 256:
            return variable
        tries.append((taken, len(tries), variable))
    return min(tries)[2]


def _return(moved: _Moved) -> bool:
    """Whether the variable is home; on the host if not."""
    variable, away = moved.variable, moved.variable.handle
    try:
        if moved.handle is None:
            variable._handle = copy_variable(variable, moved.home).handle
        else:
            tf.raw_ops.AssignVariableOp(resource=moved.handle, value=variable.read_value())
            variable._handle = moved.handle
    except _NO_ROOM:
        variable._handle = copy_variable(variable, HOST).handle
    _give_back(away, variable)
    return bool(variable.device == moved.home)


def _give_back(handle: Any, variable: Any) -> None:
    """Frees the buffer behind ``handle``, whoever holds it; not that of a single number, which
    would be taken for one that is broadcast."""
    if variable.shape.num_elements() != 1:
        nothing = tf.zeros([0], variable.dtype)
        tf.raw_ops.AssignVariableOp(resource=handle, value=nothing, validate_shape=False)


def _drop_functions(handles: Collection[Any], why: str) -> list[Any]:
    """Clears the caches of ``tf.functions`` with a function that holds one of ``handles``; returns
    these functions, which refuse from now on."""
    wanted, stale, caches = set(map(id, handles)), list[Any](), list[Any]()
    for thing in gc.get_objects() if wanted else ():
        if type(thing) is FunctionCache:
            caches.append(thing)
        elif issubclass(type(thing), ConcreteFunction):
            held = vars(thing).get("_captured_inputs", ())
            stale += [thing] if any(id(capture) in wanted for capture in held) else []
    found = set(map(id, stale))
    for cache in caches:
        if any(id(function) in found for function in cache.values()):
            cache.clear()
    for function in stale:
        vars(function)["_call_flat"] = _refusal(function, why)
    return stale


def _refusal(function: Any, why: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise UsageError(f"the function {function.graph.name!r} {why}")

    return refuse
