"""What allocators need over several orders, and where ops run at once."""

import pytest
from graphs_by_hand import draw, draw_costs

from placer.prediction.memory.timelines import StepMemory
from placer.prediction.orders.needs import needs_along
from placer.prediction.orders.possible_steps import PossibleSteps

MIB = 2**20


def _needs(device):
    """Two kernels that take 40 MiB each for themselves, after an op that makes both ready.

    x ---> a ---> y
      '--> b ---'
    """
    graph = draw("x -> a -> y", "x -> b -> y", bytes=MIB)
    costs = draw_costs(graph, temporary_bytes={"a": 40 * MIB, "b": 40 * MIB})
    steps = PossibleSteps(graph, costs, accelerated=device != "CPU:0")
    step = steps.memory(dict.fromkeys(graph.ops, device), (device,))
    return needs_along(step, steps.orders, steps.concurrent_orders)[device]


def test_a_cpu_has_the_workspaces_of_two_kernels_in_use_at_once():
    """x, a and b, and both workspaces: 83 MiB in chunks of regions that double."""
    in_use = _needs("CPU:0").in_use
    assert in_use.low_bytes < 64 * MIB
    assert 83 * MIB <= in_use.expected_bytes <= in_use.high_bytes


def test_an_accelerator_launches_one_kernel_after_another():
    """x, a, b and one workspace."""
    in_use = _needs("GPU:0").in_use
    assert in_use.expected_bytes == pytest.approx(43 * MIB, rel=0.01)


def test_gpus_take_one_region_and_cpus_grow():
    """3 MiB and 2 MiB are 5 in one region; in regions of 4 and 8 MiB the second does not fit beside
    the first, and what is left of the limit must hold it: 4 + 2."""
    graph = draw("x -> a", "x, a -> b", bytes={"x": 3 << 20, "a": 2 << 20, "b": 4})
    found = {}
    for device in ("GPU:0", "CPU:0"):
        step = StepMemory(graph, draw_costs(graph), dict.fromkeys(graph.ops, device), (device,))
        found[device] = needs_along(step, [tuple(graph.ops)])[device]
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
    need = needs_along(step, [depth_first, breadth_first])["GPU:0"].need
    assert need.low_bytes < 2 * 4096 <= need.high_bytes
    assert needs_along(step, [depth_first])["CPU:0"].need.high_bytes == 0
