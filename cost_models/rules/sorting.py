"""Ops that sort, search or select: comparisons are the flops."""

from math import ceil, log2

from cost_models.op_info import OpInfo
from cost_models.registry import Work, cost_rule
from cost_models.tensor_size import counted_shape, element_count


@cost_rule("TopK TopKV2 ApproxTopK TopKUnique TopKWithUnique")
def top_work(info: OpInfo) -> Work:
    """``n log2(k)`` comparisons, through a heap of k."""
    kept = (counted_shape(info.outputs[0].shape) or (1,))[-1]
    return Work(flops=element_count(info.inputs[0]) * _levels(kept))


@cost_rule("""
    NthElement InTopK InTopKV2 Unique UniqueV2 UniqueWithCounts UniqueWithCountsV2 ListDiff
    ComputeAccidentalHits
""")
def one_pass_work(info: OpInfo) -> Work:
    """One comparison (or hash) per element of the first input."""
    return Work(flops=element_count(info.inputs[0]))


@cost_rule("LowerBound UpperBound")
def search_work(info: OpInfo) -> Work:
    """``log2(n)`` comparisons per value, n being the length of a sorted row."""
    sorted_length = (counted_shape(info.inputs[0].shape) or (1,))[-1]
    return Work(flops=element_count(info.inputs[1]) * _levels(sorted_length))


@cost_rule("""
    NonMaxSuppression NonMaxSuppressionV2 NonMaxSuppressionV3 NonMaxSuppressionV4
    NonMaxSuppressionV5 NonMaxSuppressionWithOverlaps CombinedNonMaxSuppression
""")
def suppression_work(info: OpInfo) -> Work:
    """A heap of the boxes, and each box compared with the boxes selected so far, at most so many
    as may be selected (unknown: as there are boxes); combined, for every class of every image."""
    times, boxes = 1, (counted_shape(info.inputs[0].shape) or (1,))[0]
    if info.op == "CombinedNonMaxSuppression":
        scores = counted_shape(info.inputs[1].shape)
        images, boxes, classes = scores if len(scores) == 3 else (1, 1, 1)
        times = images * classes
    limit = info.inputs[2].value if len(info.inputs) > 2 else None
    selected = min(boxes, int(limit[0])) if limit else boxes
    # per pair: four minima or maxima, six subtractions, three products, a sum and a division
    return Work(flops=times * boxes * (_levels(boxes) + 15 * selected))


def _levels(count: int) -> int:
    """Comparisons to find a place among ``count`` sorted values."""
    return max(1, ceil(log2(max(1, count))))
