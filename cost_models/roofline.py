"""From work to seconds: the roofline of one device, the line of one link.

The model is Williams, Waterman and Patterson, "Roofline: an insightful visual performance model
for multicore architectures", https://doi.org/10.1145/1498765.1498785.
"""

from __future__ import annotations

from cost_models.devices import DeviceProperties, Efficiency, Link
from cost_models.gpu_rates import FULL, gpu_kinds, precision_rate, usual_efficiency
from cost_models.op_cost import OpCost


def op_seconds(cost: OpCost, device: DeviceProperties) -> float:
    """Seconds of one execution: its launches, and the longer of computing and moving bytes.

    The device reaches the part of its peak that its ``efficiency`` says for the first of the op's
    kinds that it has; a GPU else what GPUs usually reach, a CPU all of it.  What the peak of a GPU
    is depends on the precision (:mod:`cost_models.gpu_rates`).  An op without flops and without
    traffic (an alias, a handle, a constant) launches no kernel and takes the executor's own time
    for it.  An op with bodies takes as long as what runs in them.  A measured time is taken as it
    is, on devices of its type.
    """
    measured = cost.measured_seconds.get(device.type, cost.measured_seconds.get(""))
    if measured is not None:
        return measured
    if cost.inner:
        return cost.repeats * sum(op_seconds(inner, device) for inner in cost.inner)
    reached = _efficiency(cost, device)
    launch = reached.launch_seconds
    if cost.flops == 0 and cost.bytes_accessed == 0:
        return device.dispatch_seconds if launch is None else launch
    if launch is None:
        launch = device.launch_seconds
    launches, traffic = work_on(cost, device)
    if device.type == "GPU":
        computed, rate = cost.tiled_flops or cost.flops, precision_rate(device, cost)
    else:
        computed, rate = cost.flops, device.peak_flops
    computing = computed / (reached.compute * rate)
    moving = traffic / (reached.memory * device.memory_bandwidth)
    return launches * launch + max(computing, moving)


def _efficiency(cost: OpCost, device: DeviceProperties) -> Efficiency:
    known, is_gpu = device.efficiency, device.type == "GPU"
    kinds = gpu_kinds(cost, device) if is_gpu and known else cost.kinds
    found = next((known[kind] for kind in kinds if kind in known), None) if known else None
    if found is not None:
        return found
    return usual_efficiency(cost, device) if is_gpu else FULL


def work_on(cost: OpCost, device: DeviceProperties) -> tuple[int, int]:
    """Launches and bytes of traffic on ``device``: a CPU also cuts and packs."""
    if device.type == "CPU":
        return cost.launches * cost.pieces, cost.bytes_accessed + cost.packed_bytes
    return cost.launches, cost.bytes_accessed


def transfer_seconds(size_bytes: int | None, link: Link) -> float:
    """Seconds to send a tensor over ``link``: its latency, and the bytes at its bandwidth.

    A tensor without a size (``None``: a string, a variant, an unknown shape) takes the latency;
    who adds up times must say how many there were.

    >>> transfer_seconds(1_000_000, Link(bandwidth=1e9, latency=0.0))
    0.001
    """
    return link.latency + (size_bytes or 0) / link.bandwidth
