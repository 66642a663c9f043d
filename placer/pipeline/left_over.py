"""Sinks that run and are not fetched, where nobody said which are outputs: counted, with their
bytes."""

from collections.abc import Iterable, Iterator

from cost_models.byte_sizes import format_bytes
from cost_models.tensor_size import tensor_bytes
from placer.extraction.extraction import Extraction
from placer.graph.op_graph import OpGraph
from placer.graph.program_source import Warning_
from placer.graph.tensor_names import split_tensor
from placer.plan.report import LEFT_OVER_WORDS, LeftOverSinks

_EXAMPLES = 3


def summed_bytes(tensors: Iterable[str], graph: OpGraph) -> int | None:
    """The bytes of ``tensors`` together; ``None`` if one has no size, or none that is known."""
    total = 0
    for tensor in tensors:
        name, index = split_tensor(tensor)
        op = graph.ops.get(name)  # none of that name where the batch is divided
        size = tensor_bytes(op.info.outputs[index]) if op else None
        if size is None:
            return None
        total += size
    return total


def count_left_over(extraction: Extraction) -> tuple[LeftOverSinks, ...]:
    """The left-over sinks of a program by reason."""
    by_reason: dict[str, list[str]] = {}
    for tensor, reason in extraction.left_over.items():
        by_reason.setdefault(reason, []).append(tensor)
    return tuple(
        LeftOverSinks(
            reason=reason,
            count=len(tensors),
            bytes=summed_bytes(tensors, extraction.graph),
            examples=tuple(tensors[:_EXAMPLES]),
        )
        for reason, tensors in by_reason.items()
    )


def left_over_warnings(extraction: Extraction) -> Iterator[Warning_]:
    """Yields the warning of sinks that are not fetched: how many, and what fetching would cost."""
    rows = count_left_over(extraction)
    if not rows:
        return
    size = summed_bytes(extraction.left_over, extraction.graph)
    cost = "bytes that are not known" if size is None else format_bytes(size)
    kinds = ", ".join(f"{row.count:,} {LEFT_OVER_WORDS[row.reason]}" for row in rows)
    taken = ", ".join(key for key, _ in extraction.outputs[:_EXAMPLES]) or "none"
    more = len(extraction.outputs) - _EXAMPLES
    message = (
        f"nobody said which sinks are outputs: {taken}{f' and {more} more' if more > 0 else ''} "
        f"{'is' if len(extraction.outputs) == 1 else 'are'} taken for them; the others run and are "
        f"not fetched, which would take {cost} ({kinds}): --outputs says better"
    )
    yield "sinks_not_fetched", message, tuple(extraction.left_over)
