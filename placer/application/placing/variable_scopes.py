"""``with plan.scope()``: variables are created on their planned devices, never elsewhere first."""

from collections.abc import Iterator
from contextlib import contextmanager

import tensorflow as tf

from placer.application.devices.device_mapping import HOST, placed_on, running_mapping
from placer.errors import UsageError
from placer.extraction.reading.created_variables import created_on
from placer.plan.plan import Plan


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
    mapping = running_mapping(placed_on(plan), missing)
    graph = tf.compat.v1.get_default_graph()
    with created_on(lambda name: mapping.stand_in(plan.variables.get(name, HOST)), values=values):
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
    with created_on(lambda _: None, values=False):
        yield
