"""What allocators need over several orders."""

from dataclasses import replace

import pytest
from graphs_by_hand import draw, draw_costs

from placer.prediction.memory.timelines import StepMemory
from placer.prediction.metrics import PeakRange
from placer.prediction.orders.needs import (
    needs_along,
    parts_of_needs,
    peaks_in,
    requests_along,
    with_orders_ahead,
)


def _needs(step, *orders):
    """The needs along these orders, ops one after another."""
    requests = requests_along(step, orders)
    return needs_along(step, requests, [*map(peaks_in, requests)])


def test_gpus_take_one_region_and_cpus_what_lives_at_once():
    """3 MiB and 2 MiB and 4 bytes; on a GPU in chunks."""
    graph = draw("x -> a", "x, a -> b", bytes={"x": 3 << 20, "a": 2 << 20, "b": 4})
    found = {}
    for device in ("GPU:0", "CPU:0"):
        step = StepMemory(graph, draw_costs(graph), dict.fromkeys(graph.ops, device), (device,))
        found[device] = _needs(step, tuple(graph.ops))[device]
    on_gpu, on_cpu = found["GPU:0"], found["CPU:0"]
    assert (on_gpu.allocator, on_cpu.allocator) == ("one region", "")
    assert on_gpu.need.expected_bytes >= (5 << 20) + 256
    assert on_cpu.need.expected_bytes == (5 << 20) + 4
    assert on_gpu.tensor_bytes == on_cpu.tensor_bytes == (5 << 20) + 4
    for need in (on_gpu, on_cpu):
        parts = need.tensor_bytes + need.workspace_bytes + need.padding_bytes
        assert parts + need.fragmentation_bytes == need.need.expected_bytes
        assert need.in_use.low_bytes <= need.in_use.expected_bytes <= need.in_use.high_bytes


def test_orders_that_are_not_followed_may_need_more():
    """5% of the 80 MiB that do not stay, and nothing for the 10 that do."""
    graph = draw("w=Const -> a", "x -> a", bytes={"w": 10 << 20, "x": 40 << 20, "a": 40 << 20})
    costs = draw_costs(graph, persistent_bytes={"w": 10 << 20})
    step = StepMemory(graph, costs, dict.fromkeys(graph.ops, "GPU:0"), ("GPU:0",))
    need = _needs(step, tuple(graph.ops))["GPU:0"].need
    assert need.expected_bytes == 90 << 20
    assert 94 << 20 <= need.high_bytes < 94.5 * (1 << 20)


@pytest.mark.parametrize(("count", "more"), [(1, 24), (3, 20), (7, 12)])
def test_where_iterations_run_there_is_room_for_the_largest_request_once_more(count, more):
    """A chunk of less than twice its bytes is not split: of 80 MiB at least 15%, at most 30."""
    names = [f"x{number}" for number in range(count)]
    each = (80 << 20) // (count + 1)
    graph = draw(f"{', '.join(names)} -> a", bytes=dict.fromkeys([*names, "a"], each))
    placement = dict.fromkeys(graph.ops, "GPU:0")
    step = StepMemory(graph, draw_costs(graph), placement, ("GPU:0",), owner={"a": "while"})
    need = _needs(step, tuple(graph.ops))["GPU:0"].need
    assert need.expected_bytes == 80 << 20
    assert (80 + more) << 20 <= need.high_bytes < (80.5 + more) * (1 << 20)


def test_loops_that_run_side_by_side_may_need_twice_as_much_more():
    """Of 90 MiB beyond what is followed 15% for one loop after the other, 30% for both at once."""
    first, second = ([f"{loop}{number}" for number in range(4)] for loop in "ab")
    names = [*first, *second]
    graph = draw(f"{', '.join(names)} -> sum", bytes=dict.fromkeys([*names, "sum"], 10 << 20))
    owner = {name: name[0] for name in names}
    placement = dict.fromkeys(graph.ops, "GPU:0")
    step = StepMemory(graph, draw_costs(graph), placement, ("GPU:0",), owner=owner)
    in_turn = (name for pair in zip(first, second, strict=True) for name in pair)
    for order, more in ((names, 13.5), (in_turn, 27)):
        need = _needs(step, (*order, "sum"))["GPU:0"].need
        assert need.expected_bytes == 90 << 20
        assert need.high_bytes == pytest.approx((90 + more) * (1 << 20), rel=0.01)


def test_workspaces_that_can_be_done_without_are_in_use_and_not_needed():
    """8 MiB besides x and a while a runs, on a GPU alone; the need is as without."""
    graph = draw("x -> a", bytes={"x": 3 << 20, "a": 2 << 20})
    costs = draw_costs(graph)
    costs["a"] = replace(costs["a"], workspace_bytes=8 << 20)
    for device, more in (("GPU:0", 8 << 20), ("CPU:0", 0)):
        step = StepMemory(graph, costs, dict.fromkeys(graph.ops, device), (device,))
        need = _needs(step, tuple(graph.ops))[device]
        assert need.with_workspace_bytes == need.in_use.expected_bytes + more
        assert need.workspace_bytes == 0
        assert need.need.high_bytes < 8 << 20


def test_the_kernel_of_a_gpu_may_take_less():
    """What a CPU's kernel takes for itself counts where the op is on a CPU."""
    graph = draw("x -> a", bytes={"x": 1 << 20, "a": 1 << 20})
    costs = draw_costs(graph)
    costs["a"] = replace(costs["a"], temporary_bytes=4 << 20, gpu_temporary_bytes=1 << 20)
    found = {}
    for device in ("GPU:0", "CPU:0"):
        step = StepMemory(graph, costs, dict.fromkeys(graph.ops, device), (device,))
        found[device] = step.peaks(tuple(graph.ops))[device]
    assert found == {"GPU:0": 3 << 20, "CPU:0": 6 << 20}


