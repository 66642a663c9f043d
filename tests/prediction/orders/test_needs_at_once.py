"""What allocators need where ops run at once."""

import pytest
from graphs_by_hand import draw, draw_costs

from placer.prediction.orders.needs import needs_along, peaks_at_once, peaks_in, requests_along
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
    requests = requests_along(step, steps.orders)
    at_once = peaks_at_once(step, steps.threaded_steps)
    return needs_along(step, requests, [*map(peaks_in, requests), *at_once])[device]


def test_a_cpu_has_the_workspaces_of_two_kernels_in_use_at_once():
    """x, a and b, and both workspaces: 83 MiB; one after another x, a, b and one workspace."""
    need = _needs("CPU:0").need
    assert need.low_bytes < 64 * MIB
    assert 83 * MIB <= need.high_bytes < 90 * MIB


def test_an_accelerator_launches_one_kernel_after_another():
    """x, a, b and one workspace."""
    in_use = _needs("GPU:0").in_use
    assert in_use.expected_bytes == pytest.approx(43 * MIB, rel=0.01)
