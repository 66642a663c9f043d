"""Data-parallel towers: the batch is split over devices, one replica of the step on each.

The step that comes out is one ``tf.function``: every op of a tower asks for the tower's device (or
for one out of its group of devices), variables and optimizer ask for none.  TensorFlow runs it as
it is; ``placer.place`` finds where the variables go with the least transfer, and ``apply`` and
``verify`` treat it like any other program.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from cost_models.device_names import canonical, full_name
from placer.errors import UsageError
from placer.graph.op_types import LOOPS
from placer.strategies.batches import count_examples, split_batch, split_sizes
from placer.strategies.gradients import average_gradients
from placer.strategies.parts import (
    HOST,
    REDUCTIONS,
    ask_for_one,
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
    groups: tuple[tuple[str, ...], ...]
    optimizer: Any
    variables: Sequence[Any] | None
    reduction: str
    clip: Callable[[list[Any]], list[Any]] | None
    outputs: Any
    split: bool


def data_parallel(
    function: Callable[..., Any],
    devices: Sequence[str | int | Sequence[str | int]],
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

    Where an entry of ``devices`` is itself a sequence, a tower has those devices to itself, and
    ``placer.place`` distributes its ops among them: replicas of a placement (a hybrid).

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
    each tower's part.  A loop that reads a variable inside (a recurrent layer) is kept by
    TensorFlow where the variable is; ``placer.apply`` gives it the value instead, so that it runs
    in its tower.

    Raises :class:`UsageError` for less than two devices, an unknown word, or a batch that is known
    to be smaller than the number of towers (``tf.errors.InvalidArgumentError`` if that shows when
    the step runs).
    """
    import tensorflow as tf

    request = _Request(
        function=converted(function),
        groups=_known_groups(devices),
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


def asynchronous_towers(
    function: Callable[..., Any],
    devices: Sequence[str | int | Sequence[str | int]],
    *,
    optimizer: Any,
    variables: Sequence[Any] | None = None,
    clip: Callable[[list[Any]], list[Any]] | None = None,
    input_signature: Sequence[Any] | None = None,
) -> tuple[Any, ...]:
    """One ``tf.function`` for every one of ``devices``, each a training step of its own on the same
    variables: call each from its own thread, with its own batches.

    Arguments as for :func:`data_parallel`; a tower gives its loss, or (loss, outputs).  Nothing
    waits for another tower, so a gradient may be of weights that up to ``len(devices) - 1`` other
    updates have changed since they were read (its staleness), and no two runs are alike: a
    ``UserWarning`` says so.  A smaller learning rate is the usual remedy (X. Lian et al., NeurIPS
    2015).  Raises :class:`UsageError` as :func:`data_parallel` does.
    """
    import tensorflow as tf

    groups, run = _known_groups(devices), converted(function)
    warnings.warn(
        f"{len(groups)} towers update without waiting for each other: gradients may be up to "
        f"{len(groups) - 1} updates old, and no two runs are alike",
        stacklevel=2,
    )
    if variables is not None and hasattr(optimizer, "build"):
        optimizer.build(variables)  # once, and not in two threads

    def tower(group: tuple[str, ...]) -> Any:
        def step(*batch: Any) -> Any:
            with variables_free():
                with _tower(group):
                    loss, output, pairs = run_backward(run, batch, variables)
                pairs = average_gradients([pairs], [None])
                kept, found = [each for each, _ in pairs], [gradient for _, gradient in pairs]
                found = found if clip is None else clip(found)
                optimizer.apply_gradients(zip(found, kept, strict=True))
            return loss if output is None else (loss, output)

        return tf.function(
            step, autograph=False, input_signature=input_signature, jit_compile=False
        )

    return tuple(tower(group) for group in groups)


def _run(request: _Request, batch: tuple[Any, ...]) -> Any:
    """The whole step, as it is traced."""
    parts, weights = _parts(request, batch)
    if request.optimizer is None:
        found = [_forward(request, group, part) for group, part in _towers(request, parts)]
        return combine(request.outputs, found, weights)
    losses, outputs, gradients = [], [], []
    for group, part in _towers(request, parts):
        with _tower(group):
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

    count = len(request.groups)
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
) -> Iterator[tuple[tuple[str, ...], tuple[Any, ...]]]:
    return zip(request.groups, parts, strict=True)


def _forward(request: _Request, group: tuple[str, ...], part: tuple[Any, ...]) -> Any:
    with _tower(group):
        return request.function(*part)


@contextmanager
def _tower(group: tuple[str, ...]) -> Iterator[None]:
    """The ops of a tower: on its device, or asking for one of its devices."""
    import tensorflow as tf

    short = [device.rpartition("device:")[2] for device in group]
    scope = tf.name_scope("_".join(["tower", *(name.replace(":", "_") for name in short)]))
    graph = tf.compat.v1.get_default_graph()
    known = len(graph.get_operations())
    with scope, tf.device(group[0]) if len(group) == 1 else nullcontext():
        yield
    for op in graph.get_operations()[known:]:
        if op.type in LOOPS or (len(group) > 1 and op.type != "Placeholder"):
            ask_for_one(op, short)  # what is captured, a placeholder, comes from outside


def _known_groups(devices: Sequence[Any]) -> tuple[tuple[str, ...], ...]:
    try:
        groups = [
            [canonical(name) for name in (entry if isinstance(entry, list | tuple) else [entry])]
            for entry in devices
        ]
    except ValueError as error:
        raise UsageError(str(error)) from error
    if len(groups) < 2 or not all(groups):
        raise UsageError(f"data parallelism needs two devices or more; there are {len(groups)}")
    names = [name for group in groups for name in group]
    if len(set(names)) < len(names):
        raise UsageError(f"a device is named twice: {', '.join(names)}")
    return tuple(tuple(full_name(name) for name in group) for group in groups)
