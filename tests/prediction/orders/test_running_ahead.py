"""Devices that go on as soon as they can: what one has sent waits in the other."""

from __future__ import annotations

from graphs_by_hand import draw, draw_cluster, draw_costs

from placer.prediction.memory.timelines import StepMemory
from placer.prediction.orders.running_ahead import order_of_late_readers, orders_running_ahead
from placer.prediction.prediction import predict

COUNT = 8
MIB = 1 << 20
CLOSE = 1 << 15
"""How finely limits are tried."""


def drawn(seconds_to_make, seconds_to_read):
    """GPU:0 makes ``s0`` to ``s7`` of a MiB, with two small ops after each; GPU:1 reads them one
    after the other.  One op after another, none waits; the seconds are those of ``s`` and ``r``."""
    makes = " -> ".join(f"s{n} -> p{n} -> q{n}" for n in range(COUNT))
    reads = " -> ".join(f"r{n}" for n in range(COUNT))
    sent = {f"s{n}": MIB for n in range(COUNT)}
    graph = draw(makes, reads, *(f"s{n} -> r{n}" for n in range(COUNT)), bytes=sent)
    seconds = {"s": seconds_to_make, "r": seconds_to_read}
    costs = draw_costs(
        graph, flops={name: int(1e9 * seconds.get(name[0], 0)) for name in graph.ops}
    )
    placement = {name: "GPU:1" if name[0] == "r" else "GPU:0" for name in graph.ops}
    return graph, costs, placement, draw_cluster("GPU:0", "GPU:1", bandwidth=1e12)


def most_on(device, graph, costs, placement, cluster):
    """What ``device`` holds at most, in MiB, along each order but that of launches."""
    names = [found.name for found in cluster.devices]
    step = StepMemory(graph, costs, placement, names)
    _launched, *orders = orders_running_ahead(graph, costs, step.routes, cluster)
    for order in orders:
        place = {name: index for index, name in enumerate(order)}
        assert sorted(order) == sorted(graph.ops)
        assert all(place[p] < place[op.name] for op in graph.ops.values() for p in op.producers)
    return [round(step.peaks(order)[device] / MIB) for order in orders]


def test_what_was_sent_waits_and_is_needed():
    """GPU:0 has made all 8 MiB before the first is read: they wait on GPU:1, while along the orders
    of one executor two are there.  The need is a MiB more: BFC splits what is left for the last one
    if that is twice as large, else the four bytes that are made of them find no room.  Copies wait
    for what GPU:1 computes, so GPU:0 holds all of them, too."""
    metrics = predict(*drawn(0.01, 1.0))
    assert metrics.peaks["GPU:1"].high_bytes < 3 * MIB
    need = metrics.needs["GPU:1"]
    assert 0 <= need.need.high_bytes - (COUNT + 1) * MIB < CLOSE
    assert need.in_use.high_bytes >= COUNT * MIB
    assert metrics.peaks["GPU:0"].high_bytes < 3 * MIB
    assert 0 <= metrics.needs["GPU:0"].need.high_bytes - COUNT * MIB < CLOSE


def test_either_device_may_be_half_as_fast():
    """As fast as each other, or GPU:0 slower: one is read while the next one is made.  GPU:1 half
    as fast: as the last one is made (after 7 seconds) three have been read, and five are there."""
    graph, *rest = drawn(1.0, 1.0)
    alike, slow_maker, slow_reader = most_on("GPU:1", graph, *rest)
    assert (alike, slow_maker, slow_reader) == (2, 2, 5)


def test_launches_run_ahead_of_what_they_compute():
    """The memory of what is received is taken when the sender launches it, so that all of it is
    there before the first op is done, however long making them takes."""
    need = predict(*drawn(1.0, 0.01)).needs["GPU:1"].need
    assert 0 <= need.high_bytes - (COUNT + 1) * MIB < CLOSE


def test_what_no_other_device_reads_runs_ahead_of_nothing():
    """One device, or two that compute apart."""
    graph, costs, _, cluster = drawn(1.0, 1.0)
    step = StepMemory(graph, costs, dict.fromkeys(graph.ops, "GPU:0"), ["GPU:0"])
    assert orders_running_ahead(graph, costs, step.routes, cluster) == []
    graph = draw("a -> b", "c -> d")
    placement = {"a": "GPU:0", "b": "GPU:0", "c": "GPU:1", "d": "GPU:1"}
    routes = StepMemory(graph, draw_costs(graph), placement, ["GPU:0", "GPU:1"]).routes
    assert orders_running_ahead(graph, draw_costs(graph), routes, cluster) == []


def test_of_two_readers_of_what_arrives_one_may_be_late():
    """The gradient of the filter waits until nothing else can run; what is local does not."""
    graph = draw("x -> received -> image -> next -> last", "received -> filter", "next -> other")
    placement = dict.fromkeys(graph.ops, "GPU:0") | {"x": "GPU:1", "received": "GPU:1"}
    step = StepMemory(graph, draw_costs(graph), placement, ("GPU:0", "GPU:1"))
    found = order_of_late_readers(graph, step.routes)
    assert sorted(found) == sorted(graph.ops)
    assert found[-1] == "filter"
    placement |= {"received": "GPU:0"}
    step = StepMemory(graph, draw_costs(graph), placement, ("GPU:0", "GPU:1"))
    assert order_of_late_readers(graph, step.routes) == ()
