"""Orders in which a few threads run the ops."""

from __future__ import annotations

from graphs_by_hand import draw, draw_costs

from placer.prediction.memory.timelines import StepMemory
from placer.prediction.orders.thread_orders import orders_on_threads


def orders_of(graph, placement):
    step = StepMemory(graph, draw_costs(graph), placement, ("GPU:0", "GPU:1"))
    return list(orders_on_threads(graph, step.routes))


def test_every_order_has_all_ops_after_their_producers_and_stays_the_same():
    """Of two chains that wait for each other at both ends."""
    graph = draw("x -> a -> b -> c -> y", "x -> d -> e -> y", "k -> e")
    placement = dict.fromkeys(graph.ops, "GPU:0") | {"d": "GPU:1", "e": "GPU:1"}
    found = orders_of(graph, placement)
    assert found == orders_of(graph, placement)
    for order in found:
        place = {name: index for index, name in enumerate(order)}
        assert sorted(order) == sorted(graph.ops)
        assert all(place[p] < place[op.name] for op in graph.ops.values() for p in op.producers)


def test_what_arrives_comes_in_between_at_another_moment_each_time():
    """Local ops are run as they become ready; the reader of what comes back starts anywhere in a
    long chain that does not wait for it."""
    chain = " -> ".join(f"c{n}" for n in range(40))
    graph = draw(f"x -> {chain}", "x -> far -> reader")
    placement = dict.fromkeys(graph.ops, "GPU:0") | {"far": "GPU:1"}
    orders = orders_of(graph, placement)
    assert len({order.index("reader") for order in orders}) > len(orders) // 2
    alone = orders_of(graph, dict.fromkeys(graph.ops, "GPU:0"))
    assert all(order.index("reader") < order.index("c3") for order in alone)
