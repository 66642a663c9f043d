"""Pooling and its gradients (``_pool_flops`` and its kin in TensorFlow's ``flops_registry.py``)."""

from __future__ import annotations

from math import prod

from cost_models.op_info import OpInfo
from cost_models.registry import Work, cost_rule
from cost_models.tensor_size import element_count

_ARGMAX_BYTES = 8


@cost_rule("""
    MaxPool AvgPool MaxPool3D AvgPool3D QuantizedMaxPool QuantizedAvgPool MaxPoolWithArgmax
""")
def pooling_work(info: OpInfo) -> Work:
    """One flop per window element of every output element."""
    return Work(flops=_window(info.attributes.get("ksize")) * element_count(info.outputs[0]))


@cost_rule("MaxPoolV2")
def pooling_with_window_input_work(info: OpInfo) -> Work:
    """As MaxPool, the window being an input."""
    return Work(flops=_window(info.inputs[1].value) * element_count(info.outputs[0]))


@cost_rule("AvgPoolGrad AvgPool3DGrad")
def average_gradient_work(info: OpInfo) -> Work:
    """A multiplication and an addition per window element of the incoming gradient."""
    return Work(flops=2 * _window(info.attributes.get("ksize")) * element_count(info.inputs[1]))


@cost_rule("MaxPoolGrad MaxPool3DGrad")
def maximum_gradient_work(info: OpInfo) -> Work:
    """The pooling again, then one addition per element of its output.

    The 2-D kernel recomputes the output and its int64 argmax
    (``tensorflow/core/kernels/maxpooling_op.cc``).
    """
    pooled = element_count(info.inputs[1])
    return Work(
        flops=(_window(info.attributes.get("ksize")) + 1) * pooled,
        temporary_bytes=_argmax_bytes(info, pooled),
    )


@cost_rule("MaxPoolGradV2")
def maximum_gradient_with_window_input_work(info: OpInfo) -> Work:
    """As MaxPoolGrad, the window being an input."""
    pooled = element_count(info.inputs[1])
    window = _window(info.inputs[3].value)
    return Work(flops=(window + 1) * pooled, temporary_bytes=_argmax_bytes(info, pooled))


@cost_rule("MaxPoolGradWithArgmax MaxPoolGradGradWithArgmax")
def known_argmax_work(info: OpInfo) -> Work:
    """One addition per element of the incoming gradient."""
    return Work(flops=element_count(info.inputs[1]))


@cost_rule("MaxPoolGradGrad MaxPoolGradGradV2 MaxPool3DGradGrad")
def second_gradient_work(info: OpInfo) -> Work:
    """The pooling again and one selection per element of its output."""
    window = _window(info.attributes.get("ksize"))
    return Work(flops=(window + 1) * element_count(info.outputs[0]))


@cost_rule("FractionalMaxPool FractionalAvgPool")
def fractional_work(info: OpInfo) -> Work:
    """Every input element is compared or added once."""
    return Work(flops=element_count(info.inputs[0]))


@cost_rule("FractionalMaxPoolGrad FractionalAvgPoolGrad")
def fractional_gradient_work(info: OpInfo) -> Work:
    """Every element of the gradient to the input is written by one addition."""
    return Work(flops=element_count(info.outputs[0]))


def _window(sizes: object) -> int:
    """Elements of the pooling window; 1 where its sizes are unknown."""
    if not isinstance(sizes, tuple | list):
        return 1
    return prod(size for size in sizes if isinstance(size, int))


def _argmax_bytes(info: OpInfo, pooled: int) -> int:
    return 0 if "3D" in info.op else _ARGMAX_BYTES * pooled
