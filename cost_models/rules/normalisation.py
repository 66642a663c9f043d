"""Batch and local response normalisation.

The flops are those of the textbook formulas; the sizes of the reserved outputs are those of the
CPU kernels in ``tensorflow/core/kernels/fused_batch_norm_op.cc``.
"""

from __future__ import annotations

from cost_models.op_info import OpInfo
from cost_models.registry import Work, cost_rule
from cost_models.tensor_size import element_bytes, element_count

_INFERENCE_FLOPS = 2
"""x * scale' + offset', both folded per channel."""

_TRAINING_FLOPS = 7
"""Mean (1), variance (3: subtract, square, add), then subtract, scale and add (3)."""

_GRADIENT_FLOPS = 11
"""Two sums over dy and dy * (x - mean) (1 + 3), then dx of seven operations."""

_RESERVED = 5
"""The output of the V3 op whose shape is never inferred: a scalar on the CPU."""


@cost_rule("FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3 _FusedBatchNormEx")
def batch_norm_work(info: OpInfo) -> Work:
    """Two flops per element at inference; seven in training, which needs mean and variance."""
    training = info.attributes.get("is_training", True)
    per_element = _TRAINING_FLOPS if training else _INFERENCE_FLOPS
    return Work(
        flops=per_element * element_count(info.inputs[0]), output_bytes=_reserved_bytes(info)
    )


@cost_rule("FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3 _FusedBatchNormGradEx")
def batch_norm_gradient_work(info: OpInfo) -> Work:
    """Eleven flops per element of the incoming gradient."""
    return Work(flops=_GRADIENT_FLOPS * element_count(info.inputs[0]))


@cost_rule("BatchNormWithGlobalNormalization QuantizedBatchNormWithGlobalNormalization")
def global_normalisation_work(info: OpInfo) -> Work:
    """Subtract, multiply and add per element."""
    return Work(flops=3 * element_count(info.inputs[0]))


@cost_rule("BatchNormWithGlobalNormalizationGrad")
def global_normalisation_gradient_work(info: OpInfo) -> Work:
    """As the fused gradient."""
    return Work(flops=_GRADIENT_FLOPS * element_count(info.inputs[0]))


@cost_rule("LRN")
def local_response_work(info: OpInfo) -> Work:
    """Per element: the window's squares (2 per neighbour), then scale, add, power, multiply."""
    return Work(flops=(2 * _neighbours(info) + 4) * element_count(info.inputs[0]))


@cost_rule("LRNGrad")
def local_response_gradient_work(info: OpInfo) -> Work:
    """Per element and neighbour about five operations, as in ``lrn_op.cc``."""
    return Work(flops=(5 * _neighbours(info) + 4) * element_count(info.inputs[0]))


def _neighbours(info: OpInfo) -> int:
    radius = info.attributes.get("depth_radius", 5)
    return 2 * radius + 1 if isinstance(radius, int) else 11


def _reserved_bytes(info: OpInfo) -> dict[int, int]:
    if len(info.outputs) <= _RESERVED:
        return {}
    return {_RESERVED: element_bytes(info.outputs[_RESERVED].dtype) or 0}
