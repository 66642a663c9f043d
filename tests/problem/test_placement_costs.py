"""What a placement costs: messages, slower work, sizes that are not known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from graphs_by_hand import draw, draw_costs

from cost_models.clusters import parse_cluster
from cost_models.devices import Link
from cost_models.op_cost import OpCost
from cost_models.op_info import TensorProperties
from cost_models.roofline import op_seconds
from placer.pipeline.formulation import build_problem
from placer.prediction.costs.assumed_sizes import STRING_BYTES, assume_sizes
from placer.prediction.scoring import score
from placer.problem.constraints import ConstraintOptions, find_constraints
from placer.problem.placement_costs import cost_link, slower_seconds

CLUSTER = parse_cluster("GPU:0:9999,GPU:1:9999,CPU:0:9999")


def problem_of(graph, costs, cluster=CLUSTER, **options):
    """The problem, with ``spill`` or ``assumed`` of ``options``, the rest being asked for."""
    known = {name: options.pop(name) for name in ("spill", "assumed") if name in options}
    constraints = find_constraints(graph, cluster, ConstraintOptions(**options))
    return build_problem(graph, costs, cluster, constraints, **known)


def test_work_is_counted_without_launches():
    """A kernel takes its flops, what does nothing takes nothing, a measured time is taken whole,
    and a loop takes what runs in it."""
    gpu = CLUSTER.device("GPU:0")
    cost = OpCost(flops=10**9, bytes_accessed=10, launches=7)
    seconds = op_seconds(cost, gpu, launches=False)
    assert seconds == op_seconds(replace(cost, launches=0), gpu) < op_seconds(cost, gpu)
    assert op_seconds(OpCost(launches=1), gpu, launches=False) == 0.0
    measured = OpCost(measured_seconds={"GPU": 0.5})
    assert op_seconds(measured, gpu, launches=False) == 0.5
    loop = OpCost(flops=3 * 10**9, inner=(cost, OpCost()), repeats=3)
    assert op_seconds(loop, gpu, launches=False) == 3 * seconds


def test_slower_work_is_beside_the_fastest_accelerator_that_law_leaves():
    """On the faster of two cards an op costs nothing, on the other and on the host what it takes
    longer there, whatever was asked; what has no GPU kernel costs nothing anywhere."""
    cluster = parse_cluster("A100-40GB,T4,CPU:64GiB")
    graph = draw("x=Placeholder -> a -> t=HashTableV2", feeds=["x"], dtypes={"t": "resource"})
    costs = draw_costs(graph) | {"a": OpCost(flops=10**12, output_bytes=(4,))}
    constraints = find_constraints(graph, cluster, ConstraintOptions())
    fast, slow, host = slower_seconds(costs, cluster, constraints)["a"]
    assert 0.0 == fast < slow < host
    assert set(slower_seconds(costs, cluster, constraints)["t"]) == {0.0}
    asked = find_constraints(graph, cluster, ConstraintOptions(pins={"a": "CPU:0"}))
    assert slower_seconds(costs, cluster, asked)["a"] == (fast, slow, host)
    held = find_constraints(graph, cluster, ConstraintOptions(keep_together=("*",)))
    assert slower_seconds(costs, cluster, held)["a"] == (fast, slow, host)


def test_what_law_holds_on_the_host_is_no_slower_work():
    """An op that shares a device with a table by law has no accelerator that could run it."""
    graph = draw("t=HashTableV2 -> a", groups=[["t", "a"]], dtypes={"t": "resource"})
    costs = draw_costs(graph) | {"a": OpCost(flops=10**12, output_bytes=(4,))}
    problem = problem_of(graph, costs)
    assert {cost for row in problem.slower_bytes for cost in row} == {0}


def test_messages_are_counted_by_the_fastest_link_of_the_host():
    """Bandwidth and latency are of the link between the host and an accelerator; links between
    accelerators may be faster."""
    links = {("CPU:0", "GPU:1"): Link(bandwidth=2e9, latency=5e-6)}
    links |= {("GPU:0", "GPU:1"): Link(bandwidth=9e9, latency=1e-6)}
    slow = Link(bandwidth=1e9, latency=3e-6)
    cluster = replace(CLUSTER, links=links, default_link=slow)
    assert cost_link(cluster) == links["CPU:0", "GPU:1"]
    graph = draw("a -> b")
    assert problem_of(graph, draw_costs(graph), cluster).message_bytes == 10_000
    without = replace(cluster, links={}, default_link=Link(bandwidth=1e9, latency=0.0))
    assert problem_of(graph, draw_costs(graph), without).message_bytes == 0


def test_what_is_fetched_is_read_on_the_host():
    """A result of 40 bytes is sent to the host, once, though an op there reads it too."""
    graph = draw("a -> b", bytes={"a": 40, "b": 8}, fetches=["a:0"])
    problem = problem_of(graph, draw_costs(graph))
    assert score(problem, (0, 0)).sent_bytes == 40
    assert score(problem, (0, 2)).sent_bytes == 40
    assert score(problem, (2, 2)).sent_bytes == 0


def test_every_op_with_a_cpu_kernel_may_be_on_the_host_unless_it_is_held():
    """Pins and device strings hold ops; with ``--offload never`` none goes there by itself."""
    graph = draw("a -> b -> c -> d=CudnnRNN", devices={"b": "/gpu:1"})
    problem = problem_of(graph, draw_costs(graph), pins={"c": "GPU:0"})
    assert [problem.may_use(op, 2) for op in range(4)] == [True, False, False, False]
    assert [problem.may_use(op, 0) for op in range(4)] == [True, False, True, True]
    never = problem_of(graph, draw_costs(graph), spill="never")
    assert not any(never.may_use(op, 2) for op in range(4))


def test_the_client_of_a_cluster_is_for_what_is_fed_or_pinned_there():
    """Other ops use the CPUs of the tasks, and the accelerators, whether or not a task lists its
    CPU; ``any_ops`` opens the client."""
    names = "/job:w/task:0/device:CPU:0", "/job:w/task:0/device:GPU:0"
    parts = parse_cluster("GPU:0:9999,CPU:0:9999")
    tasks = [replace(parts.device(n[-5:]), name=n) for n in names]
    cluster = replace(parts, devices=(parts.host, *tasks))
    graph = draw("x=Placeholder -> a -> b", feeds=["x"])
    problem = problem_of(graph, draw_costs(graph), cluster, pins={"b": "CPU:0"})
    found = [[d for d in range(3) if problem.may_use(op, d)] for op in range(3)]
    assert found == [[0], [1, 2], [0]]
    never = problem_of(graph, draw_costs(graph), cluster, spill="never")
    assert [d for d in range(3) if never.may_use(1, d)] == [2]
    gpu = replace(cluster, devices=(cluster.devices[0], cluster.devices[2]))
    alone = problem_of(graph, draw_costs(graph), gpu)
    assert [d for d in range(2) if alone.may_use(1, d)] == [1]
    opened = replace(cluster, devices=(replace(parts.host, any_ops=True), *tasks))
    free = problem_of(graph, draw_costs(graph), opened)
    assert [d for d in range(3) if free.may_use(1, d)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("shape", "dtype", "size"),
    [
        ((None, 6), "float32", 8 * 6 * 4),
        (None, "float32", 8 * 20 * 4),
        ((None, None), "float32", 8 * 20 * 4),
        ((None,), "string", 8 * STRING_BYTES),
        (None, "int64", 8 * 20 * 4),
        (None, "resource", None),
    ],
)
def test_an_unknown_size_is_never_nothing(shape, dtype, size):
    """An unknown dimension is the batch of 8; where more is missing, a batch of the widest rows of
    the type, or the widest tensor of all; handles have no bytes."""
    graph = draw("x -> a -> b", feeds=["x"])
    outputs = {"x": ((8, 20), "float32"), "a": (shape, dtype)}
    for name, (known, kind) in outputs.items():
        op = graph.ops[name]
        properties = TensorProperties(dtype=kind, shape=known)
        op = replace(op, info=replace(op.info, outputs=(properties,)))
        graph = replace(graph, ops={**graph.ops, name: op})
    costs = draw_costs(draw("x -> a -> b"))
    costs |= {"x": OpCost(output_bytes=(640,)), "a": OpCost(output_bytes=(None,))}
    assert assume_sizes(graph, costs, 8).get("a:0") == size