def test_the_range_is_over_the_orders():
    """Finishing one branch before the other needs less."""
    graph = draw("x -> a -> a2 -> y", "x -> b -> b2 -> y", bytes={"a": 4000, "b": 4000})
    depth_first = ("x", "a", "a2", "b", "b2", "y")
    breadth_first = ("x", "a", "b", "a2", "b2", "y")
    placement = dict.fromkeys(graph.ops, "GPU:0")
    step = StepMemory(graph, draw_costs(graph), placement, ("GPU:0", "CPU:0"))
    need = _needs(step, depth_first, breadth_first)["GPU:0"].need
    assert need.low_bytes < 2 * 4096 <= need.high_bytes
    assert _needs(step, depth_first)["CPU:0"].need.high_bytes == 0


def test_every_step_may_take_another_order():
    """v becomes g, of 8 MiB.  Along either order alone it is served in 17 MiB; where a step of the
    second follows one of the first, x of 1 MiB leaves too little before v.

    first:   | v      |x|      ==> | v      | g      |     ==> |        | v      |
    second:  |        | v      |   ==> |x.......| v      | g      |
    """
    graph = draw(
        "v=VarHandleOp, g -> u=AssignVariableOp",
        "s -> g",
        "s -> x -> y",
        bytes={"g": 8 << 20, "x": 1 << 20},
        dtypes={"v": "resource"},
    )
    costs = draw_costs(graph, persistent_bytes={"v": 8 << 20})
    step = StepMemory(graph, costs, dict.fromkeys(graph.ops, "GPU:0"), ("GPU:0",))
    requests = requests_along(step, (tuple("vsxygu"), tuple("vsxguy")))
    needs = needs_along(step, requests, [*map(peaks_in, requests)])
    assert 17 << 20 < needs["GPU:0"].need.high_bytes < 18 << 20
    found = with_orders_ahead(step, needs, [], requests)
    assert 24 << 20 < found["GPU:0"].need.high_bytes < 25 << 20
    assert with_orders_ahead(step, needs, []) == needs


def test_no_order_needs_less_than_its_peak_or_than_loading_does():
    """A single order is followed, and a little below it is thought of: loading is not below."""
    graph = draw("w=Const -> a", "x -> a", bytes={"w": 8 << 20, "x": 1 << 20, "a": 1 << 20})
    costs = draw_costs(graph, persistent_bytes={"w": 8 << 20})
    step = StepMemory(graph, costs, dict.fromkeys(graph.ops, "GPU:0"), ("GPU:0",))
    requests = requests_along(step, [tuple(graph.ops)])
    peaks = [*map(peaks_in, requests)]
    needs = needs_along(step, requests, peaks)
    caps, low = {"GPU:0": 64 << 20}, needs["GPU:0"].need.low_bytes
    floor = PeakRange(low_bytes=low + 7, expected_bytes=low + 8, high_bytes=low + 9)
    for peak in (replace(floor, low_bytes=low), floor):
        found = parts_of_needs(step, needs, {"GPU:0": peak}, requests, caps)["GPU:0"]
        least = max(peak.low_bytes, found.parts.loading_bytes)
        assert least <= found.need.low_bytes <= found.need.expected_bytes <= found.need.high_bytes


def test_no_peak_of_a_step_is_above_all_parts_of_its_need():
    """A step whose peak is 64 MiB, and whose allocator needs 5 along the orders that are followed:
    no split of chunks makes 64 MiB fit."""
    graph = draw("x -> a", "x, a -> b", bytes={"x": 3 << 20, "a": 2 << 20, "b": 4})
    placement = dict.fromkeys(graph.ops, "GPU:0")
    step = StepMemory(graph, draw_costs(graph), placement, ("GPU:0",))
    requests = requests_along(step, [tuple(graph.ops)])
    needs = needs_along(step, requests, [*map(peaks_in, requests)])
    peak = PeakRange(low_bytes=5 << 20, expected_bytes=5 << 20, high_bytes=64 << 20)
    found = parts_of_needs(step, needs, {"GPU:0": peak}, requests, {"GPU:0": 8 << 20})
    parts = found["GPU:0"].parts
    assert (parts.first_step_bytes, parts.later_steps_bytes) == (64 << 20, 64 << 20)
    assert not parts.serves_split


def test_no_more_orders_are_followed_once_one_is_above_a_limit() -> None:
    """Drawing orders is what takes the time: none is drawn after one that needs more than the
    limit, and all are where none does."""
    graph = draw("s -> a -> b -> c", bytes={"a": 8 << 20, "b": 4 << 20, "c": 1 << 20})
    step = StepMemory(graph, draw_costs(graph), dict.fromkeys(graph.ops, "GPU:0"), ("GPU:0",))
    order = tuple("sabc")
    requests = requests_along(step, [order])
    needs = needs_along(step, requests, [*map(peaks_in, requests)])
    least = needs["GPU:0"].need.high_bytes
    for limit, count in ((least, 3), (least - 1, 1)):
        drawn = []
        ahead = (drawn.append(number) or order for number in range(3))
        found = with_orders_ahead(step, needs, ahead, requests, {"GPU:0": limit})
        assert found == needs
        assert len(drawn) == count
