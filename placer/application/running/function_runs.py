"""Runs of live functions, in their own process or rebuilt in another one."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from placer.application.placing.function_graphs import FunctionEnds, build_function
from placer.application.running.program_runs import Run, run_flat
from placer.extraction.graph_defs.protobufs import Captures


@dataclass(frozen=True, kw_only=True)
class CapturedValue:
    """A captured variable or tensor as plain data; ``device`` is where it is to live."""

    value: Any
    dtype: str
    is_variable: bool
    shape: tuple[int | None, ...] | None = None
    device: str = ""


@dataclass(frozen=True, kw_only=True)
class PortableFunction:
    """A flat function that another process can run: its GraphDef, its captures by placeholder
    name, its arguments in order, names for its outputs."""

    graph_def: Any
    ends: FunctionEnds
    captures: Mapping[str, CapturedValue]
    inputs: Sequence[Any]
    keys: tuple[str, ...]


def run_portable(function: PortableFunction, *, optimised: bool) -> Run:
    """One run of a function that came from another process."""
    alive, captures = [], {}
    for name, captured in function.captures.items():
        owner, captures[name] = _revive(captured)
        alive.append(owner)
    built = build_function(function.graph_def, function.ends, captures)
    return run_flat(built, function.inputs, function.keys, optimised=optimised)


def _revive(captured: CapturedValue) -> tuple[Any, Any]:
    """(what must stay alive, the tensor to capture)."""
    with tf.device(captured.device or None):
        value = tf.constant(captured.value, captured.dtype)
        if not captured.is_variable:
            return value, value
        variable = tf.Variable(value, dtype=captured.dtype, shape=tf.TensorShape(captured.shape))
        return variable, variable.handle


def stuck_captures(captures: Captures, variables: Sequence[Any]) -> tuple[str, ...]:
    """The captures that cannot leave the process: resources besides ``variables``, variants."""
    handles = {id(variable.handle) for variable in variables}
    return tuple(
        name
        for name, value in captures.items()
        if value.dtype in (tf.resource, tf.variant) and id(value) not in handles
    )


def capture_values(
    captures: Captures, variables: Sequence[Any], devices: Mapping[str, str]
) -> dict[str, CapturedValue]:
    """The captures as plain data; none may be stuck.

    ``variables`` are the TensorFlow variables behind captured handles, ``devices`` says where
    each capture is to live.
    """
    by_handle = {id(variable.handle): variable for variable in variables}
    found = {}
    for name, value in captures.items():
        variable = by_handle.get(id(value))
        source = value if variable is None else variable
        found[name] = CapturedValue(
            value=source.numpy(),
            dtype=source.dtype.name,
            is_variable=variable is not None,
            shape=None if source.shape.rank is None else tuple(source.shape.as_list()),
            device=devices[name],
        )
    return found


@contextmanager
def restored(variables: Sequence[Any]) -> Iterator[None]:
    """Gives every variable its value back at the end of the block."""
    values = [variable.numpy() for variable in variables]
    try:
        yield
    finally:
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
