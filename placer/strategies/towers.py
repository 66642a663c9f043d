"""Data-parallel towers: the batch is split over devices, one replica of the step on each.

The step that comes out is one ``tf.function``: every op of a tower asks for the tower's device,
variables and optimizer ask for none.  TensorFlow runs it as it is; ``placer.place`` finds where the
variables go with the least transfer, and ``apply`` and ``verify`` treat it like any other program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cost_models.device_names import canonical, full_name
from placer.errors import UsageError
from placer.strategies.batches import count_examples, split_batch, split_sizes
from placer.strategies.gradients import average_gradients
from placer.strategies.parts import (
    HOST,
    REDUCTIONS,
    combine,
    converted,
    known_combinations,
    known_word,
    run_backward,
    variables_free,
)


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
        function=converted(function),
        devices=_known_devices(devices),
        optimizer=optimizer,
        variables=variables,
        reduction=known_word(reduction, REDUCTIONS, "reduction"),
        clip=clip,
        outputs=known_combinations(outputs),
        split=split,
    )

    def step(*batch: Any) -> Any:
        with variables_free():
            return _run(request, batch)

    return tf.function(step, autograph=False, input_signature=input_signature, jit_compile=False)


def _run(request: _Request, batch: tuple[Any, ...]) -> Any:
    """The whole step, as it is traced."""
    import tensorflow as tf

    parts, weights = _parts(request, batch)
    if request.optimizer is None:
        found = [_forward(request, device, part) for device, part in _towers(request, parts)]
        return combine(request.outputs, found, weights)
    losses, outputs, gradients = [], [], []
    for device, part in _towers(request, parts):
        with tf.name_scope(_scope(device)), tf.device(device):
            loss, output, gradient = run_backward(request.function, part, request.variables)
        losses.append(loss)
        outputs.append(output)
        gradients.append(gradient)
    shares = weights if request.reduction == "mean" else [None] * len(parts)
    pairs = average_gradients(gradients, shares)
    kept, averaged = [variable for variable, _ in pairs], [gradient for _, gradient in pairs]
    if request.clip is not None:
        averaged = request.clip(averaged)
    request.optimizer.apply_gradients(zip(averaged, kept, strict=True))
    loss = combine(request.reduction, losses, weights)
    if outputs[0] is None:
        return loss
    return loss, combine(request.outputs, outputs, weights)


def _parts(request: _Request, batch: tuple[Any, ...]) -> tuple[list[tuple[Any, ...]], list[Any]]:
    """The arguments of every tower, and its share of the examples (float32)."""
    import tensorflow as tf

    count = len(request.devices)
    with tf.device(HOST):
        if request.split:
            sizes = split_sizes(count_examples(batch), count)
            parts = list(split_batch(batch, sizes))
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


def _scope(device: str) -> str:
    return f"tower_{device.rpartition('device:')[2].replace(':', '_')}"


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
