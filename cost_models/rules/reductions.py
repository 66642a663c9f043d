"""Reductions, counts and running sums.

The temporaries are those of ``tensorflow/core/kernels/reduction_ops_common.h``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import prod

from cost_models.op_info import OpInfo
from cost_models.registry import Work, cost_rule
from cost_models.tensor_size import counted_bytes, element_count, is_known

_REDUCED_IN_PLACE = 3
"""Up to so many alternating groups of kept and reduced dimensions are reduced without a copy."""


@cost_rule("Sum Prod Max Min All Any EuclideanNorm")
def reduction_work(info: OpInfo) -> Work:
    """One flop less per output element than there are inputs to it; two for the norm."""
    reduced = _reduced_elements(info)
    flops = 2 * element_count(info.inputs[0]) if info.op == "EuclideanNorm" else reduced
    return Work(flops=flops, temporary_bytes=_transposed_bytes(info), variant=_variant(info))


@cost_rule("Mean")
def mean_work(info: OpInfo) -> Work:
    """The sum and one division per output element: one flop per input element."""
    return Work(
        flops=element_count(info.inputs[0]),
        temporary_bytes=_transposed_bytes(info),
        variant=_variant(info),
    )


@cost_rule("ArgMax ArgMin BiasAddGrad")
def plain_reduction_work(info: OpInfo) -> Work:
    """One comparison or addition less per output element than there are inputs to it."""
    return Work(flops=_reduced_elements(info))


@cost_rule("L2Loss")
def half_square_sum_work(info: OpInfo) -> Work:
    """``3 n - 1``: square, halve and add, as TensorFlow's profiler counts it."""
    return Work(flops=max(0, 3 * element_count(info.inputs[0]) - 1))


@cost_rule("""
    Cumsum Cumprod Bincount DenseBincount SparseBincount HistogramFixedWidth Bucketize
    SparseReduceSum SparseReduceMax SparseReduceSumSparse SparseReduceMaxSparse
""")
def one_per_element_work(info: OpInfo) -> Work:
    """One flop per element of the largest input."""
    return Work(flops=max(map(element_count, info.inputs), default=0))


@cost_rule("CumulativeLogsumexp")
def running_logsumexp_work(info: OpInfo) -> Work:
    """Maximum, subtract, exp, add, log, add per element."""
    return Work(flops=6 * element_count(info.inputs[0]))


def _reduced_elements(info: OpInfo) -> int:
    return max(0, element_count(info.inputs[0]) - element_count(info.outputs[0]))


def _variant(info: OpInfo) -> str:
    """``inner`` where the last dimension is reduced: neighbours in memory are added up, which is
    faster than adding up rows."""
    shape, axes = info.inputs[0].shape, info.inputs[1].value if len(info.inputs) > 1 else None
    return "inner" if shape and axes and (len(shape) - 1) in {a % len(shape) for a in axes} else ""


def _transposed_bytes(info: OpInfo) -> int:
    """Bytes of the copy that brings the reduced dimensions together, 0 where none is needed."""
    shape, axes = info.inputs[0].shape, info.inputs[1].value if len(info.inputs) > 1 else None
    if shape is None or axes is None or not is_known(shape):
        return 0
    groups = _alternating_groups([size or 0 for size in shape], [int(axis) for axis in axes])
    if len(groups) <= _REDUCED_IN_PLACE:
        return 0
    return counted_bytes(info.inputs[0])


def _alternating_groups(shape: Sequence[int], axes: Sequence[int]) -> list[int]:
    """The shape with neighbours that are both kept or both reduced multiplied together.

    A dimension of size 1 joins its neighbour, whichever it is.
    """
    reduced = {axis % len(shape) for axis in axes} if shape else set()
    kinds = [(index in reduced, size) for index, size in enumerate(shape) if size != 1]
    return [prod(size for _, size in run) for _, run in groupby(kinds, key=lambda pair: pair[0])]
