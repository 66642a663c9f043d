"""Einsum: two flops per combination of labels, and the operands it rearranges.

Mirrors ``tensorflow/core/kernels/linalg/einsum_op_impl.h``: each operand is brought to
[batch, free, contract] order, the products are batch matrix products, the result is brought to the
order of the output.  What is not in that order already is copied.
"""

from collections.abc import Mapping, Sequence
from math import prod

from cost_models.op_info import OpInfo
from cost_models.registry import FMA_FLOPS, Work, cost_rule
from cost_models.tensor_size import counted_bytes, counted_shape, element_bytes

_ELLIPSIS = "..."


@cost_rule("Einsum XlaEinsum")
def einsum_work(info: OpInfo) -> Work:
    """``2 * product of all label sizes`` for two operands, one flop per element for one.

    Temporaries are the copies of operands and of the result whose order differs from the one the
    batch matrix product wants; the output comes after them.
    """
    operands, output = parse_equation(str(info.attributes.get("equation", "")))
    shapes = [counted_shape(tensor.shape) for tensor in info.inputs]
    labels = [_expanded(o, len(shape)) for o, shape in zip(operands, shapes, strict=False)]
    sizes = _label_sizes(labels, shapes)
    result = _output_labels(output, labels)
    if len(labels) != 2:
        copies = _copies_by_reduction(info, labels[0], result) if labels else []
        flops = prod(sizes.values())
    else:
        copies = _copies(info, labels, result, sizes)
        flops = FMA_FLOPS * prod(sizes.values())
    return Work(flops=flops, temporary_bytes=sum(copies), temporary_chunks=tuple(copies))


def parse_equation(equation: str) -> tuple[list[str], str]:
    """The operands' labels and the output's; an equation without an arrow gets numpy's output:
    the labels that occur once, sorted, after the ellipsis.

    >>> parse_equation("bij,bjk->bik"), parse_equation("ij,jk")
    ((['bij', 'bjk'], 'bik'), (['ij', 'jk'], 'ik'))
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    operands = left.split(",")
    if arrow:
        return operands, right
    letters = left.replace(_ELLIPSIS, "").replace(",", "")
    once = "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
    return operands, (_ELLIPSIS if _ELLIPSIS in left else "") + once


def _expanded(labels: str, rank: int) -> tuple[str, ...]:
    """One label per dimension; the ellipsis stands for numbered ones, counted from the right."""
    before, ellipsis, after = labels.partition(_ELLIPSIS)
    missing = max(0, rank - len(before) - len(after)) if ellipsis else 0
    return (*before, *(f".{index}" for index in reversed(range(missing))), *after)


def _output_labels(output: str, operands: Sequence[Sequence[str]]) -> tuple[str, ...]:
    broadcast = max((sum(len(label) > 1 for label in labels) for labels in operands), default=0)
    letters = len(output.replace(_ELLIPSIS, ""))
    return _expanded(output, letters + (broadcast if _ELLIPSIS in output else 0))


def _label_sizes(
    operands: Sequence[Sequence[str]], shapes: Sequence[Sequence[int]]
) -> dict[str, int]:
    """The size of every label, a broadcast 1 giving way to the larger size."""
    sizes: dict[str, int] = {}
    for labels, shape in zip(operands, shapes, strict=False):
        for label, size in zip(labels, shape, strict=False):
            sizes[label] = size if sizes.get(label, 1) == 1 else sizes[label]
    return sizes


def _copies(
    info: OpInfo,
    operands: Sequence[Sequence[str]],
    output: Sequence[str],
    sizes: Mapping[str, int],
) -> list[int]:
    """Bytes of each operand, and of the result, that is transposed into a buffer."""
    first, second = operands
    copies = [
        counted_bytes(tensor)
        for tensor, labels, other in zip(info.inputs, operands, (second, first), strict=True)
        if _is_rearranged(labels, set(other), set(output))
    ]
    batch = [label for label in first if label in second and label in output]
    produced = [
        *batch,
        *(label for label in first if label in output and label not in second),
        *(label for label in second if label in output and label not in first),
    ]
    if produced == list(output):
        return copies
    size = element_bytes(info.outputs[0].dtype) or 0
    return [*copies, size * prod(sizes.get(label, 1) for label in output)]


def _copies_by_reduction(info: OpInfo, labels: Sequence[str], output: Sequence[str]) -> list[int]:
    """Bytes of the operand, brought to the order [kept, summed], and of the result, where they
    are copied; a bare transpose writes its output at once."""
    kept = [label for label in labels if label in output]
    if len(kept) == len(labels):
        return []
    ordered = list(labels[: len(kept)]) == kept
    operand = [] if ordered else [counted_bytes(info.inputs[0])]
    return operand if kept == list(output) else [*operand, counted_bytes(info.outputs[0])]


def _is_rearranged(labels: Sequence[str], other: set[str], output: set[str]) -> bool:
    """Must the operand be transposed?  [batch, free, contract] and [batch, contract, free] need not
    be, because the matrix product reads either."""
    kinds = [
        "batch" if label in other and label in output else "free" if label in output else "contract"
        for label in labels
    ]
    runs = [kind for index, kind in enumerate(kinds) if index == 0 or kinds[index - 1] != kind]
    return len(runs) != len(set(runs)) or ("batch" in runs and runs[0] != "batch")
