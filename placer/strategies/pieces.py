"""Micro-batches: one batch in several pieces, of which only so many are in flight at a time.

With one in flight the pieces take turns: no op of a piece starts before the piece before it has
ended, so only one piece's activations are in memory.  With more, and the layers on several devices,
they form a pipeline: while a device works on one piece, the next device works on the piece before.
A training step adds its gradients up and updates once.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from placer.errors import UsageError, require_count
from placer.graph.name_scopes import PIECE
from placer.strategies.batches import count_examples, split_batch, split_sizes
from placer.strategies.gradients import Pairs, average_gradients
from placer.strategies.parts import HOST, Clip, DividedStep, Function, combine, shares_of, traced


def micro_batches(
    function: Function,
    pieces: int,
    *,
    in_flight: int = 1,
    optimizer: Any = None,
    variables: Sequence[Any] | None = None,
    reduction: str = "mean",
    clip: Clip = None,
    outputs: Any = "concat",
    input_signature: Sequence[Any] | None = None,
) -> Any:
    """A ``tf.function`` that runs ``function`` on ``pieces`` parts of the batch, ``in_flight`` of
    them at a time.

    Other arguments as for :func:`~placer.strategies.replicas.data_parallel`.  Outputs and updates
    are those of the whole batch, but for the order in which sums are taken, for batch statistics,
    and for random ops.  The gradients that are kept between the pieces are those of the variables.

    Raises :class:`UsageError` for less than one piece, an unknown word, or a batch that is known to
    be smaller than the number of pieces (``tf.errors.InvalidArgumentError`` if that shows when the
    step runs).
    """
    if not callable(function):
        raise UsageError(f"function is {function!r}; give one that takes a part of the batch")
    require_count("pieces", pieces)
    require_count("in_flight", in_flight)
    divided = DividedStep(function, optimizer, variables, reduction, clip, outputs)

    return traced(in_pieces(divided, pieces, in_flight), input_signature)


def in_pieces(divided: DividedStep, pieces: int, in_flight: int) -> Function:
    """The whole step, as it is traced: ``divided`` in so many pieces."""

    def step(*batch: Any) -> Any:
        with tf.device(HOST):
            sizes = split_sizes(count_examples(batch), pieces)
            weights = shares_of(sizes)
        parts = split_batch(batch, sizes)
        if not divided.trains:
            found = _forward(divided.run, parts, pieces, in_flight)
            return combine(divided.outputs, found, weights)
        return divided.update(*_backward(divided, parts, weights, in_flight), weights)

    return step


def _forward(
    run: Function, parts: Iterator[tuple[Any, ...]], pieces: int, in_flight: int
) -> list[Any]:
    """Returns the result of ``run`` for each part."""
    found: list[Any] = []
    while len(found) < pieces:
        with _piece(found, in_flight):
            found.append(run(*_next(parts)))
    return found


def _backward(
    step: DividedStep, parts: Iterator[tuple[Any, ...]], weights: Sequence[Any], in_flight: int
) -> tuple[list[Any], list[Any], Pairs]:
    """Losses and outputs of the parts, and their gradients, added up part by part."""
    losses, outputs, total, ended = list[Any](), list[Any](), Pairs(), list[Any]()
    for share in step.shares(weights):
        with _piece(ended, in_flight):
            loss, output, pairs = step.backward(_next(parts))
            total = average_gradients([total, pairs], [None, share])
        losses.append(loss)
        outputs.append(output)
        ended.append((loss, output, [gradient for _, gradient in total]))
    return losses, outputs, total


def _next(parts: Iterator[tuple[Any, ...]]) -> tuple[Any, ...]:
    """The next part, cut out when its turn comes and not before."""
    with tf.device(HOST):
        return next(parts)


@contextmanager
def _piece(ended: Sequence[Any], in_flight: int) -> Iterator[None]:
    """The ops of the next piece: they wait for the results of the one ``in_flight`` before it."""
    before = ended[len(ended) - in_flight] if len(ended) >= in_flight else ()
    values = tf.nest.flatten(before, expand_composites=True)
    tensors = [value for value in values if isinstance(value, tf.Tensor)]
    with tf.name_scope(f"{PIECE}_{len(ended)}"), tf.control_dependencies(tensors):
        yield
