"""Data-parallel towers: the batch is split over devices, one replica of the step on each.

The step that comes out is one ``tf.function``: every op of a tower asks for the tower's device,
variables and optimizer ask for none.  TensorFlow runs it as it is; ``placer.place`` finds where the
variables go with the least transfer, and ``apply`` and ``verify`` treat it like any other program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from cost_models.device_names import canonical, full_name
from placer.errors import UsageError
from placer.strategies.batches import count_examples, split_batch, split_sizes
from placer.strategies.gradients import average_gradients

REDUCTIONS = ("mean", "sum")
COMBINATIONS = ("concat", "mean", "sum")


@dataclass(frozen=True, kw_only=True)
class _Request:
    """What every tower runs, and how the towers become one step again."""

    function: Callable[..., Any]
    devices: tuple[str, ...]
    optimizer: Any
    variables: Sequence[Any] | None
    reduction: str
    clip: Callable[[list[Any]], list[Any]] | None
    outputs: Any
    split: bool


def data_parallel(
    function: Callable[..., Any],
    devices: Sequence[str | int],
    *,
    optimizer: Any = None,
    variables: Sequence[Any] | None = None,
    reduction: str = "mean",
    clip: Callable[[list[Any]], list[Any]] | None = None,
    outputs: Any = "concat",
    split: bool = True,
    input_signature: Sequence[Any] | None = None,
) -> Any:
    """A ``tf.function`` that runs ``function`` on every one of ``devices``, each with its part of
    the batch.

    Without ``optimizer``, ``function(*batch)`` gives tensors (any structure), combined as
    ``outputs`` says: ``"concat"`` along the batch, ``"mean"`` weighted by examples, or ``"sum"``;
    one word for all of them, or one per output in the same structure.

    With ``optimizer`` (anything with ``apply_gradients``), ``function(*batch)`` gives a scalar
    loss, or (loss, outputs), and the step gives the same for the whole batch.  ``reduction`` says
    what the loss is over its examples: ``"mean"`` (gradients and losses are averaged, weighted by
    the examples of each tower) or ``"sum"``.  Gradients are those of ``variables`` (by default all
    trainable ones that a tower reads); dense and sparse (``tf.IndexedSlices``) ones are averaged in
    kind, a tower without a gradient counts as zero.  ``clip`` gets the averaged gradients and
    returns those to apply.  Updates are synchronous: all towers read the same weights.

    Every tensor in the arguments is split along its first dimension, ragged and sparse tensors by
    rows; sizes differ by at most one, and need not be known before the step runs.  Without
    ``split`` each argument is a sequence with one entry per tower.  Batch statistics are those of
    each tower's part.  A loop that reads a variable inside (a recurrent layer) runs where the
    variable is, whatever its tower: TensorFlow colocates the two.

    Raises :class:`UsageError` for less than two devices, an unknown word, or a batch that is known
    to be smaller than the number of towers (``tf.errors.InvalidArgumentError`` if that shows when
    the step runs).
    """
    import tensorflow as tf

    request = _Request(
        function=_converted(function),
        devices=_known_devices(devices),
        optimizer=optimizer,
        variables=variables,
        reduction=_known(reduction, REDUCTIONS, "reduction"),
        clip=clip,
        outputs=_known_combinations(outputs),
        split=split,
    )

    @tf.autograph.experimental.do_not_convert
    def step(*batch: Any) -> Any:
        with _variables_free():
            return _run(request, batch)

    return tf.function(step, input_signature=input_signature, jit_compile=False)


def _converted(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` with its Python control flow read by AutoGraph, as in a ``tf.function``."""
    import tensorflow as tf

    autograph = tf.__internal__.autograph
    converted: Callable[..., Any] = autograph.tf_convert(function, autograph.control_status_ctx())
    return converted


def _run(request: _Request, batch: tuple[Any, ...]) -> Any:
    """The whole step, as it is traced."""
    parts, weights = _parts(request, batch)
    if request.optimizer is None:
        found = [_forward(request, device, part) for device, part in _towers(request, parts)]
        return _combine(request.outputs, found, weights)
    losses, outputs, gradients = [], [], []
    for device, part in _towers(request, parts):
        loss, output, gradient = _backward(request, device, part)
        losses.append(loss)
        outputs.append(output)
        gradients.append(gradient)
    shares = weights if request.reduction == "mean" else [None] * len(parts)
    pairs = average_gradients(gradients, shares)
    kept, averaged = [variable for variable, _ in pairs], [gradient for _, gradient in pairs]
    if request.clip is not None:
        averaged = request.clip(averaged)
    request.optimizer.apply_gradients(zip(averaged, kept, strict=True))
    loss = _combine(request.reduction, losses, weights)
    if outputs[0] is None:
        return loss
    return loss, _combine(request.outputs, outputs, weights)


