"""Buffers while ops run at once."""

from graphs_by_hand import draw, draw_costs

from placer.prediction.memory.lifetimes import Simulation
from placer.prediction.memory.run import Wanted
from placer.prediction.memory.timelines import StepMemory

DEVICE = "CPU:0"


def _step(graph, **costs):
    costs = draw_costs(graph, **costs)
    return StepMemory(graph, costs, dict.fromkeys(graph.ops, DEVICE), (DEVICE,))


def test_what_kernels_take_for_themselves_adds_up_while_they_run_at_once():
    """One after the other, x and one workspace; at once, x, both workspaces and both results.

    x ---> a      100 each; the kernels of a and b take 1,000
      '--> b
    """
    graph = draw("x -> a, b", bytes=100)
    step = _step(graph, temporary_bytes={"a": 1000, "b": 1000})
    order = ("x", "a", "b")
    assert step.peaks(order)[DEVICE] == 100 + 100 + 1000
    assert step.peaks(order, lasts=(0, 2, 2))[DEVICE] == 100 + 100 + 1000 + 100 + 1000


def test_an_op_holds_what_it_reads_until_it_is_done():
    """y is there before a is done with x, which would be freed before if y waited for a.

    x --> a       lasts      x  a  b  c
    b --> c       one by one 0  1  2  3
                  a is slow  0  3  2  3
    """
    graph = draw("x -> a", "b -> c", bytes={"x": 400, "a": 4, "b": 400, "c": 4})
    step = _step(graph)
    order = ("x", "a", "b", "c")
    assert step.peaks(order)[DEVICE] == 400 + 4
    assert step.peaks(order, lasts=(0, 3, 2, 3))[DEVICE] == 400 + 4 + 400 + 4


def test_nothing_is_written_over_what_a_running_op_reads():
    """The second Relu overwrites x if the first is done with it, else it takes a buffer."""
    graph = draw("x -> r1=Relu, r2=Relu", bytes=100)
    step = _step(graph)
    assert step.peaks(("x", "r1", "r2"))[DEVICE] == 200
    order = step.numbers(("x", "r1", "r2"))
    found = Simulation(step.layout, order, lasts=(0, 2, 2), wanted=Wanted(records=True)).lifetimes()
    assert sorted((life.owner, life.first, life.last) for life in found) == [
        ("r1", 1, 2),
        ("r2", 2, 2),
        ("x", 0, 2),
    ]


def swapped_step():
    """``a`` waits on the host between ``b`` and ``d``, which allocates once that is done.

    GPU:0    x --> a --> b --> c --> d           a is there until a/arrived is done, and
                   |        (after a's   '-- a   again from a/swapped on
                   '-> a/arrived -> a/swapped
    """
    graph = draw(
        "x -> a -> b -> c -> d",
        "a -> a/arrived=Identity -> a/swapped=Identity -> d",
        "c ..> a/swapped",
        bytes={"x": 4, "a": 400, "b": 4, "c": 4, "d": 4, "a/arrived": 400, "a/swapped": 400},
    )
    host = {"a/arrived", "a/swapped"}
    placement = {name: "CPU:0" if name in host else "GPU:0" for name in graph.ops}
    return StepMemory(graph, draw_costs(graph), placement, ("GPU:0", "CPU:0"))


def test_what_is_sent_is_held_until_it_has_arrived():
    """The buffer of ``a`` is there while b runs, if the copy out is done after it, and not if it
    was done before; the host has one from the start until it is sent back."""
    step = swapped_step()
    at = {}
    for order in (
        ("x", "a", "a/arrived", "b", "c", "a/swapped", "d"),
        ("x", "a", "b", "c", "a/arrived", "a/swapped", "d"),
    ):
        lines = step.timelines(order)
        at[order.index("a/arrived")] = dict(zip(order, lines["GPU:0"].bytes, strict=True))
        host = dict(zip(order, lines["CPU:0"].bytes, strict=True))
        assert host["a"] == host["a/swapped"] == 400
        assert host["d"] == 0
    early, late = at[2], at[4]
    assert early["b"] == 404
    assert early["c"] == 8
    assert late["c"] == 408
    assert early["a/swapped"] == 404  # it may be back from then on


def test_what_is_sent_to_another_process_is_not_written_over_what_need_not_be():
    """b, a Relu, could be written over a, and is if what reads it is in the same process."""
    graph = draw("x -> a=Mul -> b=Relu -> r", bytes={"x": 4, "a": 400, "b": 400, "r": 4})

    def most(here, there):
        placement = {name: there if name == "r" else here for name in graph.ops}
        step = StepMemory(graph, draw_costs(graph), placement, (here, there), here)
        return step.peaks(("x", "a", "b", "r"))[here]

    apart = [f"/job:w/task:{task}/device:CPU:0" for task in (1, 2)]
    assert most(*apart) == 800
    assert most("CPU:0", "CPU:1") < 800
