"""Rows read and written by index: gathers, scatters, segments.

Only the rows that the indices name are touched, not the whole table.
"""

from collections.abc import Mapping

from cost_models.op_info import OpInfo
from cost_models.registry import Work, cost_rule
from cost_models.tensor_size import counted_bytes, counted_shape, element_bytes, element_count


@cost_rule("Gather GatherV2 GatherNd ResourceGather ResourceGatherNd")
def gather_work(info: OpInfo) -> Work:
    """The indices are read, the rows read and written."""
    rows, indices = info.outputs[0], info.inputs[1]
    return Work(bytes_accessed=2 * counted_bytes(rows) + counted_bytes(indices))


_UPDATES_AT = 2
"""The input number of the updates in every scatter to a variable or tensor."""

_SCATTER_FLOPS: Mapping[str, int] = {"Update": 0} | dict.fromkeys(
    ("Add", "Sub", "Mul", "Div", "Max", "Min"), 1
)


@cost_rule(
    *[
        prefix + kind
        for prefix in ("Scatter", "ScatterNd", "ResourceScatter", "ResourceScatterNd")
        for kind in _SCATTER_FLOPS
    ]
)
def scatter_work(info: OpInfo) -> Work:
    """Indices and updates are read, and the rows of the variable read (unless replaced) and
    written."""
    updates = counted_bytes(info.inputs[_UPDATES_AT])
    flops = next((n for kind, n in _SCATTER_FLOPS.items() if info.op.endswith(kind)), 1)
    return Work(
        flops=flops * element_count(info.inputs[_UPDATES_AT]),
        bytes_accessed=(2 + flops) * updates + counted_bytes(info.inputs[1]),
    )


@cost_rule("""
    TensorScatterUpdate TensorScatterAdd TensorScatterSub TensorScatterMax TensorScatterMin
    ScatterNdNonAliasingAdd
""")
def tensor_scatter_work(info: OpInfo) -> Work:
    """As the scatter to a variable, after the tensor has been copied."""
    on_variable = scatter_work(info)
    copied = 2 * counted_bytes(info.outputs[0])
    return Work(flops=on_variable.flops, bytes_accessed=copied + (on_variable.bytes_accessed or 0))


@cost_rule("ScatterNd")
def scatter_to_zeros_work(info: OpInfo) -> Work:
    """Zeros are written, then the updates are added: indices, updates and rows."""
    updates = info.inputs[1]
    return Work(
        flops=element_count(updates),
        bytes_accessed=counted_bytes(info.inputs[0])
        + 3 * counted_bytes(updates)
        + counted_bytes(info.outputs[0]),
    )


@cost_rule(
    *[
        prefix + kind
        for prefix in ("Segment", "UnsortedSegment")
        for kind in ("Sum", "Prod", "Max", "Min", "Mean")
    ]
)
def segment_work(info: OpInfo) -> Work:
    """One flop per element of the data; everything is read and written once."""
    return Work(flops=element_count(info.inputs[0]))


@cost_rule("""
    SparseSegmentSum SparseSegmentMean SparseSegmentSqrtN SparseSegmentSumWithNumSegments
    SparseSegmentMeanWithNumSegments SparseSegmentSqrtNWithNumSegments
    SparseSegmentSumGrad SparseSegmentMeanGrad SparseSegmentSqrtNGrad SparseSegmentSumGradV2
    SparseSegmentMeanGradV2 SparseSegmentSqrtNGradV2
""")
def sparse_segment_work(info: OpInfo) -> Work:
    """One flop per element of the rows that the indices name, or of the rows of the incoming
    gradient that they add to the output."""
    rows, shape = element_count(info.inputs[1]), counted_shape(info.inputs[0].shape)
    row_elements = element_count(info.inputs[0]) // max(1, shape[0] if shape else 1)
    row_bytes = row_elements * (element_bytes(info.inputs[0].dtype) or 0)
    return Work(
        flops=rows * row_elements,
        bytes_accessed=rows * row_bytes
        + sum(map(counted_bytes, info.inputs[1:]))
        + counted_bytes(info.outputs[0]),
    )
