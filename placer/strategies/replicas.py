"""Data-parallel replicas of a step: each device runs it on its part of the batch.

The step that comes out is one ``tf.function``: every op of a replica asks for its device (or for
one out of its group of devices), variables and optimizer ask for none.  TensorFlow runs it as
it is; ``placer.place`` finds where the variables go with the least transfer, and ``apply`` and
``verify`` treat it like any other program.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import tensorflow as tf

from cost_models.device_names import canonical, full_name
from placer.errors import UsageError
from placer.graph.op_types import LOOPS
from placer.strategies.batches import count_examples, sizes_by, split_batch, split_sizes
from placer.strategies.gradients import average_gradients
from placer.strategies.parts import (
    HOST,
    Clip,
    DividedStep,
    Function,
    ask_for_one,
    combine,
    shares_of,
    traced,
    variables_free,
)


def data_parallel(
    function: Callable[..., Any],
    devices: Sequence[str | int | Sequence[str | int]],
    *,
    optimizer: Any = None,
    variables: Sequence[Any] | None = None,
    reduction: str = "mean",
    clip: Clip = None,
    outputs: Any = "concat",
    split: bool = True,
    input_signature: Sequence[Any] | None = None,
) -> Any:
    """A ``tf.function`` that runs ``function`` on every one of ``devices``, each with its part of
    the batch.

    Where an entry of ``devices`` is itself a sequence, a replica has those devices to itself, and
    ``placer.place`` distributes its ops among them: replicas of a placement (a hybrid).

    Without ``optimizer``, ``function(*batch)`` gives tensors (any structure), combined as
    ``outputs`` says: ``"concat"`` along the batch, ``"mean"`` weighted by examples, or ``"sum"``;
    one word for all of them, or one per output in the same structure.

    With ``optimizer`` (anything with ``apply_gradients``), ``function(*batch)`` gives a scalar
    loss, or (loss, outputs), and the step gives the same for the whole batch.  ``reduction`` says
    what the loss is over its examples: ``"mean"`` (gradients and losses are averaged, weighted by
    the examples of each replica) or ``"sum"``.  Gradients are those of ``variables`` (by default
    all trainable ones that a replica reads); dense and sparse (``tf.IndexedSlices``) ones are
    averaged in kind, a replica without a gradient counts as zero.  ``clip`` gets the averaged
    gradients and returns those to apply.  Updates are synchronous: all replicas read the same
    weights.

    Every tensor in the arguments is split along its first dimension, ragged and sparse tensors by
    rows; sizes differ by at most one, and need not be known before the step runs.  Without
    ``split`` each argument is a sequence with one entry per replica.  Batch statistics are those of
    each replica's part.  A loop that reads a variable inside (a recurrent layer) is kept by
    TensorFlow where the variable is; ``placer.apply`` gives it the value instead, so that it runs
    in its replica.

    Raises :class:`UsageError` for less than two devices, an unknown word, or a batch that is known
    to be smaller than the number of replicas (``tf.errors.InvalidArgumentError`` if that shows when
    the step runs).
    """
    divided = DividedStep(function, optimizer, variables, reduction, clip, outputs)
    return traced(side_by_side(divided, devices, split=split), input_signature)


def side_by_side(
    divided: DividedStep,
    devices: Sequence[str | int | Sequence[str | int]],
    *,
    split: bool = True,
    speeds: Sequence[float] | None = None,
) -> Function:
    """The whole step, as it is traced: ``divided`` in a replica on every one of ``devices``.

    The parts are in proportion to the ``speeds`` of the replicas; without them they are as even as
    can be.
    """
    groups = known_groups(devices)

    def step(*batch: Any) -> Any:
        with variables_free():
            parts, weights = parts_of(batch, len(groups), speeds, split=split)
            return _run(divided, groups, parts, weights)

    return step


def _run(
    divided: DividedStep,
    groups: Sequence[tuple[str, ...]],
    parts: Sequence[tuple[Any, ...]],
    weights: Sequence[Any],
) -> Any:
    """The whole step, as it is traced."""
    # inference: every replica runs its part
    if not divided.trains:
        found = []
        for group, part in zip(groups, parts, strict=True):
            with in_replica(group):
                found.append(divided.run(*part))
        return combine(divided.outputs, found, weights)
    # training: every replica has its gradients, and the average of them updates once
    losses, outputs, gradients = [], [], []
    for group, part in zip(groups, parts, strict=True):
        with in_replica(group):
            loss, output, pairs = divided.backward(part)
        losses.append(loss)
        outputs.append(output)
        gradients.append(pairs)
    averaged = average_gradients(gradients, divided.shares(weights))
    return divided.update(losses, outputs, averaged, weights)


def parts_of(
    batch: tuple[Any, ...], count: int, speeds: Sequence[float] | None, *, split: bool
) -> tuple[list[tuple[Any, ...]], list[Any]]:
    """The arguments of every replica, and its share of the examples."""
    with tf.device(HOST):
        if split:
            examples = count_examples(batch)
            sizes = split_sizes(examples, count) if speeds is None else sizes_by(examples, speeds)
            parts = list(split_batch(batch, sizes))
        else:
            parts = _given_parts(batch, count)
            sizes = [count_examples(part) for part in parts]
        return parts, shares_of(sizes)


def _given_parts(batch: tuple[Any, ...], count: int) -> list[tuple[Any, ...]]:
    for number, argument in enumerate(batch):
        found = len(argument) if isinstance(argument, list | tuple) else None
        if found != count:
            raise UsageError(
                f"without split, argument {number} must be a sequence with one entry for each of "
                f"{count} replicas; it {'is not one' if found is None else f'has {found}'}"
            )
    return list(zip(*batch, strict=True))


@contextmanager
def in_replica(group: tuple[str, ...]) -> Iterator[None]:
    """The ops of a replica: on its device, or asking for one of its devices."""
    short = [device.rpartition("device:")[2] for device in group]
    scope = tf.name_scope("_".join(["replica", *(name.replace(":", "_") for name in short)]))
    graph = tf.compat.v1.get_default_graph()
    known = len(graph.get_operations())
    with scope, tf.device(group[0]) if len(group) == 1 else nullcontext():
        yield
    for op in graph.get_operations()[known:]:
        if op.type in LOOPS or (len(group) > 1 and op.type != "Placeholder"):
            ask_for_one(op, short)  # what is captured, a placeholder, comes from outside


def known_groups(devices: Sequence[Any]) -> tuple[tuple[str, ...], ...]:
    """The full names of the devices of every replica; raises :class:`UsageError` as
    :func:`data_parallel` does."""
    try:
        groups = [
            [canonical(name) for name in (entry if isinstance(entry, list | tuple) else [entry])]
            for entry in devices
        ]
    except ValueError as error:
        raise UsageError(str(error)) from error
    if len(groups) < 2 or not all(groups):
        raise UsageError(f"data parallelism requires two devices or more, got {len(groups)}")
    names = [name for group in groups for name in group]
    if len(set(names)) < len(names):
        raise UsageError(f"a device is named twice: {', '.join(names)}")
    return tuple(tuple(full_name(name) for name in group) for group in groups)
