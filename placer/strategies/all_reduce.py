"""Gradients of replicas joined by TensorFlow's collectives, every replica ending up with their sum.

TensorFlow runs the collective as a ring (``RingReducer`` of
``tensorflow/core/common_runtime/ring_reducer.cc``, NCCL between GPUs): in 2 (n - 1) rounds each of
n devices sends an n-th part to the next one (P. Patarasuk and X. Yuan, "Bandwidth optimal
all-reduce algorithms for clusters of workstations", doi:10.1016/j.jpdc.2008.09.002).

``CollectiveReduce`` is used, and not ``CollectiveReduceV2``: automatic control dependencies make
the V2 of one device wait for that of another one, which waits for it in the ring
(``ASYNC_STATEFUL_OPS`` of ``tensorflow/python/framework/auto_control_deps.py``).
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from placer.errors import UsageError
from placer.strategies.gradients import Pairs, scaled

MOST_BYTES, LEAST_BYTES, PACKS = 25 * 2**20, 64 * 2**10, 4
"""Gradients travel together, up to so many bytes (S. Li et al., VLDB 2020, section 3.2.3: buckets
of 25 MB), so that launches are few; in four packs or more, unless they are tiny, so that the first
leave while the backward pass computes the others."""

TIMEOUT_SECONDS = 300.0
"""A device that waits so long for the others ends the step with ``DeadlineExceededError``."""

_REDUCED = (tf.bfloat16, tf.float16, tf.float32, tf.float64)

Replica = Callable[[], AbstractContextManager[Any]]
"""In which the ops of one replica are made."""


def all_reduce(
    parts: Sequence[Pairs],
    weights: Sequence[Any],
    replicas: Sequence[Replica],
    names: Sequence[str],
) -> list[Pairs]:
    """For every replica its (variable, gradient) pairs with the sum over ``parts`` of weight x
    gradient.

    ``parts`` have the same variables, of which :func:`require_reducible` refuses none; what has no
    gradient is left out.  ``names`` are those of the devices: one set of them is one group of
    TensorFlow's.
    """
    packs = _packs(parts[0])
    group_key = _key(*names)
    found = []
    for pairs, weight, replica in zip(parts, weights, replicas, strict=True):
        with replica():
            found.append(_one_replica(pairs, weight, packs, names, group_key))
    return found


def _one_replica(
    pairs: Pairs,
    weight: Any,
    packs: Sequence[Sequence[int]],
    names: Sequence[str],
    group_key: int,
) -> Pairs:
    """Returns the sums for one replica; all replicas run their collectives in one order."""
    summed, before = Pairs(), list[Any]()
    for number, pack in enumerate(packs):
        values = [pairs[index][1] for index in pack]
        shapes = [list(pairs[index][0].shape) for index in pack]
        sizes = [math.prod(shape) for shape in shapes]
        joined = values[0]
        if len(pack) > 1:
            flat = [tf.reshape(value, [size]) for value, size in zip(values, sizes, strict=True)]
            joined = tf.concat(flat, 0)
        elif not joined.shape.is_fully_defined():
            joined = tf.reshape(joined, shapes[0])
        joined = scaled(joined, weight)
        with tf.control_dependencies(before):
            total = tf.raw_ops.CollectiveReduce(
                input=joined,
                group_size=len(names),
                group_key=group_key,
                instance_key=_key(*names, number, joined.dtype.name, shapes),
                merge_op="Add",
                final_op="Id",
                subdiv_offsets=[0],
                timeout_seconds=TIMEOUT_SECONDS,
            )
        before = [total.op]
        rows = [total]
        if len(pack) > 1:
            flat = tf.split(total, sizes)
            rows = [tf.reshape(row, shape) for row, shape in zip(flat, shapes, strict=True)]
        summed += [(pairs[index][0], row) for index, row in zip(pack, rows, strict=True)]
    return summed


def _packs(pairs: Pairs) -> list[list[int]]:
    """The numbers of the gradients that travel together, of one dtype each, in the order in which
    the backward pass has all of a pack: from the last variable to the first.  What is half a pack
    or more goes alone, and need not be copied."""
    sizes = {}
    for index, (variable, gradient) in enumerate(pairs):
        if gradient is not None:
            sizes[index] = math.prod(variable.shape) * gradient.dtype.size
    most = min(MOST_BYTES, max(LEAST_BYTES, sum(sizes.values()) // PACKS))
    packs, open_packs = list[list[int]](), dict[Any, tuple[list[int], int]]()
    for index in reversed(sizes):
        size, dtype = sizes[index], pairs[index][1].dtype
        pack, room = open_packs.get(dtype, ([], 0))
        if 2 * size >= most:
            packs.append([index])
            continue
        if size > room:
            pack, room = list[int](), most
            packs.append(pack)
        pack.append(index)
        open_packs[dtype] = pack, room - size
    return sorted(packs, key=min, reverse=True)


def require_reducible(pairs: Pairs) -> None:
    """Raises :class:`UsageError` for a gradient that no all-reduce adds up.

    A sparse one made dense would be another one to Keras's optimizers: they square the rows before
    they add those of one index.
    """
    for variable, gradient in pairs:
        name = getattr(variable, "path", variable.name)
        if isinstance(gradient, tf.IndexedSlices):
            raise UsageError(
                f"the gradient of {name} is sparse (tf.IndexedSlices): its rows differ from "
                "replica to replica, and an all-reduce adds up equal rows; use replicas"
            )
        if gradient is not None and gradient.dtype not in _REDUCED:
            kinds = ", ".join(dtype.name for dtype in _REDUCED)
            raise UsageError(
                f"the gradient of {name} is {gradient.dtype.name}; an all-reduce takes {kinds}; "
                "use replicas"
            )


def _key(*parts: object) -> int:
    """A number for what is reduced: the same at every trace, another one for another shape, which
    TensorFlow would refuse under the same number."""
    return zlib.crc32(repr(parts).encode()) & 0x7FFFFFFF
