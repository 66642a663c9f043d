"""What must be sent whatever the placement: a lower bound that needs no search."""

from __future__ import annotations

from placer.problem.placement_problem import ProblemTensor
from placer.solving.reduction.unit_problem import UnitProblem


def forced_bytes(problem: UnitProblem) -> int:
    """The bytes that cross in every placement, such as an input on the host that only accelerators
    read.

    With the producer on p, a net is sent to every device but p that is the only one of some
    consumer, and at least once if some consumer may not use p.  The least over the devices of the
    producer bounds the net, and the sum over the nets every placement, since each net is paid for
    by itself; to that comes what units cost that have the host alone.
    """
    sent = sum(net.bytes * _least_sends(net, problem) for net in problem.nets)
    on_host = zip(problem.host_cost, problem.allowed, strict=True)
    return sent + sum(cost for cost, devices in on_host if devices == (problem.host,))


def _least_sends(net: ProblemTensor, problem: UnitProblem) -> int:
    readers = [problem.allowed[unit] for unit in net.consumers]
    only = {devices[0] for devices in readers if len(devices) == 1}
    return min(
        max(len(only - {home}), int(any(home not in devices for devices in readers)))
        for home in problem.allowed[net.producer]
    )
