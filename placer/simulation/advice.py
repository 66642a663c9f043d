"""Changes worth trying where a simulated GPU had no room."""

from __future__ import annotations

from placer.simulation.records import GpuRecord, Moment

_MUCH = 0.3
"""Share of what was in use from which a kind of memory is worth a word."""

_DATA = ("_EagerConst",)
"""Ops that put what NumPy holds on a GPU."""


def advice_for(record: GpuRecord, usable_bytes: int) -> list[str]:
    """Sentences on the last refused request, the most promising first; none without one."""
    moment = record.refused
    if moment is None:
        return []
    found = []
    if moment.in_use_bytes + moment.asked_bytes <= usable_bytes:
        found.append(
            "the free memory is in pieces: try TF_GPU_ALLOCATOR=cuda_malloc_async, or a little "
            "less of anything"
        )
    if _share(moment, *_DATA) > _MUCH:
        found.append(
            "data made from NumPy arrays lies on the GPU as a whole: build the dataset under "
            "tf.device('CPU:0')"
        )
    variables = sum(row.held_bytes for row in moment.held if row.op.startswith("variable "))
    if variables > _MUCH * moment.in_use_bytes:
        found.append(
            "variables fill it (an Adam optimizer holds two more of each): an optimizer without "
            "slots, a lower precision, or placer place over several GPUs"
        )
    if not found or variables <= (1 - _MUCH) * moment.in_use_bytes:
        found.append("what a step computes fills it: a smaller batch, or recomputation")
    return found


def _share(moment: Moment, *ops: str) -> float:
    """The share of what was in use that ops of these names held."""
    held = sum(row.held_bytes for row in moment.held if row.op.rpartition("/")[2] in ops)
    return held / moment.in_use_bytes if moment.in_use_bytes else 0.0
