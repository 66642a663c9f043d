"""What allocators need where ops run at once."""

import pytest
from graphs_by_hand import draw, draw_costs

from cost_models.clusters import parse_cluster
from placer.prediction.memory.timelines import StepMemory
from placer.prediction.orders.needs import needs_along, requests_along
from placer.prediction.orders.possible_steps import PossibleSteps
from placer.prediction.prediction import predict

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
    return needs_along(step, requests, steps.threaded_steps)[device]


def test_a_cpu_has_the_workspaces_of_two_kernels_in_use_at_once():
    """x, a and b, and both workspaces: 83 MiB in chunks of regions that double."""
    in_use = _needs("CPU:0").in_use
    assert in_use.low_bytes < 64 * MIB
    assert 83 * MIB <= in_use.expected_bytes <= in_use.high_bytes


def test_an_accelerator_launches_one_kernel_after_another():
    """x, a, b and one workspace."""
    in_use = _needs("GPU:0").in_use
    assert in_use.expected_bytes == pytest.approx(43 * MIB, rel=0.01)


def _highest_need(owner):
    """Of the graph above; ``owner`` says which ops are those of a loop that is laid out."""
    graph = draw("x -> a -> y", "x -> b -> y", bytes=MIB)
    costs = draw_costs(graph, temporary_bytes={"a": 40 * MIB, "b": 40 * MIB})
    steps = PossibleSteps(graph, costs, accelerated=False)
    step = StepMemory(graph, costs, dict.fromkeys(graph.ops, "CPU:0"), ("CPU:0",), "CPU:0", owner)
    requests = requests_along(step, [("x", "a", "b", "y")])
    return needs_along(step, requests, steps.threaded_steps)["CPU:0"].need.high_bytes


def test_kernels_wait_for_memory_and_iterations_do_not():
    """One workspace fits under the need of a step without loops; in a loop every way counts."""
    assert _highest_need({}) < 64 * MIB
    assert _highest_need({"a": "loop", "b": "loop"}) >= 83 * MIB


def test_what_one_thread_puts_aside_first_another_one_takes():
    """40 MiB that a alone still reads, and seven products of 10 MiB that are kept to the end.  One
    thread comes to a after all of these; where there are two, the other one takes it first.

    x ---> big ---> s ---> a, b0, b1, ...
             '-----------> a
    """
    products = [f"b{number}" for number in range(7)]
    graph = draw(
        "x=Placeholder -> big -> s",
        "big, s -> a -> y",
        *(f"s -> {name} -> y" for name in products),
        bytes={"big": 40 * MIB, **dict.fromkeys(products, 10 * MIB)},
        feeds=["x"],
    )
    steps = PossibleSteps(graph, draw_costs(graph), accelerated=False)
    step = steps.memory(dict.fromkeys(graph.ops, "CPU:0"), ("CPU:0",))
    alone = needs_along(step, requests_along(step, steps.orders))["CPU:0"].need
    assert alone.low_bytes >= 140 * MIB
    placement = dict.fromkeys(graph.ops, "CPU:0")
    found = predict(graph, draw_costs(graph), placement, parse_cluster("CPU:0"))
    assert found.needs["CPU:0"].need.high_bytes < 100 * MIB
    assert found.peaks["CPU:0"].high_bytes >= 110 * MIB
