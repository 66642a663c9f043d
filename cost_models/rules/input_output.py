"""Input and output besides tensors: iterators, summaries, checkpoints.

What a dataset does to make an element, and what a disk takes, follows from no shape: these costs
count the tensors that pass, and are inaccurate.
"""

from cost_models.op_info import OpInfo
from cost_models.registry import Work, cost_rule
from cost_models.tensor_size import counted_bytes, element_count


@cost_rule("""
    IteratorGetNext IteratorGetNextSync MultiDeviceIteratorGetNextFromShard DatasetToSingleElement
    Save SaveV2 SaveSlices Restore RestoreV2 RestoreSlice ReadFile WriteFile MatchingFiles
    ScalarSummary TensorSummary TensorSummaryV2 ImageSummary AudioSummary AudioSummaryV2
    MergeSummary WriteSummary WriteScalarSummary WriteRawProtoSummary
""")
def passing_work(_info: OpInfo) -> Work:
    """Every input is read once, every output written once."""
    return Work(inaccurate=True)


@cost_rule("HistogramSummary WriteHistogramSummary")
def histogram_work(info: OpInfo) -> Work:
    """Every value is put into its bucket."""
    values = info.inputs[-1]
    return Work(
        # a binary search among 774 buckets (``core/lib/histogram``)
        flops=10 * element_count(values),
        bytes_accessed=counted_bytes(values),
        inaccurate=True,
    )
