"""Orders lowered by moves at their fullest moments."""

from graphs_by_hand import draw, draw_cluster, draw_costs
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.fitting.order_descent import OrderDescent
from placer.prediction.memory.timelines import StepMemory
from placer.prediction.step.executor import prepare

KIB = 1024


def lowered(graph, order, budget):
    """The order that ``order`` becomes, its peak, and the peak before."""
    (device,) = (device.name for device in draw_cluster("CPU:0").devices)
    step = StepMemory(graph, draw_costs(graph), dict.fromkeys(graph.ops, device), [device])
    successors = [[op for _, op, _ in edges] for edges in prepare(graph, False).successors]
    found = OrderDescent(step, successors, step.numbers(order), {device: budget}).run()
    names = [step.layout.names[op] for op in found]
    return names, step.peaks(names)[device], step.peaks(order)[device]


def test_two_large_values_are_not_held_at_once():
    """Both are made first: 16 KiB; one is read before the other is made: 9 KiB."""
    graph = draw(
        "x=Placeholder -> a=MatMul -> b=Sum",
        "x -> c=MatMul -> d=Sum",
        "b, d -> e",
        bytes={"a": 8 * KIB, "c": 8 * KIB, "b": 1 * KIB, "d": 1 * KIB, "e": 1 * KIB},
        feeds=["x"],
        fetches=["e:0"],
    )
    names, peak, before = lowered(graph, ["x", "a", "c", "b", "d", "e"], 10 * KIB)
    assert before >= 16 * KIB
    assert peak <= 10 * KIB + 4 * 256
    assert names.index("b") < names.index("c") or names.index("d") < names.index("a")
    as_it_was, _, _ = lowered(graph, ["x", "a", "c", "b", "d", "e"], 64 * KIB)
    assert as_it_was == ["x", "a", "c", "b", "d", "e"]


@settings(max_examples=40, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(2, 12))
def test_an_order_stays_one_and_gets_no_higher(random, count):
    lines = ["x=Placeholder -> v0=MatMul"]
    for number in range(1, count):
        sources = {f"v{random.randrange(number)}" for _ in range(2)}
        lines.append(f"{', '.join(sorted(sources))} -> v{number}")
    sizes = {f"v{number}": random.randrange(1, 9) * KIB for number in range(count)}
    graph = draw(*lines, bytes=sizes, feeds=["x"], fetches=[f"v{count - 1}:0"])
    order = list(graph.ops)
    names, _, _ = lowered(graph, order, 2 * KIB)
    assert sorted(names) == sorted(order)
    place = {name: number for number, name in enumerate(names)}
    for op in graph.ops.values():
        assert all(place[producer] < place[op.name] for producer in op.producers)
