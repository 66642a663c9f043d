"""Micro-batches: one batch in several pieces, one after the other on the same devices.

The pieces take turns: no op of a piece starts before the piece before it has ended, so only one
piece's activations are in memory at a time.  A training step adds its gradients up and updates
once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from placer.errors import UsageError
from placer.strategies.batches import count_examples, split_batch, split_sizes
from placer.strategies.gradients import Pairs, average_gradients
from placer.strategies.parts import (
    REDUCTIONS,
    Function,
    combine,
    converted,
    known_combinations,
    known_word,
    run_backward,
)


def micro_batches(
    function: Function,
    pieces: int,
    *,
    optimizer: Any = None,
    variables: Sequence[Any] | None = None,
    reduction: str = "mean",
    clip: Callable[[list[Any]], list[Any]] | None = None,
    outputs: Any = "concat",
    input_signature: Sequence[Any] | None = None,
) -> Any:
    """A ``tf.function`` that runs ``function`` on ``pieces`` parts of the batch, one at a time.

    Arguments as for :func:`~placer.strategies.towers.data_parallel`, the outputs and updates too:
    those of the whole batch, but for the order in which sums are taken, for batch statistics, and
    for random ops.  The gradients that are kept between the pieces are those of the variables.

    Raises :class:`UsageError` for less than one piece, an unknown word, or a batch that is known to
    be smaller than the number of pieces (``tf.errors.InvalidArgumentError`` if that shows when the
    step runs).
    """
    import tensorflow as tf

    if pieces < 1:
        raise UsageError(f"a batch cannot be run in {pieces} pieces; one or more")
    known_word(reduction, REDUCTIONS, "reduction")
    known_combinations(outputs)
    run = converted(function)

    def step(*batch: Any) -> Any:
        sizes = split_sizes(count_examples(batch), pieces)
        total = tf.cast(tf.add_n([tf.convert_to_tensor(size) for size in sizes]), tf.float32)
        weights = [tf.cast(size, tf.float32) / total for size in sizes]
        parts = split_batch(batch, sizes)
        if optimizer is None:
            return combine(outputs, _forward(run, parts), weights)
        shares = weights if reduction == "mean" else [None] * pieces
        losses, given, pairs = _backward(run, parts, variables, shares)
        kept, averaged = [variable for variable, _ in pairs], [gradient for _, gradient in pairs]
        if clip is not None:
            averaged = clip(averaged)
        optimizer.apply_gradients(zip(averaged, kept, strict=True))
        loss = combine(reduction, losses, weights)
        return loss if given[0] is None else (loss, combine(outputs, given, weights))

    return tf.function(step, autograph=False, input_signature=input_signature, jit_compile=False)


def _forward(run: Function, parts: Sequence[tuple[Any, ...]]) -> list[Any]:
    """What ``run`` gives for each part."""
    found: list[Any] = []
    for number, part in enumerate(parts):
        with _after(number, found[-1:]):
            found.append(run(*part))
    return found


def _backward(
    run: Function, parts: Sequence[tuple[Any, ...]], variables: Any, shares: Sequence[Any]
) -> tuple[list[Any], list[Any], Pairs]:
    """Losses and outputs of the parts, and their gradients, added up part by part."""
    losses, outputs, total = list[Any](), list[Any](), Pairs()
    for number, (part, share) in enumerate(zip(parts, shares, strict=True)):
        kept = [gradient for _, gradient in total]
        with _after(number, [losses[-1:], outputs[-1:], kept]):
            loss, output, pairs = run_backward(run, part, variables)
            total = average_gradients([total, pairs], [None, share])
        losses.append(loss)
        outputs.append(output)
    return losses, outputs, total


@contextmanager
def _after(number: int, before: Any) -> Iterator[None]:
    """Ops of piece ``number`` wait for all tensors in ``before``."""
    import tensorflow as tf

    values = tf.nest.flatten(before, expand_composites=True)
    tensors = [value for value in values if isinstance(value, tf.Tensor)]
    with tf.name_scope(f"piece_{number}"), tf.control_dependencies(tensors):
        yield
