"""The predicted schedule, against drawings and bounds."""

from dataclasses import replace
from itertools import pairwise

import pytest
from graphs_by_hand import draw, draw_cluster, draw_costs
from hypothesis import given
from hypothesis import strategies as st

from cost_models.devices import Link
from placer.prediction.prediction import predict

SECOND = int(1e9)
"""Flops of a second on a drawn device, bytes of a second on a drawn link."""


def _schedule(graph, placement, cluster=None, flops=SECOND):
    cluster = cluster or draw_cluster("GPU:0", "GPU:1", "GPU:2")
    if isinstance(placement, str):
        placement = dict.fromkeys(graph.ops, placement)
    costs = draw_costs(graph, flops=flops)
    return predict(graph, costs, placement, cluster).schedule


def test_a_gpu_runs_one_op_at_a_time():
    """Two independent ops of one second take two seconds, the critical path one."""
    found = _schedule(draw("a", "b"), "GPU:0")
    assert (found.step_seconds, found.critical_path_seconds) == (2.0, 1.0)
    assert found.busy_seconds["GPU:0"] == 2.0


def test_a_cpu_runs_several():
    """With two ops in parallel, three ops of one second take two."""
    cluster = draw_cluster("CPU:0", parallel_ops={"CPU:0": 2})
    found = _schedule(draw("a", "b", "c"), "CPU:0", cluster)
    assert found.step_seconds == 2.0
    assert found.bottleneck_seconds == 1.5


def test_cpu_devices_of_a_task_share_threads():
    """Two ops of one second on one of two CPU devices take the thread of each: one second; a task
    elsewhere has threads of its own."""
    names = "CPU:0", "CPU:1", "/job:worker/task:0/device:CPU:0"
    cluster = draw_cluster(*names)
    assert _schedule(draw("a", "b"), "CPU:0", cluster).step_seconds == 1.0
    assert _schedule(draw("a", "b", "c"), "CPU:1", cluster).step_seconds == 2.0
    assert _schedule(draw("a", "b"), names[2], cluster).step_seconds == 2.0


def test_transfers_overlap_computation():
    """a is sent while b runs: c starts when the second is over, not later.

    GPU:0   |--a--|--b--|
    link          |==a==|
    GPU:1               |--c--|
    """
    graph = draw("a -> c", "b", bytes={"a": SECOND})
    found = _schedule(graph, {"a": "GPU:0", "b": "GPU:0", "c": "GPU:1"})
    assert found.start_seconds == {"a": 0.0, "c": 2.0, "b": 1.0}
    assert found.transfer_seconds == {("a:0", "GPU:1", "device"): (1.0, 2.0)}
    assert found.step_seconds == 3.0
    assert found.bottleneck_seconds == 2.0 + 1.0


def test_a_link_carries_one_transfer_at_a_time():
    """Two tensors of a second over one link arrive one after the other, over two links at once."""
    graph = draw("a:0 -> b", "a:1 -> c", bytes=SECOND)
    assert _schedule(graph, {"a": "GPU:0", "b": "GPU:1", "c": "GPU:1"}).start_seconds["c"] == 3.0
    assert _schedule(graph, {"a": "GPU:0", "b": "GPU:1", "c": "GPU:2"}).start_seconds["c"] == 2.0


def test_a_tensor_is_sent_once_per_destination():
    """Two readers on one device share a transfer, and control edges take the latency alone."""
    graph = draw("a -> b, c", "a ..> d", bytes={"a": SECOND})
    cluster = replace(
        draw_cluster("GPU:0", "GPU:1"), links={("GPU:0", "GPU:1"): Link(bandwidth=1e9, latency=0.5)}
    )
    placement = {"a": "GPU:0", "b": "GPU:1", "c": "GPU:1", "d": "GPU:1"}
    found = _schedule(graph, placement, cluster)
    assert found.start_seconds["b"] == 1.0 + 1.5
    assert found.start_seconds["c"] == 1.0 + 1.5 + 1.0
    assert found.start_seconds["d"] == 1.0 + 1.5 + 2.0


def test_the_step_waits_for_fetched_values():
    """A fetched value has to come back to the host."""
    graph = draw("a", bytes=SECOND, fetches=["a:0"])
    assert _schedule(graph, "GPU:0").step_seconds == 2.0
    assert _schedule(graph, "CPU:0").step_seconds == 1.0


