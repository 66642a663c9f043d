"""What the allocators of all devices need, over the orders that a step may run in."""

from __future__ import annotations

from collections.abc import Sequence

from placer.prediction.memory.allocations import find_allocations
from placer.prediction.memory.allocator import rounded_bytes
from placer.prediction.memory.need import Need, find_need
from placer.prediction.memory.timelines import StepMemory
from placer.prediction.metrics import MemoryNeed
from placer.prediction.orders.execution_orders import range_of
from placer.prediction.step.routes import is_cpu


def needs_along(step: StepMemory, orders: Sequence[Sequence[str]]) -> dict[str, MemoryNeed]:
    """What the allocator of every device needs over ``orders``, each a step of its own.

    That of a CPU grows, that of a GPU takes one region: what TensorFlow does unless told otherwise.
    """
    found: dict[str, list[Need]] = {name: [] for name in step.device_names}
    for sample, order in enumerate(orders):
        for name, allocations in find_allocations(step, order, sample).items():
            found[name].append(find_need(allocations, growth=is_cpu(name)))
    return {
        name: _over_orders(
            needs,
            growth=is_cpu(name),
            resident_bytes=sum(map(rounded_bytes, step.resident.get(name, {}).values())),
        )
        for name, needs in found.items()
    }


def _over_orders(needs: Sequence[Need], *, growth: bool, resident_bytes: int) -> MemoryNeed:
    in_use = range_of([need.in_use_bytes for need in needs], resident_bytes)
    need = range_of([need.need_bytes for need in needs], resident_bytes)
    typical = next(found for found in needs if found.need_bytes == need.expected_bytes)
    return MemoryNeed(
        growth=growth,
        in_use=in_use,
        need=need,
        tensor_bytes=typical.tensor_bytes,
        workspace_bytes=typical.workspace_bytes,
        padding_bytes=typical.padding_bytes,
        fragmentation_bytes=typical.fragmentation_bytes,
    )
