"""The executor's orders and the range of peaks they span."""

import itertools

import pytest
from graphs_by_hand import draw, draw_costs
from hypothesis import given
from hypothesis import strategies as st

from placer.graph.order import predecessors
from placer.prediction.memory.timelines import predict_memory
from placer.prediction.orders import execution_orders
from placer.prediction.orders.execution_orders import executor_orders
from placer.prediction.orders.possible_steps import predict_peak_ranges
from placer.prediction.step.executor import _hash_table, _order_of_creation, prepare, run_once


def _branches():
    """Two branches with a large middle.

    x ---> a1 --> a2 --> y        a1 and b1 are large
      '--> b1 --> b2 --'
    """
    return draw("x -> a1 -> a2 -> y", "x -> b1 -> b2 -> y", bytes={"a1": 400, "b1": 400})


def _order(graph, seed=0, accelerated=False):
    return run_once(prepare(graph, accelerated), seed)


def test_a_gpu_runs_first_in_first_out():
    """Both large ops are launched before either branch goes on."""
    assert _order(_branches(), accelerated=True) == ("x", "a1", "b1", "a2", "b2", "y")


def test_a_cpu_goes_on_with_the_last_expensive_op():
    """The thread keeps the last op that became ready, and comes back for the others."""
    assert _order(_branches()) == ("x", "b1", "b2", "a1", "a2", "y")


def test_inexpensive_ops_run_before_the_expensive_ones_they_became_ready_with():
    """A reshape that becomes ready beside a product runs before it, wherever it stands."""
    graph = draw("x -> m -> y", "x -> r=Reshape -> y")
    assert _order(graph) == ("x", "r", "m", "y")


def test_all_inexpensive_ops_that_wait_for_nothing_run_first():
    """Constants and fed values, and what is inexpensive behind them, run before any product;
    handles and reads of variables are expensive."""
    graph = draw(
        "x=Placeholder -> m",
        "v=VarHandleOp -> r=ReadVariableOp -> m",
        "c=Const -> i=Identity -> m",
        dtypes={"v": "resource"},
        feeds=["x"],
    )
    order = _order(graph)
    assert set(order[:3]) == {"x", "c", "i"}
    assert order[3:] == ("v", "r", "m")


def test_consumers_are_told_in_the_order_in_which_they_were_added():
    """Up to eight of them: expensive ones are taken from the pool in reverse."""
    graph = draw("x -> " + ",".join(f"m{i}" for i in range(8)))
    assert {_order(graph, seed) for seed in range(20)} == {
        ("x", *(f"m{i}" for i in reversed(range(8))))
    }


def test_many_consumers_come_in_an_order_that_differs_between_processes():
    """More than eight are told by their place in memory; a process keeps its order."""
    graph = draw("x -> " + ",".join(f"m{i}" for i in range(40)))
    assert _order(graph, 1) == _order(graph, 1)
    assert len({_order(graph, seed) for seed in range(20)}) > 5


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=20),
    st.lists(st.integers(0, 9), max_size=3, unique=True),
)
def test_the_session_adds_fed_ops_only_when_nothing_else_can_be_added(pairs, fed):
    """Ops are added one by one, as it does: of those whose producers are there the first one, a fed
    one if there is no other."""
    incoming = [[] for _ in range(10)]
    for before, after in pairs:
        if before < after and after not in fed:
            incoming[after].append((before, False))
    added = []
    while len(added) < len(incoming):
        there = [
            op
            for op, read in enumerate(incoming)
            if op not in added and all(before in added for before, _ in read)
        ]
        free = [op for op in there if op not in fed]
        added.append(free[0] if free else next(op for op in fed if op in there))
    assert _order_of_creation(incoming, fed) == added


def test_what_does_not_fit_into_the_pool_runs_at_once():
    """Of 1,100 products 1,024 wait in the pool, the others run first."""
    names = [f"m{i}" for i in range(1100)]
    graph = draw("x -> i=Identity", *(f"x -> {name}" for name in names))
    assert _order(graph)[0] == "x"
    assert sorted(_order(graph)) == sorted(graph.ops)
    assert _order(graph).index("i") == 1 + 1100 - 1024


