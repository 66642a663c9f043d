"""Tensors between units."""

from __future__ import annotations

from collections.abc import Sequence

from placer.problem.placement_problem import ProblemTensor


def merge_nets(
    tensors: Sequence[ProblemTensor], unit_of: Sequence[int]
) -> tuple[ProblemTensor, ...]:
    """The tensors between units: parallel ones summed, those within one unit or empty dropped."""
    merged: dict[tuple[int, tuple[int, ...]], int] = {}
    for tensor in tensors:
        if tensor.bytes == 0:
            continue
        producer = unit_of[tensor.producer]
        consumers = {unit_of[op] for op in tensor.consumers} - {producer}
        if consumers:
            key = (producer, tuple(sorted(consumers)))
            merged[key] = merged.get(key, 0) + tensor.bytes
    return tuple(
        ProblemTensor(producer=producer, consumers=consumers, bytes=size)
        for (producer, consumers), size in merged.items()
    )
