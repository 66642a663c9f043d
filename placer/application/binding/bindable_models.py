"""Whether a Keras model can be bound, and its compilation by XLA."""

from __future__ import annotations

import logging
from typing import Any

import tensorflow as tf

from placer.errors import UsageError
from placer.extraction.reading.keras_two import is_compiled
from placer.extraction.reading.training_steps import keras_variables
from placer.plan.plan import Plan

_LOG = logging.getLogger(__name__)


def without_compilation(model: Any) -> bool:
    """Switches XLA off for ``model``, and returns whether it was on.

    It warns where that was asked for: on a machine with a GPU it is Keras's own choice.
    """
    asked, model.jit_compile = bool(model.jit_compile), False
    if asked:
        is_own = getattr(model, "_resolve_auto_jit_compile", bool)()  # Keras 3 takes it by itself
        level = logging.INFO if is_own else logging.WARNING
        _LOG.log(
            level,
            "jit_compile is off for %r while it is bound: XLA would put a whole step on one device",
            model.name,
        )
    return asked


MOST_UNKNOWN = 0.3
"""Share of ops, or of weights, that a plan may lack of a model that is bound to it."""


def check_weights(model: Any, plan: Plan) -> None:
    """Raises :class:`UsageError` for a built model most of whose weights the plan has not."""
    weights = [weight for weight in keras_variables(model) if weight.trainable]
    unknown = [weight.path for weight in weights if weight.path not in plan.variables]
    if len(unknown) > MOST_UNKNOWN * len(weights):
        raise UsageError(
            f"the plan was made for another model: {len(unknown):,} of the {len(weights):,} "
            f"weights of {model.name!r} are not in it, such as {unknown[0]!r}"
        )


def check_model(model: Any, *, compiled: bool) -> None:
    """Raises :class:`UsageError` for a model that cannot be bound; ``compiled`` if it has to be."""
    if compiled and not (is_compiled(model) and getattr(model, "optimizer", None)):
        if not callable(getattr(model, "compile", None)):
            raise UsageError(f"bind takes the Keras model of the plan, got {model!r}")
        raise UsageError(
            f"{model.name!r} is not a compiled Keras model: call model.compile first, or, for "
            "inference, bind what placer.auto returns"
        )
    if model.run_eagerly:
        raise UsageError(
            f"{model.name!r} is compiled with run_eagerly=True: eager ops have no placement; "
            "compile it without"
        )
    if not isinstance(model.distribute_strategy, type(tf.distribute.get_strategy())):
        raise UsageError(
            f"{model.name!r} was built under a tf.distribute strategy, which copies its variables "
            "to several devices itself: build it without"
        )
