"""Executors of several processes, one thread each, and what they send each other."""

from itertools import pairwise

from graphs_by_hand import draw
from hypothesis import given
from hypothesis import strategies as st

from placer.prediction.step.executor import prepare, run_once, successors_in
from placer.prediction.step.separate_executors import Durations, Passage, run_separately


def _run(graph, process_of, seconds=(), sending=(), busy=(), seed=0, *, held=True):
    prepared = prepare(graph)
    took = [dict(seconds).get(name, 1.0) for name in prepared.names]
    sent = [dict(sending).get(name, 0.0) for name in prepared.names]
    where = [process_of(name) for name in prepared.names]
    kept = [dict(busy).get(name, 0.0) for name in prepared.names]
    durations = Durations(took, sent, kept, [held] * len(sent))
    return run_separately(prepared, successors_in(prepared, seed), where, durations)


def _by_letter(name):
    """CPU:1 has the ops called s, all others are on CPU:2."""
    return "CPU:1" if name[0] == "s" else "CPU:2"


def test_what_reads_something_received_runs_last():
    """r is ready while b0 runs, before b1 to b3 are, and waits for all of them; in a single
    executor it comes first.  That s is there is seen once s and b0 have started.

    CPU:1   s ----------------.
    CPU:2   b0 -> b1, b2, b3  '-> r
    """
    graph = draw("b0 -> b1, b2, b3", "s -> r")
    found = _run(graph, _by_letter, {"b0": 2.0})
    assert found.names == ("b0", "s", "s", "b3", "b2", "b1", "r")
    assert found.passages == {2: Passage("CPU:2", leaves=True, arrives=True)}
    assert found.lasts == (2, 1, 2, 3, 4, 5, 6)  # b0 runs until s is there
    alone = run_once(prepare(graph), 0)
    assert alone.index("r") < alone.index("b0")


def test_even_what_is_inexpensive_does():
    """The Reshape of what was received is given to the pool, as everything is."""
    graph = draw("b0 -> b1, b2", "s -> r=Reshape")
    names = _run(graph, _by_letter, {"b0": 2.0}).names
    assert [name for name in names if name != "s"] == ["b0", "b2", "b1", "r"]


def test_what_was_received_first_is_read_first():
    """s1 to s3 arrive one after the other while b runs; s2 takes longest on the way."""
    graph = draw("b", "s1 -> s2 -> s3", "s1 -> r1", "s2 -> r2", "s3 -> r3")
    names = _run(graph, _by_letter, {"b": 9.0}, {"s2": 3.0}).names
    assert [name for name in names if name[0] == "r"] == ["r1", "r3", "r2"]


def test_who_sends_may_be_busy_until_the_answer_is_there():
    """Where b1 is sent at once, b2 and b3 run before s1 is there; where that takes long, s1 is
    there before b2 begins, so that r is ready as soon as b3.

    CPU:1       .-> s1 -.
    CPU:2   b1 -~~~~~~~~'~ b2 -> b3, r
    """
    graph = draw("b1 -> b2, s1", "b2 -> b3, r", "s1 -> r")
    at_once = _run(graph, _by_letter, {"s1": 5.0})
    slowly = _run(graph, _by_letter, {"s1": 5.0}, busy={"b1": 9.0})
    assert at_once.names == ("b1", "b2", "b1", "s1", "b3", "s1", "r")
    assert slowly.names == ("b1", "b1", "s1", "s1", "b2", "r", "b3")


def test_what_is_sent_is_put_aside_where_something_comes_after_it():
    """Both arrive as soon as they are sent.  Where r1 comes before s2 in the graph, s2 is run, and
    sent, first; where it comes after it, the sending does.

    CPU:1   s1 ---> s2 -.
    CPU:2    '-> r1     '-> r2
    """
    aside, at_once = draw("s1 -> r1, s2", "s2 -> r2"), draw("s1 -> s2, r1", "s2 -> r2")
    assert _run(aside, _by_letter).names == ("s1", "s2", "s2", "r2", "s1", "r1")
    assert _run(at_once, _by_letter).names == ("s1", "s2", "s1", "r1", "s2", "r2")


def test_what_is_sent_leaves_as_it_arrives_or_before():
    """s1 is sent when s2 is done, and takes long."""
    graph, both = draw("s1 -> r1, s2"), {"leaves": True, "arrives": True}
    found = _run(graph, _by_letter, sending={"s1": 9.0})
    assert found.names == ("s1", "s2", "s1", "r1")
    assert found.passages == {2: Passage("CPU:2", **both)}
    found = _run(graph, _by_letter, sending={"s1": 9.0}, held=False)
    assert found.names == ("s1", "s2", "s1", "s1", "r1")
    assert found.passages == {
        2: Passage("CPU:2", **both | {"arrives": False}),
        3: Passage("CPU:2", **both | {"leaves": False}),
    }


def test_one_process_runs_as_one_executor_with_one_thread():
    """And nothing arrives."""
    graph = draw("x -> a1 -> a2 -> y", "x -> b1 -> b2 -> b3 -> y", "x -> m=Reshape")
    found = _run(graph, lambda _: "CPU:1")
    assert found.names == run_once(prepare(graph), 0)
    assert found.passages == {}


@given(
    st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), min_size=1, max_size=30),
    st.integers(1, 3),
    st.integers(0, 5),
)
def test_every_op_runs_once_after_what_it_reads(pairs, processes, seed):
    """And after what it reads has arrived, if that is sent."""
    edges = sorted({(min(a, b), max(a, b)) for a, b in pairs if a != b}) or [(0, 1)]
    graph = draw(*(f"n{a} -> n{b}" for a, b in edges))

    def process_of(name):
        return f"CPU:{int(name[1:]) * 5 % 7 % processes}"

    took = {f"n{n}": 1 + (n * 7 + seed) % 5 for n in range(12)}
    busy = {name: seconds - 2 for name, seconds in took.items() if seconds > 2}
    names, lasts, passages = _run(graph, process_of, took, took, busy, seed, held=seed % 2 == 0)
    starts = [name for at, name in enumerate(names) if at not in passages]
    assert sorted(starts) == sorted(graph.ops)
    position = {name: at for at, name in reversed([*enumerate(names)])}
    there = {(names[at], one.device): at for at, one in passages.items() if one.arrives}
    for name, op in graph.ops.items():
        for producer in op.producers:
            assert position[producer] <= lasts[position[producer]] < position[name]
            if process_of(producer) != process_of(name):
                assert lasts[position[producer]] < there[producer, process_of(name)]
                assert there[producer, process_of(name)] < position[name]
    for process in {process_of(name) for name in names}:
        own = [position[name] for name in starts if process_of(name) == process]
        assert all(lasts[at] < after for at, after in pairwise(own))
