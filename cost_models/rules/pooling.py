"""Pooling and its gradients (``_pool_flops`` and its kin in TensorFlow's ``flops_registry.py``)."""

from collections.abc import Mapping
from math import prod

from cost_models.op_info import OpInfo
from cost_models.registry import Work, cost_rule
from cost_models.tensor_size import element_count

_ARGMAX_BYTES = 8

_WINDOW_INPUT: Mapping[str, int] = {"MaxPoolV2": 1, "MaxPoolGradV2": 3}
"""The input that is the window, where it is no attribute."""


@cost_rule("""
    MaxPool AvgPool MaxPool3D AvgPool3D QuantizedMaxPool QuantizedAvgPool MaxPoolWithArgmax
    MaxPoolV2
""")
def pooling_work(info: OpInfo) -> Work:
    """One flop per window element of every output element."""
    return Work(flops=_window(info) * element_count(info.outputs[0]))


@cost_rule("AvgPoolGrad AvgPool3DGrad")
def average_gradient_work(info: OpInfo) -> Work:
    """A multiplication and an addition per window element of the incoming gradient."""
    return Work(flops=2 * _window(info) * element_count(info.inputs[1]))


@cost_rule("MaxPoolGrad MaxPoolGradV2 MaxPool3DGrad")
def maximum_gradient_work(info: OpInfo) -> Work:
    """The pooling again, then one addition per element of its output.

    The 2-D kernel recomputes the output and its int64 argmax
    (``tensorflow/core/kernels/maxpooling_op.cc``); cuDNN does not.
    """
    pooled = element_count(info.inputs[1])
    argmax = 0 if "3D" in info.op else _ARGMAX_BYTES * pooled
    return Work(flops=(_window(info) + 1) * pooled, temporary_bytes=argmax, gpu_temporary_bytes=0)


@cost_rule("MaxPoolGradWithArgmax MaxPoolGradGradWithArgmax")
def known_argmax_work(info: OpInfo) -> Work:
    """One addition per element of the incoming gradient."""
    return Work(flops=element_count(info.inputs[1]))


@cost_rule("MaxPoolGradGrad MaxPoolGradGradV2 MaxPool3DGradGrad")
def second_gradient_work(info: OpInfo) -> Work:
    """The pooling again and one selection per element of its output."""
    return Work(flops=(_window(info) + 1) * element_count(info.outputs[0]))


@cost_rule("FractionalMaxPool FractionalAvgPool FractionalMaxPoolGrad FractionalAvgPoolGrad")
def fractional_work(info: OpInfo) -> Work:
    """One comparison or addition per element of what is pooled, or of the gradient to it."""
    whole = info.outputs[0] if info.op.endswith("Grad") else info.inputs[0]
    return Work(flops=element_count(whole))


def _window(info: OpInfo) -> int:
    """Elements of the pooling window; 1 where its sizes are unknown."""
    sizes = info.attributes.get("ksize")
    if info.op in _WINDOW_INPUT:
        sizes = info.inputs[_WINDOW_INPUT[info.op]].value
    if not isinstance(sizes, tuple | list):
        return 1
    return prod(size for size in sizes if isinstance(size, int))
