"""Collectives: ops of several devices that run together and send without a send of their own.

An all-reduce of n devices is a ring of 2 (n - 1) rounds, in each of which every device sends an
n-th part to the next one: 2 (n - 1) / n times its bytes in all (P. Patarasuk and X. Yuan,
"Bandwidth optimal all-reduce algorithms for clusters of workstations",
doi:10.1016/j.jpdc.2008.09.002; ``RingReducer`` of
``tensorflow/core/common_runtime/ring_reducer.cc``, and NCCL's rings).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cost_models.devices import Cluster
from cost_models.op_cost import OpCost
from placer.graph.op_graph import Op, OpGraph

ALL_REDUCES = frozenset({"CollectiveReduce"})

Ring = tuple[object, object]
"""Group and instance of a collective, as its ops name them."""


def ring_of(op: Op) -> Ring | None:
    """The collective that ``op`` takes part in, if it does."""
    if op.op_type not in ALL_REDUCES:
        return None
    return op.info.attributes.get("group_key"), op.info.attributes.get("instance_key")


def find_rings(graph: OpGraph) -> dict[Ring | None, list[str]]:
    """The ops of every collective, in graph order."""
    found: dict[Ring | None, list[str]] = {}
    for op in graph.ops.values():
        ring = ring_of(op)
        if ring is not None:
            found.setdefault(ring, []).append(op.name)
    return found


def ring_bytes(graph: OpGraph, costs: Mapping[str, OpCost]) -> int:
    """Returns the bytes that all devices send in the collectives of a step: of n devices with b
    bytes each 2 (n - 1) b."""
    return sum(
        2 * (len(members) - 1) * _bytes(members, costs)
        for members in graph.ask_once(find_rings).values()
    )


def ring_seconds(
    members: Sequence[str],
    costs: Mapping[str, OpCost],
    device_of: Mapping[str, str],
    cluster: Cluster,
) -> float:
    """Seconds of all rounds of a collective, each as long as its slowest link takes."""
    count = len(members)
    if count < 2:
        return 0.0
    names = [device_of[name] for name in members]
    part = _bytes(members, costs) / count
    links = [cluster.link(a, b) for a, b in zip(names, [*names[1:], names[0]], strict=True)]
    return 2 * (count - 1) * max(link.latency + part / link.bandwidth for link in links)


def _bytes(members: Sequence[str], costs: Mapping[str, OpCost]) -> int:
    return costs[members[0]].output_bytes[0] or 0
