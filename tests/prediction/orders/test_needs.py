"""What allocators need over several orders."""

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
