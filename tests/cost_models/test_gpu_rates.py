"""How fast a GPU is, by precision, kind of op and size: what is stated, as formulas."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_models.clusters import parse_cluster
from cost_models.devices import DeviceProperties, Efficiency, presets
from cost_models.op_cost import OpCost
from cost_models.op_info import OpInfo, TensorProperties
from cost_models.registry import has_rule, op_cost
from cost_models.roofline import capability_of, op_seconds, precision_rate, usual_efficiencies

GPU = DeviceProperties(
    name="GPU:0",
    type="GPU",
    memory_limit_bytes=1,
    peak_flops=13.4e12,
    memory_bandwidth=616e9,
    launch_seconds=5e-6,
)
HOST = replace(GPU, name="CPU:0", type="CPU")
RATES = usual_efficiencies()


def matmul(size, dtype="float32"):
    square = TensorProperties(dtype=dtype, shape=(size, size))
    return op_cost(OpInfo(op="MatMul", inputs=(square, square), outputs=(square,)))


def convolution(channels=64, window=3, out=64, stride=1, dtype="float32", op="Conv2D", pixels=56):
    """A convolution of 32 images with ``pixels`` squared outputs each."""
    image = TensorProperties(dtype=dtype, shape=(32, channels, pixels * stride, pixels * stride))
    filters = TensorProperties(dtype=dtype, shape=(window, window, channels, out))
    result = TensorProperties(dtype=dtype, shape=(32, out, pixels, pixels))
    sizes = TensorProperties(dtype="int32", shape=(4,))
    tensors = {
        "Conv2D": ((image, filters), result),
        "Conv2DBackpropInput": ((sizes, filters, result), image),
        "Conv2DBackpropFilter": ((image, sizes, result), filters),
    }
    inputs, output = tensors[op]
    attributes = {"data_format": "NCHW", "strides": (1, 1, stride, stride)}
    return op_cost(OpInfo(op=op, inputs=inputs, outputs=(output,), attributes=attributes))


def seconds_computing(cost, device=GPU):
    """Of an op so much work that neither its launch nor its bytes count."""
    return op_seconds(replace(cost, bytes_accessed=1), device) - device.launch_seconds


@pytest.mark.parametrize(
    ("preset", "precision", "rate"),
    [
        ("V100-16GB", "float32", 15.7e12),
        ("V100-16GB", "float16", 125.6e12),
        ("V100-16GB", "bfloat16", 15.7e12),
        ("V100-16GB", "float64", 7.85e12),
        ("T4", "float16", 32.4e12),
        ("A100-40GB", "float32", 156e12),
        ("A100-40GB", "float16", 312e12),
        ("A100-40GB", "bfloat16", 312e12),
        ("A100-40GB", "float64", 19.5e12),
        ("H100-80GB", "float16", 989e12),
    ],
)
def test_the_peak_of_a_precision_is_that_of_the_datasheet(preset, precision, rate):
    """Tensor cores take float16 from 7.0 and float32 and bfloat16 from 8.0 on."""
    device = parse_cluster(preset).device("GPU:0")
    assert precision_rate(device, matmul(64, precision)) == pytest.approx(rate)


@pytest.mark.parametrize(
    ("peak_flops", "capability", "given", "rate"),
    [
        (11.3e12, "6.1", None, 11.3e12),  # no tensor cores
        (13.4e12, "", None, 4 * 13.4e12),  # taken for 7.5
        (77.4e12, "", None, 2 * 77.4e12),  # no card before 8.0 is so fast
        (13.8e12, "7.0", None, 8 * 13.8e12),
        (13.4e12, "", 100e12, 100e12),
    ],
)
def test_half_precision_of_a_described_device(peak_flops, capability, given, rate):
    """What is given holds; else the compute capability says it, or the peak what that may be."""
    device = replace(
        GPU, peak_flops=peak_flops, compute_capability=capability, peak_flops_fp16=given
    )
    assert precision_rate(device, matmul(64, "float16")) == pytest.approx(rate)
    assert precision_rate(device, matmul(64)) == peak_flops


def test_every_preset_with_tensor_cores_is_faster_in_half_precision():
    for name, found in presets().items():
        if found.type == "GPU" and found.compute_capability:
            device = parse_cluster(name).device("GPU:0")
            assert capability_of(device) == found.compute_capability
            ratio = precision_rate(device, matmul(64, "float16")) / found.peak_flops
            assert ratio == 1 if float(found.compute_capability) < 7 else ratio >= 2


def test_elementwise_ops_do_not_run_on_tensor_cores():
    """A sum of halves moves half the bytes, and its flops are no faster."""
    cost = OpCost(flops=10**12, op_type="AddV2", family="elementwise", precision="float16")
    assert precision_rate(GPU, cost) == GPU.peak_flops


def test_matrix_products_reach_their_part_of_the_rate():
    """2 n^3 flops: on CUDA cores in float32, on tensor cores in float16, and in TF32 from 8.0."""
    size = 8192
    flops = 2 * size**3
    plain, tensor = RATES["matmul"].compute, RATES["matmul-tensor"].compute
    assert seconds_computing(matmul(size)) == pytest.approx(flops / (plain * 13.4e12))
    half = seconds_computing(matmul(size, "float16"))
    assert half == pytest.approx(flops / (tensor * 4 * 13.4e12))
    ampere = replace(GPU, compute_capability="8.0")
    assert seconds_computing(matmul(size), ampere) == pytest.approx(flops / (tensor * 13.4e12))


def test_moving_reaches_its_part_of_the_bandwidth():
    """Statistics in training read twice what they write once; at inference it is one pass."""
    image = TensorProperties(dtype="float32", shape=(256, 64, 56, 56))
    vector = TensorProperties(dtype="float32", shape=(64,))
    moved = {}
    for training in (True, False):
        info = OpInfo(
            op="FusedBatchNormV3",
            inputs=(image, *4 * [vector]),
            outputs=(image, *5 * [vector]),
            attributes={"is_training": training},
        )
        moved[training] = op_seconds(op_cost(info), GPU) - GPU.launch_seconds
    size = 2 * 4 * 256 * 64 * 56 * 56
    assert moved[True] == pytest.approx(size / (RATES["normalisation"].memory * 616e9), rel=1e-3)
    assert moved[False] == pytest.approx(size / (RATES["usual"].memory * 616e9), rel=1e-3)


@pytest.mark.parametrize(
    ("described", "kind"),
    [
        ({"window": 3}, "small-window"),
        ({"window": 5}, "small-window"),
        ({"window": 3, "stride": 2}, "convolution"),
        ({"window": 1}, "convolution"),
        ({"window": 7}, "convolution"),
        ({"window": 3, "out": 32}, "convolution"),
        ({"window": 3, "dtype": "float16"}, "convolution-tensor"),
    ],
)
def test_fast_algorithms_are_for_small_windows_in_float32(described, kind):
    """3 x 3 and 5 x 5, moved by one pixel, with at least a tile of channels on both sides."""
    cost = convolution(**described)
    rate = 4 * 13.4e12 if kind.endswith("tensor") else 13.4e12
    expected = cost.tiled_flops / (RATES[kind].compute * rate)
    assert seconds_computing(cost) == pytest.approx(expected)


def test_a_gpu_computes_whole_tiles_of_64():
    """65 output channels cost as much as 128; a window of 3 channels as 64 rows.  A CPU pads
    nothing."""
    assert convolution(out=128).tiled_flops == convolution(out=128).flops
    assert convolution(out=65).tiled_flops == convolution(out=128).flops
    few = convolution(channels=3)
    assert few.tiled_flops == few.flops * 64 / 27
    gradient = convolution(channels=65, op="Conv2DBackpropInput")
    assert gradient.tiled_flops == convolution(channels=128).flops
    wide = replace(convolution(out=65), bytes_accessed=1, packed_bytes=0)
    assert op_seconds(wide, HOST) == pytest.approx(5e-6 + wide.flops / 13.4e12)


def test_what_a_calibration_says_holds_before_what_is_usual():
    device = replace(GPU, efficiency={"matmul": Efficiency(compute=0.25)})
    size = 8192
    assert seconds_computing(matmul(size), device) == pytest.approx(2 * size**3 / (0.25 * 13.4e12))
    other = convolution()
    assert op_seconds(other, device) == op_seconds(other, GPU)


def test_a_cpu_has_no_usual_efficiency():
    """Its peaks are taken at their word, whatever the precision, until it is calibrated."""
    cost = replace(matmul(1024, "float16"), bytes_accessed=1)
    assert op_seconds(cost, HOST) == pytest.approx(5e-6 + 2 * 1024**3 / 13.4e12)


def test_what_is_fused_takes_no_time_on_a_gpu():
    cost = OpCost(flops=10**6, bytes_accessed=10**9, op_type="Relu", family="elementwise")
    fused = replace(cost, gpu_kind="fused")
    assert op_seconds(fused, GPU) == 0
    assert op_seconds(fused, HOST) == op_seconds(cost, HOST) > 1e-3


def test_nothing_is_moved_where_nothing_is_reduced():
    """A sum over no axes hands its input on; over one axis it reads it."""
    image = TensorProperties(dtype="float32", shape=(8, 8))
    for axes, result, moves in (((), (8, 8), False), ((0,), (8,), True)):
        listed = TensorProperties(dtype="int32", shape=(len(axes),), value=axes)
        outputs = (TensorProperties(dtype="float32", shape=result),)
        found = op_cost(OpInfo(op="Sum", inputs=(image, listed), outputs=outputs))
        assert bool(found.bytes_accessed) == bool(op_seconds(found, GPU)) == moves


@settings(max_examples=60, deadline=None)
@given(
    channels=st.integers(1, 600),
    more=st.integers(1, 300),
    window=st.sampled_from([1, 3, 5, 7]),
    stride=st.sampled_from([1, 2]),
    dtype=st.sampled_from(["float16", "float32"]),
    op=st.sampled_from(["Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"]),
)
def test_more_work_and_a_slower_device_never_take_less(channels, more, window, stride, dtype, op):
    """In the pixels, the peaks and the precision; never below the work at the full rate.

    More channels may take less: with 64 of them a fast algorithm applies.
    """
    shape = {"channels": channels, "window": window, "stride": stride, "op": op}
    cost = convolution(**shape, dtype=dtype)
    larger = convolution(**shape, dtype=dtype, pixels=56 + more)
    found = op_seconds(cost, GPU)
    assert op_seconds(larger, GPU) >= found
    assert op_seconds(cost, replace(GPU, peak_flops=6e12)) >= found
    assert op_seconds(cost, replace(GPU, memory_bandwidth=1e11)) >= found
    assert found > cost.bytes_accessed / GPU.memory_bandwidth
    assert cost.tiled_flops >= cost.flops


def test_every_kind_with_an_efficiency_is_one_that_ops_have():
    """A misspelt kind would never hold."""
    has_rule("MatMul")  # loads the rules
    from cost_models import registry

    modules = [rule.__module__ for rule in registry._RULES.values()]
    families = {module.rpartition(".")[2] for module in modules}
    others = {"usual", "small-window", "scaling", "fused", "side-input", "depthwise"}
    for kind in RATES:
        assert kind.removesuffix("-tensor") in families | others, kind
        assert RATES[kind].memory > 0
        assert RATES[kind].compute > 0
