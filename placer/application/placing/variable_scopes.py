"""``with plan.scope()``: variables are created on their planned devices, never elsewhere first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import func_graph
from tensorflow.python.ops import resource_variable_ops

from placer.application.devices.device_mapping import HOST, running_mapping
from placer.errors import UsageError
from placer.plan.plan import Plan

SMALL_BYTES = 4096
"""Variables up to this size get their values even where none are asked for: counters and rates,
which programs read while they are built."""


@contextmanager
def planned_variables(plan: Plan, *, values: bool = True, missing: str = "warn") -> Iterator[None]:
    """Inside of the block every new variable is created, and its first value computed, on the
    device that ``plan`` gives the variable of its name; one that the plan does not know, on the
    host.

    Names are those of the plan's ``variables``: for Keras the path (``sequential/dense/kernel``).
    Of variables with one name the second is ``NAME_1``, and so on.  Without ``values`` variables
    of more than 4 KiB stay empty until a checkpoint is loaded (:func:`placer.load_checkpoint`).
    Absent devices are a warning, or a :class:`UsageError` where ``missing`` is ``"error"``.
    Raises :class:`UsageError` at the end if the block reset the default graph, and with it this
    scope.
    """
    mapping = running_mapping(plan.placement.values(), missing)
    seen: Counter[str] = Counter()

    def create(next_creator: Callable[..., Any], **settings: Any) -> Any:
        base = variable_name(settings.get("name"))
        name = f"{base}_{seen[base]}" if seen[base] else base
        seen[base] += 1
        with tf.device(mapping.stand_in(plan.variables.get(name, HOST))):
            return next_creator(**settings) if values else _empty_or(next_creator, settings)

    graph = tf.compat.v1.get_default_graph()
    with tf.variable_creator_scope(create):
        yield
    if tf.compat.v1.get_default_graph() is not graph:
        raise UsageError(
            "plan.scope() was lost inside of its block, and variables went to the default device: "
            "call keras.utils.clear_session() before the block, not in it"
        )


@contextmanager
def empty_variables() -> Iterator[None]:
    """Inside of the block new variables of more than 4 KiB have a name, a shape and a dtype, but
    no value and no memory: for a program that is only traced, to be placed."""

    def create(next_creator: Callable[..., Any], **settings: Any) -> Any:
        return _empty_or(next_creator, settings)

    with tf.variable_creator_scope(create):
        yield


def _empty_or(next_creator: Callable[..., Any], settings: dict[str, Any]) -> Any:
    """A variable without a value; a small one, or one whose value is there already, with it."""
    value = settings.get("initial_value")
    if not callable(value):
        return next_creator(**settings)
    with func_graph.FuncGraph("shape_of_variable").as_default():
        spec = value()
    dtype = settings.get("dtype") or spec.dtype
    size = spec.shape.num_elements()
    if size is None or size * max(tf.as_dtype(dtype).size, 1) <= SMALL_BYTES:
        return next_creator(**settings)
    kept = {"trainable", "name", "constraint", "synchronization", "aggregation"}
    return resource_variable_ops.UninitializedVariable(
        shape=spec.shape,
        dtype=dtype,
        **{key: value for key, value in settings.items() if key in kept and value is not None},
    )


def variable_name(name: str | None) -> str:
    """The full name of a variable that is created here and now."""
    scope = tf.get_current_name_scope()
    return "/".join(filter(None, (scope, name or "Variable")))