def test_host_memory_is_not_copied_to_itself():
    """A tensor that a GPU kernel leaves in host memory costs its reader on the host no copy."""
    graph = draw("x -> s=Shape -> y", dtypes={"s": "int32"}, bytes={"x": 4, "s": SECOND})
    found = _schedule(graph, {"x": "GPU:0", "s": "GPU:0", "y": "CPU:0"})
    assert found.start_seconds["y"] == 2.0


def test_an_unknown_device_is_named():
    """A placement on a device that the cluster lacks raises a KeyError."""
    with pytest.raises(KeyError, match="GPU:7"):
        _schedule(draw("a"), "GPU:7")


@st.composite
def _placed_graphs(draw_value):
    size = draw_value(st.integers(1, 8))
    pairs = [(i, j) for j in range(size) for i in range(j)]
    chosen = draw_value(st.lists(st.sampled_from(pairs), max_size=12)) if pairs else []
    graph = draw(
        *(f"n{i}" for i in range(size)),
        *(f"n{i} -> n{j}" for i, j in chosen),
        bytes={f"n{i}": 1000 * draw_value(st.integers(1, 5)) for i in range(size)},
        fetches=["n0:0"],
    )
    devices = st.sampled_from(["CPU:0", "GPU:0", "GPU:1"])
    placement = {name: draw_value(devices) for name in graph.ops}
    flops = {name: draw_value(st.integers(0, 5000)) for name in graph.ops}
    return graph, placement, flops


@given(case=_placed_graphs())
def test_the_step_is_bounded_from_below_and_above(case):
    """Longest op <= critical path <= step, busiest device <= step <= everything in sequence."""
    graph, placement, flops = case
    found = _schedule(graph, placement, flops=flops)
    seconds = [found.finish_seconds[n] - found.start_seconds[n] for n in graph.ops]
    slack = 1 + 1e-9
    assert max(seconds) <= found.critical_path_seconds * slack
    assert found.critical_path_seconds <= found.step_seconds * slack
    assert max(found.busy_seconds.values()) <= found.step_seconds * slack
    sent = 3 * sum(tensor.properties.shape[0] * 4 for tensor in graph.tensors.values()) / 1e9
    assert found.step_seconds <= (sum(seconds) + sent) * slack


@given(case=_placed_graphs())
def test_nothing_starts_before_it_can(case):
    """Every op follows its producers, and no two ops share a device at one time."""
    graph, placement, flops = case
    found = _schedule(graph, placement, flops=flops)
    for op in graph.ops.values():
        for tensor in op.inputs:
            producer = tensor.rpartition(":")[0]
            assert found.start_seconds[op.name] >= found.finish_seconds[producer]
    for device in set(placement.values()):
        runs = sorted(
            (found.start_seconds[name], found.finish_seconds[name])
            for name in graph.ops
            if placement[name] == device
        )
        assert all(a[1] <= b[0] for a, b in pairwise(runs))


def test_a_ring_waits_for_all_and_lets_its_devices_compute():
    """a takes two seconds and b one: the ring of four rounds starts when both are done; c runs
    meanwhile.

    GPU:0   |--a--|--a2-|
    GPU:1   |--b--|--c--|
    ring                |==r==| ... |
    """
    graph = draw("a -> a2 -> r0", "b -> r1", "b -> c")
    ops = dict(graph.ops)
    keys = {"group_key": 1, "instance_key": 2, "group_size": 2}
    for name in ("r0", "r1"):
        info = replace(ops[name].info, op="CollectiveReduce", attributes=keys)
        ops[name] = replace(ops[name], info=info)
    ring = replace(graph, ops=ops)
    placement = {"a": "GPU:0", "a2": "GPU:0", "r0": "GPU:0"}
    placement |= {"b": "GPU:1", "r1": "GPU:1", "c": "GPU:1"}
    costs = draw_costs(ring, flops=dict.fromkeys(("a", "a2", "b", "c"), SECOND))
    costs |= {name: replace(costs[name], output_bytes=(4 * SECOND,)) for name in ("r0", "r1")}
    found = predict(ring, costs, placement, draw_cluster("GPU:0", "GPU:1"))
    times = found.schedule
    assert times.start_seconds["r0"] == times.start_seconds["r1"] == 2.0
    assert times.start_seconds["c"] == 1.0
    # 2 (n - 1) rounds of an n-th part, at a byte per nanosecond
    assert times.finish_seconds["r1"] - 2.0 == pytest.approx(2 * 1 * 4 / 2)
    assert found.collective_bytes == 2 * 1 * 4 * SECOND
