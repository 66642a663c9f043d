from dataclasses import replace

import pytest

from cost_models.clusters import parse_cluster
from cost_models.devices import DeviceProperties, Efficiency, Link
from cost_models.op_cost import OpCost, with_measured
from cost_models.op_info import OpInfo, TensorProperties
from cost_models.registry import estimate, op_cost
from cost_models.roofline import op_seconds, transfer_seconds

DEVICE = DeviceProperties(
    name="GPU:0",
    type="GPU",
    memory_limit_bytes=1,
    peak_flops=1e12,
    memory_bandwidth=1e11,
    launch_seconds=1e-6,
)


def test_an_op_takes_the_longer_of_computing_and_moving():
    """Compute-bound and bytes-bound ops sit on the two sides of the roofline's ridge."""
    assert op_seconds(OpCost(flops=10**9, bytes_accessed=10**7), DEVICE) == 1e-6 + 1e-3
    assert op_seconds(OpCost(flops=10**6, bytes_accessed=10**8), DEVICE) == 1e-6 + 1e-3


def test_free_ops_launch_nothing():
    """An alias takes no time; a measured op takes what was measured."""
    assert op_seconds(OpCost(), DEVICE) == 0
    assert op_seconds(OpCost(flops=10**12, measured_seconds={"": 0.25}), DEVICE) == 0.25


def test_a_measured_time_holds_on_devices_of_its_type():
    """What was measured on a CPU says nothing about a GPU."""
    cost = OpCost(flops=10**9, measured_seconds={"CPU": 0.25})
    assert op_seconds(cost, replace(DEVICE, name="CPU:0", type="CPU")) == 0.25
    assert op_seconds(cost, DEVICE) == 1e-6 + 1e-3


def test_efficiency_is_that_of_the_op_type_or_of_its_family():
    """A device reaches a part of its peaks, by op type where that is known."""
    device = replace(
        DEVICE,
        efficiency={
            "matmul": Efficiency(compute=0.5, memory=0.25),
            "MatMul": Efficiency(compute=0.1, launch_seconds=2e-6),
        },
    )
    matmul = OpCost(flops=10**9, op_type="MatMul", family="matmul")
    batch = OpCost(flops=10**9, op_type="BatchMatMulV2", family="matmul")
    moving = OpCost(bytes_accessed=10**8, op_type="BatchMatMulV2", family="matmul")
    assert op_seconds(matmul, device) == pytest.approx(2e-6 + 1e-2)
    assert op_seconds(batch, device) == pytest.approx(1e-6 + 2e-3)
    assert op_seconds(moving, device) == pytest.approx(1e-6 + 4e-3)


def test_only_a_cpu_cuts_and_packs():
    """Pieces are launches, and packed bytes traffic, of a CPU alone."""
    cost = OpCost(flops=1, bytes_accessed=10**8, packed_bytes=10**8, pieces=10)
    assert op_seconds(cost, DEVICE) == pytest.approx(1e-6 + 1e-3)
    host = replace(DEVICE, name="CPU:0", type="CPU")
    assert op_seconds(cost, host) == pytest.approx(10e-6 + 2e-3)


def test_an_op_with_bodies_takes_as_long_as_what_runs_in_them():
    """Each inner op has its own roofline: the sum is more than the roofline of the sums."""
    computing = OpCost(flops=10**9)
    moving = OpCost(bytes_accessed=10**8)
    loop = OpCost(flops=10**10, bytes_accessed=10**9, inner=(computing, moving), repeats=10)
    assert op_seconds(loop, DEVICE) == pytest.approx(10 * (2e-6 + 2e-3))


def test_a_transfer_takes_its_latency_and_its_bytes():
    """A tensor without a size still takes the latency."""
    link = Link(bandwidth=1e9, latency=1e-5)
    assert transfer_seconds(10**6, link) == 1e-5 + 1e-3
    assert transfer_seconds(None, link) == 1e-5


def test_a_faster_device_is_never_slower():
    """Every preset's product of large matrices takes time in the order of their peaks."""
    tensor = TensorProperties(dtype="float32", shape=(8192, 8192))
    cost = op_cost(OpInfo(op="MatMul", inputs=(tensor, tensor), outputs=(tensor,)))
    slow, fast = (parse_cluster(spec).device("GPU:0") for spec in ("T4", "H100-80GB"))
    assert op_seconds(cost, slow) > 10 * op_seconds(cost, fast)


def test_measured_seconds_are_kept_beside_the_bytes():
    """Measured times are taken by op name, and leave flops and bytes as they were."""
    tensor = TensorProperties(dtype="float32", shape=(8,))
    ops = {name: OpInfo(op="Relu", inputs=(tensor,), outputs=(tensor,)) for name in "ab"}
    plain = estimate(ops)
    measured = with_measured(plain, {"b": 0.5, "elsewhere": 1.0}, "GPU")
    assert measured["a"] == plain["a"]
    assert measured["b"].measured_seconds == {"GPU": 0.5}
    assert set(measured) == {"a", "b"}
    assert measured["b"].output_bytes == plain["b"].output_bytes
