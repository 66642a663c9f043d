"""Code that replicas and micro-batches share: a part of a batch run forward and backward, and what
the parts give made one again."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2

from placer.errors import UsageError
from placer.extraction.graph_defs.op_definitions import DEVICES_ATTRIBUTE
from placer.graph.op_types import LOOPS
from placer.strategies.gradients import Pairs, apply_gradients

REDUCTIONS = ("mean", "sum")
COMBINATIONS = ("concat", "mean", "sum")

HOST = "/device:CPU:0"
"""Where feeds arrive: batches are divided there, and joined again."""

Function = Callable[..., Any]
"""From the tensors of a batch to a loss, or (loss, outputs)."""

Clip = Callable[[list[Any]], list[Any]] | None
"""From the averaged gradients to those to apply."""


class DividedStep:
    """A step in parts: what each part runs, and how the parts become one step again; see
    :func:`placer.strategies.replicas.data_parallel`.  Raises :class:`UsageError` for an unknown
    word."""

    def __init__(
        self,
        function: Function,
        optimizer: Any,
        variables: Sequence[Any] | None,
        reduction: str,
        clip: Clip,
        outputs: Any,
    ) -> None:
        _require_word(reduction, REDUCTIONS, "reduction")
        for word in tf.nest.flatten(outputs):
            _require_word(word, COMBINATIONS, "outputs")
        self.run, self._optimizer, self.variables = converted(function), optimizer, variables
        self.reduction, self.clip, self.outputs = reduction, clip, outputs

    @property
    def optimizer(self) -> Any:
        """The optimizer that updates once; ``None`` where there is nothing to train."""
        return self._optimizer

    @property
    def trains(self) -> bool:
        """Whether parts have gradients, which update once; else they have outputs only."""
        return self.optimizer is not None

    def backward(self, part: tuple[Any, ...]) -> tuple[Any, Any, Pairs]:
        """Loss, outputs and gradients of one part; see :func:`run_backward`."""
        return run_backward(self.run, part, self.variables)

    def shares(self, weights: Sequence[Any]) -> Sequence[Any]:
        """Returns the weight of each part's gradients: its share of the examples, ``None`` for
        one."""
        return weights if self.reduction == "mean" else [None] * len(weights)

    def update(
        self, losses: Sequence[Any], outputs: Sequence[Any], pairs: Pairs, weights: Sequence[Any]
    ) -> Any:
        """The loss of the whole batch, or (loss, outputs), once the gradients are applied."""
        apply_gradients(self.optimizer, pairs, self.clip)
        loss = combine(self.reduction, losses, weights)
        return loss if outputs[0] is None else (loss, combine(self.outputs, outputs, weights))


def converted(function: Function) -> Function:
    """``function`` with its Python control flow read by AutoGraph, as in a ``tf.function``."""
    autograph = tf.__internal__.autograph
    found: Function = autograph.tf_convert(function, autograph.control_status_ctx())
    return found


def traced(step: Function, input_signature: Sequence[Any] | None) -> Any:
    """The ``tf.function`` of a step whose user code is converted already; XLA would erase
    placement."""
    return tf.function(step, autograph=False, input_signature=input_signature, jit_compile=False)


def run_backward(
    function: Function, part: tuple[Any, ...], variables: Sequence[Any] | None
) -> tuple[Any, Any, Pairs]:
    """Loss, outputs (``None`` if there are none) and (variable, gradient) pairs of one part.

    ``variables`` are by default all trainable ones that are read.  Raises :class:`UsageError` for
    a loss that is no scalar or depends on no variable.
    """
    with tf.GradientTape() as tape:
        found = function(*part)
        loss, outputs = found if isinstance(found, tuple) else (found, None)
    if loss.shape.rank not in (0, None):
        raise UsageError(
            f"the loss has shape {loss.shape}; give a scalar, such as its mean over the examples"
        )
    wanted = list(tape.watched_variables() if variables is None else variables)
    if not wanted:
        raise UsageError("the loss depends on no trainable variable: nothing to train")
    return loss, outputs, list(zip(wanted, tape.gradient(loss, wanted), strict=True))


def shares_of(sizes: Sequence[Any]) -> list[Any]:
    """The share of the examples that each part has (float32)."""
    total = tf.cast(tf.add_n([tf.convert_to_tensor(size) for size in sizes]), tf.float32)
    return [tf.cast(size, tf.float32) / total for size in sizes]


def combine(how: Any, found: Sequence[Any], weights: Sequence[Any]) -> Any:
    """One structure out of those of all parts."""
    with tf.device(HOST):
        if isinstance(how, str):
            return tf.nest.map_structure(
                lambda *values: _combined(how, values, weights), *found, expand_composites=False
            )
        return tf.nest.map_structure(
            lambda word, *values: _combined(word, values, weights), how, *found
        )


def _combined(how: str, values: Sequence[Any], weights: Sequence[Any]) -> Any:
    if how == "concat":
        if any(getattr(value, "shape", None) == () for value in values):
            raise UsageError(
                "a scalar output cannot be concatenated along the batch: give outputs='mean' or "
                "'sum'; for several outputs, give a structure like theirs with 'concat', 'mean' "
                "or 'sum' in place of each"
            )
        return tf.concat(values, axis=0)
    if how == "sum":
        return tf.add_n(list(values))
    scaled = [value * tf.cast(w, value.dtype) for value, w in zip(values, weights, strict=True)]
    return tf.add_n(scaled)


@contextmanager
def variables_free(own: Sequence[Any] = ()) -> Iterator[None]:
    """Ops that hold or touch a variable ask for no device: it goes where the plan puts it.

    What touches none but its replica's ``own`` ones (captured handles) stays in the replica.
    """
    known = {id(handle) for handle in own}

    def free(op: Any) -> str:
        handles = [tensor for tensor in op.inputs if tensor.dtype == tf.resource]
        if handles and all(id(handle) in known for handle in handles):
            return str(op.device)
        return "" if _touches_variable(op) else str(op.device)

    with tf.compat.v1.device(free):
        yield


def _touches_variable(op: Any) -> bool:
    return any(tensor.dtype == tf.resource for tensor in (*op.inputs, *op.outputs))


def ask_for_one(op: Any, devices: Sequence[str]) -> None:
    """Marks ``op`` as one that goes to one of ``devices``, unless it touches a variable.

    Loops do nevertheless: they are given the values of the variables that they read.
    """
    if not _touches_variable(op) or op.type in LOOPS:
        names = "|".join(devices).encode()
        op._set_attr(DEVICES_ATTRIBUTE, attr_value_pb2.AttrValue(s=names))


def _require_word(word: str, words: Sequence[str], name: str) -> None:
    """Raises :class:`UsageError` with what ``name`` can be if ``word`` is none of ``words``."""
    if word not in words:
        raise UsageError(f"{name} is {word!r}; it can be {', '.join(words)}")
