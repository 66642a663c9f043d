"""From work to seconds: the roofline of one device, the line of one link.

The model is Williams, Waterman and Patterson, "Roofline: an insightful visual performance model
for multicore architectures", https://doi.org/10.1145/1498765.1498785.
"""

from __future__ import annotations

from cost_models.devices import DeviceProperties, Link
from cost_models.op_cost import OpCost


def op_seconds(cost: OpCost, device: DeviceProperties) -> float:
    """Seconds of one execution: its launches, and the longer of computing and moving bytes.

    An op without flops and without traffic (an alias, a handle, a constant) launches no kernel
    and takes no time; the executor's own microsecond for it is left out.  A measured time is
    taken as it is, on every device.
    """
    if cost.measured_seconds is not None:
        return cost.measured_seconds
    if cost.flops == 0 and cost.bytes_accessed == 0:
        return 0.0
    computing = cost.flops / device.peak_flops
    moving = cost.bytes_accessed / device.memory_bandwidth
    return cost.launches * device.launch_seconds + max(computing, moving)


def transfer_seconds(size_bytes: int | None, link: Link) -> float:
    """Seconds to send a tensor over ``link``: its latency, and the bytes at its bandwidth.

    A tensor without a size (``None``: a string, a variant, an unknown shape) takes the latency;
    who adds up times must say how many there were.
    """
    return link.latency + (size_bytes or 0) / link.bandwidth
