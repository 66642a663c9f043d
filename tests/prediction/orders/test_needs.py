"""What allocators need over several orders."""

from dataclasses import replace

from graphs_by_hand import draw, draw_costs

from placer.prediction.memory.timelines import StepMemory
from placer.prediction.orders.needs import needs_along, requests_along


def test_gpus_take_one_region_and_cpus_grow():
    """3 MiB and 2 MiB are 5 in one region; in regions of 4 and 8 MiB the second does not fit beside
    the first, and what is left of the limit must hold it: 4 + 2."""
    graph = draw("x -> a", "x, a -> b", bytes={"x": 3 << 20, "a": 2 << 20, "b": 4})
    found = {}
    for device in ("GPU:0", "CPU:0"):
        step = StepMemory(graph, draw_costs(graph), dict.fromkeys(graph.ops, device), (device,))
        found[device] = needs_along(step, requests_along(step, [tuple(graph.ops)]))[device]
    on_gpu, on_cpu = found["GPU:0"], found["CPU:0"]
    assert (on_gpu.allocator, on_cpu.allocator) == ("one region", "growth")
    assert on_cpu.need.expected_bytes >= (6 << 20)
    assert on_gpu.tensor_bytes == on_cpu.tensor_bytes == (5 << 20) + 4
    for need in (on_gpu, on_cpu):
        parts = need.tensor_bytes + need.workspace_bytes + need.padding_bytes
        assert parts + need.fragmentation_bytes == need.need.expected_bytes
        assert need.in_use.low_bytes <= need.in_use.expected_bytes <= need.in_use.high_bytes


def test_workspaces_that_can_be_done_without_are_in_use_and_not_needed():
    """8 MiB besides x and a while a runs, on a GPU alone; the need is as without."""
    graph = draw("x -> a", bytes={"x": 3 << 20, "a": 2 << 20})
    costs = draw_costs(graph)
    costs["a"] = replace(costs["a"], workspace_bytes=8 << 20)
    for device, more in (("GPU:0", 8 << 20), ("CPU:0", 0)):
        step = StepMemory(graph, costs, dict.fromkeys(graph.ops, device), (device,))
        need = needs_along(step, requests_along(step, [tuple(graph.ops)]))[device]
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
    requests = requests_along(step, [depth_first, breadth_first])
    need = needs_along(step, requests)["GPU:0"].need
    assert need.low_bytes < 2 * 4096 <= need.high_bytes
    assert needs_along(step, requests[:1])["CPU:0"].need.high_bytes == 0


def test_first_values_may_be_written_in_any_order():
    """1 MiB, then 400 KiB, then 624 fill the first region of a CPU.  624 before 400: what is left
    for them is less than twice as large and not split, so that the last one is in another region.
    In the one region of a GPU the order makes no difference."""
    graph = draw("a -> b -> c -> d")
    kib = {"a": 1024, "b": 400, "c": 624}
    costs = draw_costs(graph, persistent_bytes={name: size << 10 for name, size in kib.items()})
    first, several = {}, {}
    for device in ("GPU:0", "CPU:0"):
        step = StepMemory(graph, costs, dict.fromkeys(graph.ops, device), (device,))
        requests = requests_along(step, [tuple(graph.ops)] * 8)
        first[device] = needs_along(step, requests[:1])[device].need.high_bytes >> 10
        several[device] = needs_along(step, requests)[device].need.high_bytes >> 10
    assert 2048 <= first["CPU:0"] <= 2048 + 16
    assert several["CPU:0"] >= 2048 + 400
    assert several["GPU:0"] == first["GPU:0"]