@given(
    edges=st.lists(st.tuples(st.integers(0, 14), st.integers(0, 14)), max_size=40),
    types=st.lists(st.sampled_from(["MatMul", "Identity", "Const"]), min_size=15, max_size=15),
    seed=st.integers(0, 3),
    accelerated=st.booleans(),
)
def test_every_order_is_a_topological_one(edges, types, seed, accelerated):
    """All ops run once, each after what it needs."""
    lines = [f"n{i}={op_type}" for i, op_type in enumerate(types)]
    graph = draw(*lines, *(f"n{min(edge)} -> n{max(edge)}" for edge in edges if edge[0] != edge[1]))
    order = _order(graph, seed, accelerated)
    place = {name: index for index, name in enumerate(order)}
    assert len(order) == len(place) == len(graph.ops)
    for op in graph.ops.values():
        assert all(place[name] < place[op.name] for name in predecessors(op, graph.ops))


def test_the_range_covers_the_orders():
    """Low is at most, high at least what each of the orders needs, and the median is expected."""
    graph = draw(
        "x -> " + ",".join(f"a{i}" for i in range(12)),
        *(f"a{i} -> b{i} -> y" for i in range(12)),
        bytes={f"a{i}": 400 * (i + 1) for i in range(12)},
    )
    costs = draw_costs(graph)
    placement = dict.fromkeys(graph.ops, "CPU:0")
    found = predict_peak_ranges(graph, costs, placement, ("CPU:0",))["CPU:0"]
    peaks = sorted(
        predict_memory(graph, costs, placement, ("CPU:0",), order=order)["CPU:0"].peak_bytes
        for order in executor_orders(graph, accelerated=False)
    )
    assert len(peaks) == 32
    assert found.low_bytes <= peaks[0] < peaks[-1] <= found.high_bytes
    assert found.expected_bytes in peaks
    assert peaks[0] < found.expected_bytes < peaks[-1]


def test_where_the_order_does_not_matter_the_range_is_narrow():
    """A chain has one order: all that remains is a five-hundredth of what is not resident."""
    graph = draw("x -> a -> b", bytes=40_000)
    costs = draw_costs(graph, persistent_bytes={"x": 1_000_000})
    placement = dict.fromkeys(graph.ops, "CPU:0")
    found = predict_peak_ranges(graph, costs, placement, ("CPU:0",))["CPU:0"]
    assert found.expected_bytes == 1_080_000
    assert (found.low_bytes, found.high_bytes) == (1_080_000 - 160, 1_080_000 + 160)


def test_laid_out_graphs_are_also_followed_in_reverse():
    """One more order, in which the consumers of x run in the order they were added: the pool takes
    what came last.

    x --> a, b, c
    """
    graph = draw("x=Placeholder -> a, b, c", feeds=["x"])
    usual = executor_orders(graph, accelerated=False)
    found = executor_orders(graph, accelerated=False, laid_out=1)
    assert found[:-1] == usual
    assert (usual[0], found[-1]) == (("x", "c", "b", "a"), ("x", "a", "b", "c"))


@pytest.mark.parametrize(("laid_out", "count"), [(0, 6), (3, 6 + 5 + 1), (10, 24 + 1)])
def test_more_orders_are_followed_the_more_ops_are_of_loops(monkeypatch, laid_out, count):
    """A small loop in a large graph is no reason to follow all of that four times as often."""
    monkeypatch.setattr(execution_orders, "OPS_IN_ALL", 60)
    monkeypatch.setattr(execution_orders, "_OPS_IN_ALL_OF_LOOPS", 240)
    graph = draw(" -> ".join("abcdefghij"))
    assert len(executor_orders(graph, accelerated=False, laid_out=laid_out)) == count


@given(st.lists(st.integers(0, 40), max_size=25))
def test_a_hash_set_fills_the_first_free_slot_of_each_probe(hashes):
    """Probing anew for every item, from the slot of its hash, gives the same table."""
    table = [-1] * 32
    for item, first in enumerate(hashes):
        slots = (first + probe * (probe + 1) // 2 for probe in itertools.count())
        table[next(slot % 32 for slot in slots if table[slot % 32] < 0)] = item
    assert _hash_table(range(len(hashes)), hashes, 32) == [item for item in table if item >= 0]


@pytest.mark.parametrize("accelerated", [True, False])
def test_when_a_copy_is_done_is_not_known(accelerated):
    """An arrival runs when nothing else can: what waits for it is all that keeps the step from
    running ahead."""
    graph = draw("x -> a -> b -> c -> d", "a -> a/arrived=Identity -> a/swapped=Identity -> d")
    order = _order(graph, accelerated=accelerated)
    assert order.index("c") < order.index("a/arrived")
    waits = draw(
        "x -> a -> b -> c -> d",
        "a -> a/arrived=Identity -> a/swapped=Identity -> d",
        "a/arrived ..> c",
    )
    order = _order(waits, accelerated=accelerated)
    assert order.index("b") < order.index("a/arrived") < order.index("c")
