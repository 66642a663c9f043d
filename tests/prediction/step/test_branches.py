"""Of the branches of a conditional one runs, and the other takes no memory."""

import pytest
from graphs_by_hand import draw, draw_costs

from placer.prediction.memory.timelines import StepMemory

SIZES = {"x": 400, "f": 1000, "f2": 1000, "t": 8000, "p": 4}


def step(*lines, placement=None, **sizes):
    graph = draw(*lines, bytes={**SIZES, **sizes})
    costs = draw_costs(graph)
    placed = dict.fromkeys(graph.ops, "GPU:0") | (placement or {})
    return StepMemory(graph, costs, placed, ("CPU:0", "GPU:0", "GPU:1"))


def dead(found, sample):
    return {found.layout.names[op] for op in found.layout.sampled(sample).dead}


CONDITIONAL = (
    "x, p -> s=Switch",
    "s:0 -> f -> f2",
    "s:1 -> t",
    "f2, t -> m=Merge -> y",
)


def test_one_branch_of_a_conditional_takes_memory():
    """Beside x, the larger branch, or the two ops of the smaller one."""
    found = step(*CONDITIONAL)
    assert dead(found, 0) == {"f", "f2"}
    assert dead(found, 1) == {"t"}
    order = list(found.graph.ops)
    first = found.peaks(order)["GPU:0"]
    assert first == found.peaks(order, 0)["GPU:0"]
    assert first - found.peaks(order, 1)["GPU:0"] == 8000 - 2 * 1000


def test_what_a_dead_op_would_have_received_is_let_go():
    """x gets to GPU:1 for f, which is dead there, and nothing comes back.

    op      x    p    s    f  ...
    GPU:1   0    0    400  400  0
    """
    found = step(*CONDITIONAL, placement={"f": "GPU:1", "f2": "GPU:1"}, s=400)
    timeline = found.timelines()["GPU:1"]
    at = dict(zip(timeline.order, timeline.bytes, strict=True))
    assert (at["s"], at["f"], at["f2"], at["y"]) == (400, 400, 0, 0)


@pytest.mark.parametrize("gate", ["LoopCond", None])
def test_both_outputs_of_a_switch_of_a_loop_are_taken(gate):
    """A loop goes on, and ends: neither is dead."""
    gated = f"p -> c={gate}" if gate else "p -> c"
    lines = [gated, "x, c -> s=Switch", "s:1 -> body", "s:0 -> exit"]
    found = step(*(lines if gate else [line.replace(", c", "") for line in lines]))
    assert not found.layout.dead_in


def test_a_conditional_within_a_branch_is_dead_with_it():
    """Whatever the inner one decides."""
    found = step(
        "x, p -> s=Switch",
        "s:0 -> f",
        "s:1 -> t",
        "s:1, q -> s2=Switch",
        "s2:0 -> a",
        "s2:1 -> b",
        "a, b -> m2=Merge",
        "f, m2 -> m=Merge",
    )
    assert dead(found, 0) in ({"f", "a"}, {"f", "b"})
    assert {"t", "s2", "m2"} < dead(found, 1)


def test_ops_that_wait_for_a_branch_are_in_it():
    """What a dead op is awaited by does not run."""
    found = step(*CONDITIONAL, "t -> never", "f2 ..> never")
    assert "never" in dead(found, 0)
    assert "never" in dead(found, 1)
