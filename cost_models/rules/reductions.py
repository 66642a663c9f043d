"""Reductions, counts and running sums.

The temporaries are those of ``tensorflow/core/kernels/reduction_ops_common.h``.
"""

from collections.abc import Collection, Mapping
from itertools import groupby

from cost_models.gpu_convolutions import IMAGE_RANK
from cost_models.op_info import OpInfo, TensorProperties
from cost_models.registry import Work, cost_rule
from cost_models.tensor_size import counted_bytes, element_count, is_known

_PER_INPUT: Mapping[str, int] = {"Mean": 1, "EuclideanNorm": 2}
"""Flops per input element, where they are not one less per output element than its inputs."""


@cost_rule("Sum Prod Max Min All Any", *_PER_INPUT)
def reduction_work(info: OpInfo) -> Work:
    """The flops; neighbours in memory (variant ``inner``) are added up faster than rows are.

    Where nothing is reduced the input itself is handed on (variant ``idle``;
    ``ReductionOp::Compute``).
    """
    if is_known(info.inputs[0].shape) and _reduced_elements(info) == 0:
        return Work(bytes_accessed=0, variant="idle")
    shape, axes = info.inputs[0].shape, info.inputs[1].value if len(info.inputs) > 1 else None
    reduced = {int(axis) % len(shape) for axis in axes} if shape and axes else set()
    per_input = _PER_INPUT.get(info.op)
    return Work(
        flops=_reduced_elements(info)
        if per_input is None
        else per_input * element_count(info.inputs[0]),
        temporary_bytes=_transposed_bytes(info.inputs[0], reduced),
        variant="inner" if shape and len(shape) - 1 in reduced else "",
    )


@cost_rule("BiasAddGrad")
def bias_gradient_work(info: OpInfo) -> Work:
    """One addition less per output element than there are inputs to it.

    A GPU adds up channels that come first row by row, into what is as large as the gradient
    (``ComputeWithReduceSum`` of ``bias_op.cc``), and float32 images come so: Grappler's layout
    optimizer sees to it.
    """
    gradient = info.inputs[0]
    first = str(info.attributes.get("data_format", "")).startswith("NC")
    image = gradient.dtype == "float32" and len(gradient.shape or ()) >= IMAGE_RANK
    return Work(
        flops=_reduced_elements(info),
        gpu_temporary_bytes=counted_bytes(gradient) if first or image else 0,
    )


@cost_rule("ArgMax ArgMin")
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


def _transposed_bytes(tensor: TensorProperties, reduced: Collection[int]) -> int:
    """Bytes of the copy that brings the reduced dimensions together, 0 where none is needed.

    Alternating groups of kept and reduced dimensions are counted; a dimension of size 1 joins its
    neighbour, whichever it is.
    """
    if tensor.shape is None or not is_known(tensor.shape):
        return 0
    kinds = [index in reduced for index, size in enumerate(tensor.shape) if size != 1]
    groups = sum(1 for _ in groupby(kinds))
    # up to three alternating groups of kept and reduced dimensions are reduced without a copy
    return counted_bytes(tensor) if groups > 3 else 0
