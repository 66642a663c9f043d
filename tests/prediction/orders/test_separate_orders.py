"""The orders of processes of one device each, and what they need."""

from __future__ import annotations

from graphs_by_hand import draw, draw_costs

from placer.prediction.memory.allocations import find_allocations, peaks_in
from placer.prediction.memory.timelines import StepMemory
from placer.prediction.orders.execution_orders import executor_orders
from placer.prediction.orders.separate_orders import separate_orders

MIB = 1 << 20
COUNT = 4


def drawn():
    """CPU:2 makes eight MiB, and then has four other things to do; each of these makes one more
    that lasts to the end.  What frees the eight reads something of CPU:1, which is soon there.

    CPU:1   s ---------------------------.
    CPU:2   big -------------------------'-> r ---.
              '-> go -> b0, b1, b2, b3 ------------'-> end
    """
    others = ", ".join(f"b{n}" for n in range(COUNT))
    graph = draw(
        "big -> go, r",
        f"go -> {others}",
        "s -> r",
        f"r, {others} -> end",
        bytes={"big": 8 * MIB} | {f"b{n}": MIB for n in range(COUNT)},
    )
    placement = {name: "CPU:1" if name == "s" else "CPU:2" for name in graph.ops}
    costs = draw_costs(graph)
    return graph, costs, StepMemory(graph, costs, placement, ("CPU:1", "CPU:2"))


def test_what_only_a_received_tensor_frees_is_held_until_there_is_nothing_else_to_do():
    """In all orders in which it is received while there is something else to do, which most are;
    of those of one executor for both, some free it first."""
    graph, costs, step = drawn()
    alone = [step.peaks(order)["CPU:2"] for order in executor_orders(graph, accelerated=False)]
    assert min(alone) < 9 * MIB
    orders = separate_orders(graph, costs, step.routes.device_of)
    assert len(orders) > 1
    late = [order for order in orders if max(order.passages) > order.names.index("go")]
    assert len(late) > len(orders) / 2
    for names, lasts, passages in late:
        assert names.index("r") > max(names.index(f"b{n}") for n in range(COUNT))
        peaks = peaks_in(find_allocations(step, names, None, lasts, passages))
        assert peaks["CPU:2"] >= (8 + COUNT) * MIB


def test_the_orders_are_the_same_at_every_call_and_differ():
    """Which of two that have nothing to do with each other is first is drawn."""
    graph = draw("s0 -> s1 -> s2", "t0 -> t1 -> t2", "s2 -> t3", "t2 -> t3")
    costs = draw_costs(graph)
    device_of = {name: "CPU:1" if name[0] == "s" else "CPU:2" for name in graph.ops}
    orders = separate_orders(graph, costs, device_of)
    assert orders == separate_orders(graph, costs, device_of)
    assert len({order.names for order in orders}) > 1
