"""Which ops run at once on several threads."""

import random

from graphs_by_hand import draw
from hypothesis import given
from hypothesis import strategies as st

from placer.prediction.step.executor import prepare, run_once, successors_in
from placer.prediction.step.thread_pool import ConcurrentOrder, ThreadedStep


def _step(graph, threads, seconds=(), seed=0, race=None):
    prepared = prepare(graph)
    return ThreadedStep(
        graph=prepared,
        successors=successors_in(prepared, seed),
        seconds=[dict(seconds).get(name, 1.0) for name in prepared.names],
        threads=threads,
        race=race,
    )


def _run(graph, threads, seconds=(), seed=0):
    return _step(graph, threads, seconds, seed).order


def test_another_thread_takes_what_was_put_aside():
    """x notifies a1 and b1: its thread goes on with b1, the other steals a1.

    x ---> a1 --> a2 --> y       a1 takes as long as b1, b2 and the start of b3
      '--> b1 --> b2 --> b3
    """
    graph = draw("x -> a1 -> a2 -> y", "x -> b1 -> b2 -> b3 -> y")
    found = _run(graph, 2, {"a1": 2.5})
    assert found == ConcurrentOrder(("x", "b1", "a1", "b2", "b3", "a2", "y"), (0, 2, 4, 3, 5, 5, 6))


def test_who_comes_first_of_two_that_start_at_once_is_a_race():
    """x notifies a and b at once: the thread of x goes on with b, unless the other is faster."""
    graph = draw("x -> a -> y", "x -> b -> y")
    steps = [_step(graph, 2, race=random.Random(seed)) for seed in range(20)]
    assert {step.order.names for step in steps} == {("x", "a", "b", "y"), ("x", "b", "a", "y")}
    assert _run(graph, 2).names == ("x", "b", "a", "y")


def test_one_thread_runs_one_op_at_a_time():
    """And in the order of the executor's queue."""
    graph = draw("x -> a1 -> a2 -> y", "x -> b1 -> b2 -> b3 -> y")
    found = _run(graph, 1)
    assert found.names == run_once(prepare(graph), 0)
    assert found.lasts == tuple(range(len(graph.ops)))


def test_inexpensive_ops_run_on_the_thread_that_made_them_ready():
    """Nobody steals the reshape, and the sum waits for the thread."""
    graph = draw("x -> m", "x -> r=Reshape -> s")
    assert _run(graph, 2).names == ("x", "r", "m", "s")


@given(
    st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=30),
    st.integers(1, 4),
    st.integers(0, 5),
)
def test_every_op_runs_once_after_what_it_reads(pairs, threads, seed):
    """An op starts when all that it reads is done, and at most ``threads`` run at a time."""
    edges = sorted({(min(a, b), max(a, b)) for a, b in pairs if a != b})
    graph = draw(*(f"n{a} -> n{b}" for a, b in edges or [(0, 1)]))
    names, lasts = _run(graph, threads, {f"n{n}": 1 + (n * 7 + seed) % 5 for n in range(12)}, seed)
    assert sorted(names) == sorted(graph.ops)
    position = {name: index for index, name in enumerate(names)}
    for name, op in graph.ops.items():
        assert all(lasts[position[producer]] < position[name] for producer in op.producers)
    for index in range(len(names)):
        assert sum(lasts[other] >= index for other in range(index + 1)) <= threads
