"""How GPUs run convolutions: in which layout, and which of them cuDNN is asked to tune."""

from __future__ import annotations

import pytest

from cost_models.gpu_convolutions import costs_on_gpus
from cost_models.op_info import OpInfo, TensorProperties
from cost_models.registry import op_cost

IMAGE = TensorProperties(dtype="float32", shape=(8, 56, 56, 64))
RESULT_BYTES = 4 * 8 * 56 * 56 * 64


def convolution(op="Conv2D", window=3, dtype="float32", data_format="NHWC"):
    image = TensorProperties(dtype=dtype, shape=IMAGE.shape)
    kernel = TensorProperties(dtype=dtype, shape=(window, window, 64, 64))
    inputs = (image, kernel) if op == "Conv2D" else (image, image, image)
    attributes = {"strides": (1, 1, 1, 1), "padding": "SAME", "data_format": data_format}
    outputs = (kernel if "Filter" in op else image,)
    return OpInfo(op=op, inputs=inputs, outputs=outputs, attributes=attributes)


def on_gpus(capability, *infos, red_zones=True):
    infos = {str(number): info for number, info in enumerate(infos)}
    costs = {name: op_cost(info) for name, info in infos.items()}
    return [*costs_on_gpus(costs, infos, capability, red_zones=red_zones).values()]


@pytest.mark.parametrize(
    ("capability", "dtype", "trains", "channels_first"),
    [
        ("7.5", "float32", False, True),
        ("8.0", "float32", False, False),
        ("8.0", "float32", True, True),
        ("7.5", "float16", True, False),
        ("6.1", "float16", False, True),
        ("7.5", "bfloat16", False, True),
        ("8.0", "bfloat16", True, False),
    ],
)
def test_layout_follows_capability_type_and_training(capability, dtype, trains, channels_first):
    """Grappler's choice, as it was seen on simulated cards (ResNet-50, float32)."""
    infos = [convolution(dtype=dtype)]
    if trains:
        infos.append(convolution("Conv2DBackpropFilter", dtype=dtype))
    found = on_gpus(capability, *infos)
    assert {cost.channels_first for cost in found} == {channels_first}


def test_what_has_its_channels_first_is_not_turned():
    (found,) = on_gpus("7.5", convolution(data_format="NCHW"))
    assert not found.channels_first
    assert found.tuned_bytes == RESULT_BYTES


def test_tuning_copies_the_result_and_without_red_zones_takes_nothing():
    (tuned,) = on_gpus("7.5", convolution())
    (untuned,) = on_gpus("7.5", convolution(), red_zones=False)
    assert tuned.tuned_bytes == RESULT_BYTES
    assert untuned.tuned_bytes == 0
    assert untuned.gpu_temporary_bytes == tuned.gpu_temporary_bytes


def test_windows_of_one_pixel_are_products_where_channels_come_last():
    """cuBLAS multiplies them: no filter is copied, and cuDNN is not asked."""
    first, last = on_gpus("7.5", convolution(window=1))[0], on_gpus("8.0", convolution(window=1))[0]
    assert first.tuned_bytes
    assert first.gpu_temporary_bytes == 4 * 64 * 64
    assert not last.tuned_bytes
    assert not last.gpu_temporary_bytes


def test_a_depthwise_convolution_is_not_tuned():
    info = OpInfo(
        op="DepthwiseConv2dNative",
        inputs=(IMAGE, TensorProperties(dtype="float32", shape=(3, 3, 64, 1))),
        outputs=(IMAGE,),
        attributes={"strides": (1, 1, 1, 1), "padding": "SAME", "data_format": "NHWC"},
    )
    (found,) = on_gpus("7.5", info)
    assert found.channels_first
    assert found.tuned_bytes == 0
