"""The costs of a placement of a program: its messages, and work that an accelerator does faster.

    sends        the sum over messages of bytes + latency x B
    slower work  the sum over ops of t(o, D(o)) - t*(o), where that is above zero, x B

in bytes.  B is the bandwidth of the fastest link between the host and an accelerator (in a cluster
without accelerators: of the fastest link), latency that of the same link.  t(o, d) are the seconds
that op o works on device d, launches left out; t*(o) is the least of them over the accelerators
that law leaves to it: those for which it and all ops of its colocation group have kernels, fed ops
counted.  Where law leaves none, slower work is nothing.

Pins, device strings, caps, ops kept together and ``--offload`` change none of this: they only take
placements away.  So a request more, or a tighter cap, never lowers the least cost.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from cost_models.devices import Cluster, Link
from cost_models.op_cost import OpCost
from cost_models.roofline import op_seconds
from placer.problem.constraints import Constraints


def cost_link(cluster: Cluster) -> Link:
    """The link whose bandwidth and latency bytes are counted by."""
    host, names = cluster.host.name, [device.name for device in cluster.devices]
    accelerators = [device.name for device in cluster.devices if device.type != "CPU"]
    ends = [pair for a in accelerators for pair in ((host, a), (a, host))]
    ends = ends or [(a, b) for a in names for b in names if a != b]
    links = [cluster.link(*pair) for pair in ends] or [cluster.default_link]
    return max(links, key=lambda link: (link.bandwidth, -link.latency))


def message_bytes(link: Link) -> int:
    """Returns what a message costs beside its own bytes."""
    return _whole_bytes(link.latency * link.bandwidth)


def slower_bytes(seconds: Sequence[Sequence[float]], link: Link) -> tuple[tuple[int, ...], ...]:
    """Returns what slower work is worth, from :func:`slower_seconds`."""
    known: dict[Sequence[float], tuple[int, ...]] = {}
    for row in seconds:
        if row not in known:
            known[row] = tuple(_whole_bytes(each * link.bandwidth) for each in row)
    return tuple(known[row] for row in seconds)


def slower_seconds(
    costs: Mapping[str, OpCost], cluster: Cluster, constraints: Constraints
) -> dict[str, tuple[float, ...]]:
    """Per op, how much longer it works on each device than on the fastest accelerator that law
    leaves to it."""
    devices = cluster.devices
    by_cost: dict[int, tuple[float, ...]] = {}
    found = {}
    for ops, able in accelerators_by_law(cluster, constraints):
        at = [place for place, device in enumerate(devices) if device.name in able]
        for op in ops:
            cost = costs[op]
            times = by_cost.get(id(cost))
            if times is None:
                times = tuple(op_seconds(cost, device, launches=False) for device in devices)
                by_cost[id(cost)] = times
            found[op] = beyond_fastest(times, at)
    return found


def beyond_fastest(times: Sequence[float], able: Iterable[int]) -> tuple[float, ...]:
    """How much longer each device takes than the fastest of those that are ``able``; 0 if none
    is."""
    least = min((times[device] for device in able), default=math.inf)
    return tuple([max(0.0, time - least) for time in times])


def accelerators_by_law(
    cluster: Cluster, constraints: Constraints
) -> Iterator[tuple[Sequence[str], frozenset[str]]]:
    """The ops of every group that law makes, and the accelerators that it leaves to them (of a
    cluster without accelerators, the CPUs)."""
    fastest = set(cluster.workers)
    for group in constraints.own_groups:
        able = set(fastest)
        for op in group.ops:
            restriction = constraints.restrictions[op]
            able &= set(restriction.unasked or restriction.devices)
        yield group.ops, frozenset(able)


def _whole_bytes(size: float) -> int:
    """Rounded up."""
    return max(0, math.ceil(size - 1e-6))  # of products of floats
