import time

from cost_models.clusters import parse_cluster
from cost_models.devices import DeviceProperties, Link
from cost_models.estimation import estimate
from cost_models.op_cost import OpCost
from cost_models.op_info import OpInfo, TensorProperties
from cost_models.registry import op_cost
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
    assert op_seconds(OpCost(flops=10**12, measured_seconds=0.25), DEVICE) == 0.25


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
    plain, measured = estimate(ops), estimate(ops, {"b": 0.5, "elsewhere": 1.0})
    assert measured["a"] == plain["a"]
    assert measured["b"].measured_seconds == 0.5
    assert measured["b"].output_bytes == plain["b"].output_bytes


def test_fifty_thousand_ops_take_less_than_two_seconds():
    """A large training graph is costed in the time of a breath."""
    image = TensorProperties(dtype="float32", shape=(32, 56, 56, 64))
    filters = TensorProperties(dtype="float32", shape=(3, 3, 64, 64))
    kinds = (
        OpInfo(op="Conv2D", inputs=(image, filters), outputs=(image,)),
        OpInfo(op="AddV2", inputs=(image, image), outputs=(image,)),
        OpInfo(op="Identity", inputs=(image,), outputs=(image,)),
    )
    ops = {str(number): kinds[number % 3] for number in range(50_000)}
    start = time.process_time()
    estimate(ops)
    assert time.process_time() - start < 2
