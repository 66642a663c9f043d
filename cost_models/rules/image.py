"""Image resizing and colour."""

from collections.abc import Mapping

from cost_models.op_info import OpInfo
from cost_models.registry import Work, cost_rule
from cost_models.tensor_size import element_count

_PER_OUTPUT: Mapping[str, int] = {
    "ResizeNearestNeighbor": 0,
    "ResizeBilinear": 9,  # three linear interpolations of a subtraction, a product and a sum
    "ResizeBicubic": 40,  # five cubic interpolations of four products and sums
    "CropAndResize": 9,
    "ScaleAndTranslate": 9,
    "ImageProjectiveTransformV2": 19,  # an interpolation, and ten to find where from
    "ImageProjectiveTransformV3": 19,
    "AdjustContrast": 4,
    "AdjustContrastv2": 4,
    "AdjustHue": 15,
    "AdjustSaturation": 15,
    "RGBToHSV": 8,
    "HSVToRGB": 8,
    "DrawBoundingBoxes": 0,
    "DrawBoundingBoxesV2": 0,
}

_PER_INPUT: Mapping[str, int] = {
    "ResizeArea": 2,  # every input pixel is weighed and added
    "ResizeNearestNeighborGrad": 1,
    "ResizeBilinearGrad": 8,  # four products and additions per incoming gradient
    "ResizeBicubicGrad": 32,
    "CropAndResizeGradImage": 8,
    "CropAndResizeGradBoxes": 20,
    "ScaleAndTranslateGrad": 8,
}


@cost_rule(*_PER_OUTPUT)
def output_pixel_work(info: OpInfo) -> Work:
    """So many flops per element of the output."""
    return Work(flops=_PER_OUTPUT[info.op] * element_count(info.outputs[0]))


@cost_rule(*_PER_INPUT)
def input_pixel_work(info: OpInfo) -> Work:
    """So many flops per element of the first input."""
    return Work(flops=_PER_INPUT[info.op] * element_count(info.inputs[0]))
