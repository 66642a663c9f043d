"""What convolutions take of a GPU's memory besides their outputs.

Bytes are those of allocations in traces of steps on a Tesla T4 (batch 256, float32, cuDNN 8).
"""

from __future__ import annotations

import pytest

from cost_models.op_info import OpInfo, TensorProperties
from cost_models.registry import op_cost

BATCH = 256


def tensor(*shape):
    return TensorProperties(dtype="float32", shape=shape)


def bias_gradient(*shape):
    return op_cost(OpInfo(op="BiasAddGrad", inputs=(tensor(*shape),), outputs=(tensor(shape[-1]),)))


def convolution(op_type, image, channels, made, result, window=3, padding="VALID", **attributes):
    """The cost of a convolution from squares of side ``image`` to squares of side ``result``."""
    images, filters = tensor(BATCH, image, image, channels), tensor(window, window, channels, made)
    results, sizes = (
        tensor(BATCH, result, result, made),
        TensorProperties(dtype="int32", shape=(4,)),
    )
    inputs, output = {
        "Conv2D": ((images, filters), results),
        "Conv2DBackpropInput": ((sizes, filters, results), images),
        "Conv2DBackpropFilter": ((images, sizes, results), filters),
    }[op_type]
    attributes = {"padding": padding, "strides": (1, 1, 1, 1), **attributes}
    return op_cost(OpInfo(op=op_type, inputs=inputs, outputs=(output,), attributes=attributes))


@pytest.mark.parametrize(
    ("case", "traced"),
    [
        (("Conv2D", 28, 1, 32, 26), 71_304_320),
        (("Conv2D", 5, 64, 128, 3), 8_257_536),
        (("Conv2DBackpropInput", 5, 64, 128, 3), 29_491_200),
        (("Conv2DBackpropFilter", 13, 32, 64, 11), 64_552_960),
        (("Conv2DBackpropFilter", 5, 64, 128, 3), 8_257_536),
        (("Conv2DBackpropFilter", 28, 6, 6, 28, 3, "SAME"), 31_555_584),
    ],
)
def test_workspaces_of_small_windows_are_those_of_traces(case, traced):
    assert convolution(*case).workspace_bytes == traced


@pytest.mark.parametrize(
    ("case", "traced"),
    [
        (("Conv2D", 13, 32, 64, 11), 32_145_408),
        (("Conv2DBackpropInput", 13, 32, 64, 11), 42_541_056),
        (("Conv2DBackpropInput", 28, 6, 6, 28, 3, "SAME"), 13_683_984),
    ],
)
def test_a_workspace_covers_that_of_the_algorithm_that_was_chosen(case, traced):
    """Winograd's or Fourier's: the card decides between two that compute about as much."""
    assert traced <= convolution(*case).workspace_bytes < 1.6 * traced


def test_wide_or_striding_windows_take_no_workspace():
    assert convolution("Conv2D", 28, 1, 6, 28, 6, "SAME").workspace_bytes == 0
    assert convolution("Conv2D", 28, 8, 8, 14, 3, "SAME", strides=(1, 2, 2, 1)).workspace_bytes == 0


def test_the_gradient_of_the_image_has_a_buffer_of_its_own():
    """And the filter in cuDNN's layout; on a CPU one unfolded image."""
    cost = convolution("Conv2DBackpropInput", 13, 32, 64, 11)
    assert cost.temporary_bytes_on(gpu=True) == 5_537_792 + 73_728
    assert cost.temporary_bytes_on(gpu=False) == cost.temporary_bytes != 5_537_792 + 73_728


def test_an_odd_number_of_padded_pixels_takes_a_padded_copy():
    """256 images of 29 by 29, besides the filter: five pixels are added to 28 for windows of 6."""
    cost = convolution("Conv2D", 28, 1, 6, 28, 6, "SAME")
    assert cost.temporary_bytes_on(gpu=True) == 861_184 + 4 * 6 * 6 * 6


def test_the_gradient_of_a_bias_is_added_up_in_a_copy():
    """Of the images, float32 on a GPU; rows of a matrix are added up as they are."""
    assert bias_gradient(BATCH, 11, 11, 64).temporary_bytes_on(gpu=True) == 7_929_856
    assert bias_gradient(BATCH, 64).temporary_bytes_on(gpu=True) == 0
    assert bias_gradient(BATCH, 11, 11, 64).temporary_bytes_on(gpu=False) == 0


@pytest.mark.parametrize(
    "op_type", ["Conv2D", "Conv2DBackpropFilter", "Conv2DBackpropInput", "DepthwiseConv2dNative"]
)
@pytest.mark.parametrize("shape", [None, (BATCH, 16), (None, None, None, None)])
def test_images_of_unknown_shape_are_modelled_as_far_as_they_are_known(op_type, shape):
    """No rank, a wrong one or no size: the rule still gives a cost."""
    unknown = TensorProperties(dtype="float32", shape=shape)
    filters = tensor(3, 3, 64, 64)
    inputs = (unknown, filters, unknown)
    attributes = {"strides": (1, 0, 0, 1), "padding": "SAME"}
    for given in (attributes, {**attributes, "strides": (1, 1, 1, 1)}):
        cost = op_cost(OpInfo(op=op_type, inputs=inputs, outputs=(unknown,), attributes=given))
        assert not cost.unmodelled
