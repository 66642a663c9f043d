"""A batch of known or unknown size cut along its first dimension, into parts as even as can be."""

from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from placer.errors import UsageError


def count_examples(batch: Any) -> Any:
    """How many examples are in a structure of tensors: an int where it is known, else a tensor.

    Raises :class:`UsageError` for scalars, for no tensor at all, and for sizes that differ.
    """
    tensors = _tensors(batch)
    if not tensors:
        raise UsageError("there is no batch to split: the step was given no tensor")
    for tensor in tensors:
        if tensor.shape.rank == 0:
            raise UsageError(
                f"{getattr(tensor, 'name', tensor)} is a scalar and cannot be split along the "
                "batch; take it in from outside the function"
            )
    leading = (t.shape.as_list()[0] for t in tensors if t.shape.rank is not None)
    known = {size for size in leading if size is not None}
    if len(known) > 1:
        raise UsageError(
            f"the tensors of the batch have {' and '.join(map(str, sorted(known)))} examples; "
            "all must have the same number"
        )
    if known:
        return int(known.pop())
    first = tensors[0]
    if isinstance(first, tf.SparseTensor):
        return tf.cast(first.dense_shape[0], tf.int32)
    if isinstance(first, tf.RaggedTensor):
        return tf.cast(first.nrows(), tf.int32)
    return tf.shape(first)[0]


def split_sizes(examples: Any, count: int) -> list[Any]:
    """The sizes of ``count`` parts, the first ones larger by one where it does not come out even.

    Raises :class:`UsageError` if the examples are known to be fewer than the parts; else an
    assertion in the graph says so when it runs.
    """
    if isinstance(examples, int):
        if examples < count:
            raise UsageError(
                f"a batch of {examples} cannot be split into {count} parts: use at most "
                f"{max(1, examples)}, or a batch of at least {count}"
            )
        return [examples // count + (number < examples % count) for number in range(count)]
    check = tf.debugging.assert_greater_equal(
        examples, count, message=f"the batch is smaller than the number of parts, {count}"
    )
    with tf.control_dependencies([check] if check is not None else []):
        even, rest = examples // count, examples % count
        return [even + tf.cast(rest > number, tf.int32) for number in range(count)]


def sizes_by(examples: Any, speeds: Sequence[float]) -> list[Any]:
    """The sizes of parts in proportion to ``speeds``, one example each at least.

    Each part ends where the speeds so far say, to the nearest example.  Errors as for
    :func:`split_sizes`.
    """
    count, total, done = len(speeds), sum(speeds), 0.0
    split_sizes(examples, count)  # says if there are too few examples
    sizes, start = list[Any](), 0
    for number, speed in enumerate(speeds):
        done += speed
        least, most = start + 1, examples - (count - 1 - number)
        if isinstance(examples, int):
            end = min(max(round(examples * done / total), least), most)
        else:
            ideal = tf.cast(tf.round(tf.cast(examples, tf.float64) * (done / total)), tf.int32)
            end = tf.minimum(tf.maximum(ideal, least), most)
        sizes.append(end - start)
        start = end
    return sizes


def split_batch(batch: Any, sizes: Sequence[Any]) -> Iterator[Any]:
    """The batch in parts of the given sizes, each with the same structure, one at a time."""
    start: Any = 0
    for size in sizes:
        yield tf.nest.map_structure(
            lambda value, begin=start, length=size: _rows(value, begin, length), batch
        )
        start = start + size


def _rows(value: Any, start: Any, size: Any) -> Any:
    if not _is_tensor(value):
        return value
    if isinstance(value, tf.SparseTensor):
        shape = value.dense_shape
        begin = tf.concat([[tf.cast(start, tf.int64)], tf.zeros_like(shape[1:])], axis=0)
        length = tf.concat([[tf.cast(size, tf.int64)], shape[1:]], axis=0)
        return tf.sparse.slice(value, begin, length)
    return value[start : start + size]


def _tensors(batch: Any) -> list[Any]:
    return [value for value in tf.nest.flatten(batch) if _is_tensor(value)]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, tf.Tensor | tf.SparseTensor | tf.RaggedTensor)