def _parts(request: _Request, batch: tuple[Any, ...]) -> tuple[list[tuple[Any, ...]], list[Any]]:
    """The arguments of every tower, and its share of the examples (float32)."""
    import tensorflow as tf

    count = len(request.devices)
    with tf.device("/device:CPU:0"):
        if request.split:
            sizes = split_sizes(count_examples(batch), count)
            parts = split_batch(batch, sizes)
        else:
            parts = _given_parts(batch, count)
            sizes = [count_examples(part) for part in parts]
        total = tf.cast(tf.add_n([tf.convert_to_tensor(size) for size in sizes]), tf.float32)
        return parts, [tf.cast(size, tf.float32) / total for size in sizes]


def _given_parts(batch: tuple[Any, ...], count: int) -> list[tuple[Any, ...]]:
    for number, argument in enumerate(batch):
        found = len(argument) if isinstance(argument, list | tuple) else None
        if found != count:
            raise UsageError(
                f"without split, argument {number} must be a sequence with one entry for each of "
                f"{count} towers; it is {'no sequence' if found is None else f'of {found}'}"
            )
    return list(zip(*batch, strict=True))


def _towers(
    request: _Request, parts: Sequence[tuple[Any, ...]]
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    return zip(request.devices, parts, strict=True)


def _forward(request: _Request, device: str, part: tuple[Any, ...]) -> Any:
    import tensorflow as tf

    with tf.name_scope(_scope(device)), tf.device(device):
        return request.function(*part)


def _backward(
    request: _Request, device: str, part: tuple[Any, ...]
) -> tuple[Any, Any, list[tuple[Any, Any]]]:
    """Loss, outputs (``None`` if there are none) and (variable, gradient) pairs of one tower."""
    import tensorflow as tf

    with tf.name_scope(_scope(device)), tf.device(device):
        with tf.GradientTape() as tape:
            found = request.function(*part)
            loss, outputs = found if isinstance(found, tuple) else (found, None)
        if loss.shape.rank not in (0, None):
            raise UsageError(
                f"the loss of a tower has shape {loss.shape}; give a scalar, such as its mean over "
                "the examples"
            )
        variables = list(
            tape.watched_variables() if request.variables is None else request.variables
        )
        if not variables:
            raise UsageError("the loss depends on no trainable variable: nothing to train")
        return loss, outputs, list(zip(variables, tape.gradient(loss, variables), strict=True))


def _scope(device: str) -> str:
    return f"tower_{device.rpartition('device:')[2].replace(':', '_')}"


def _combine(how: Any, found: Sequence[Any], weights: Sequence[Any]) -> Any:
    """One structure out of those of all towers."""
    import tensorflow as tf

    with tf.device("/device:CPU:0"):
        if isinstance(how, str):
            return tf.nest.map_structure(
                lambda *values: _combined(how, values, weights), *found, expand_composites=False
            )
        return tf.nest.map_structure(
            lambda word, *values: _combined(word, values, weights), how, *found
        )


def _combined(how: str, values: Sequence[Any], weights: Sequence[Any]) -> Any:
    import tensorflow as tf

    if how == "concat":
        if any(getattr(value, "shape", None) == () for value in values):
            raise UsageError(
                "a scalar output cannot be concatenated along the batch; say outputs='mean' or "
                "'sum' (one word per output in the same structure)"
            )
        return tf.concat(values, axis=0)
    if how == "sum":
        return tf.add_n(list(values))
    scaled = [value * tf.cast(w, value.dtype) for value, w in zip(values, weights, strict=True)]
    return tf.add_n(scaled)


@contextmanager
def _variables_free() -> Iterator[None]:
    """Ops that hold or touch a variable ask for no device: it goes where the plan puts it."""
    import tensorflow as tf

    def free(op: Any) -> str:
        touches = any(tensor.dtype == tf.resource for tensor in (*op.inputs, *op.outputs))
        return "" if touches else str(op.device)

    with tf.compat.v1.device(free):
        yield


def _known_devices(devices: Sequence[str | int]) -> tuple[str, ...]:
    try:
        names = [canonical(device) for device in devices]
    except ValueError as error:
        raise UsageError(str(error)) from error
    if len(names) < 2:
        raise UsageError(f"data parallelism needs two devices or more; there are {len(names)}")
    if len(set(names)) < len(names):
        raise UsageError(f"a device is named twice: {', '.join(names)}")
    return tuple(full_name(name) for name in names)


def _known(word: str, words: Sequence[str], name: str) -> str:
    if word not in words:
        raise UsageError(f"{name} is {word!r}; it can be {', '.join(words)}")
    return word


def _known_combinations(outputs: Any) -> Any:
    import tensorflow as tf

    for word in tf.nest.flatten(outputs):
        _known(word, COMBINATIONS, "outputs")
    return outputs
