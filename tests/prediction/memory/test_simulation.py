"""A simulation that runs out of room begins again with more."""

import pytest
from graphs_by_hand import draw, draw_costs

from placer.prediction.memory import lifetimes
from placer.prediction.memory.allocations import find_allocations
from placer.prediction.memory.lifetimes import Simulation, find_lifetimes
from placer.prediction.memory.timelines import StepMemory

ORDER = ("empty", "x", "a", "push", "again", "stack", "sent")


@pytest.mark.parametrize(
    ("table", "rows"), [("buffers", 3), ("events", 2), ("chunks", 2), ("pool", 4)]
)
def test_a_simulation_begins_again_where_it_has_no_room(monkeypatch, table, rows):
    """Requests and lifetimes are those of one that had room at once.

    empty ---> push ---> again ---> stack        GPU:0; sent reads what is stacked on GPU:1
    x ---> a --'--------'
    """
    step = step_with_a_list()
    allocations = find_allocations(step, ORDER)
    found = find_lifetimes(step.layout, step.numbers(ORDER), with_reads=True)
    begin, rooms = lifetimes.begin_run, []

    def begin_small(known, wanted, room):
        rooms.append(room)
        run = begin(known, wanted, room)
        return run._replace(**{table: getattr(run, table)[:rows]}) if room == 1 else run

    monkeypatch.setattr(lifetimes, "begin_run", begin_small)
    assert find_allocations(step, ORDER) == allocations
    assert len(rooms) == 2
    assert find_lifetimes(step.layout, step.numbers(ORDER), with_reads=True) == found


def test_reads_and_records_find_room(monkeypatch):
    step = step_with_a_list()
    found = find_lifetimes(step.layout, step.numbers(ORDER), with_reads=True)
    begin, rooms = lifetimes.begin_run, []

    def begin_small(known, wanted, room):
        rooms.append(room)
        run = begin(known, wanted, room)
        return run._replace(reads=run.reads[:2], records=run.records[:2]) if room == 1 else run

    monkeypatch.setattr(lifetimes, "begin_run", begin_small)
    assert find_lifetimes(step.layout, step.numbers(ORDER), with_reads=True) == found
    assert len(rooms) == 2


def step_with_a_list():
    """A tensor is put into a list twice, which is stacked and read on another device."""
    graph = draw(
        "empty=EmptyTensorList, x=Placeholder -> a=Relu",
        "empty -> push=TensorListPushBack",
        "a -> push",
        "push -> again=TensorListPushBack",
        "a -> again",
        "again -> stack=TensorListStack -> sent=Relu",
        bytes=512,
    )
    place = dict.fromkeys(graph.ops, "GPU:0") | {"sent": "GPU:1"}
    return StepMemory(graph, draw_costs(graph), place, ("CPU:0", "GPU:0", "GPU:1"))


def test_an_order_has_every_op_once():
    """Compiled code would write beyond its arrays."""
    step = step_with_a_list()
    numbers = step.numbers(ORDER)
    with pytest.raises(AssertionError, match="twice"):
        Simulation(step.layout, [*numbers, numbers[-1]])
    with pytest.raises(AssertionError, match="last position"):
        Simulation(step.layout, numbers, lasts=[*range(1, len(numbers) + 1)])
