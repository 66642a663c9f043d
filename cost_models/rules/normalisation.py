"""Batch and local response normalisation.

The flops are those of the textbook formulas; the sizes of the reserved outputs are those of the
CPU kernels in ``tensorflow/core/kernels/fused_batch_norm_op.cc``.
"""

from cost_models.op_info import OpInfo
from cost_models.registry import Work, cost_rule
from cost_models.tensor_size import element_bytes, element_count


@cost_rule("FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3 _FusedBatchNormEx")
def batch_norm_work(info: OpInfo) -> Work:
    """Two flops per element at inference; seven in training, which needs mean and variance.

    Inference reads and writes every element once, training must read them all before it can write
    the first: on a GPU they are two kinds.
    """
    training = bool(info.attributes.get("is_training", True))
    # mean (1), variance (3: subtract, square, add), then subtract, scale and add (3); of inference
    # x * scale' + offset', both folded per channel
    per_element = 7 if training else 2
    return Work(
        flops=per_element * element_count(info.inputs[0]),
        gpu_kind="" if training else "scaling",
        output_bytes={
            index: element_bytes(tensor.dtype) or 0
            for index, tensor in enumerate(info.outputs)
            # the output of the V3 op whose shape is never inferred: a scalar on the CPU
            if index == 5
        },
    )


@cost_rule("""
    FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3 _FusedBatchNormGradEx
    BatchNormWithGlobalNormalizationGrad BatchNormWithGlobalNormalization
    QuantizedBatchNormWithGlobalNormalization
""")
def per_element_work(info: OpInfo) -> Work:
    """So many flops per element of the input, or of the incoming gradient."""
    # two sums over dy and dy * (x - mean) (1 + 3), then dx of seven operations; without a gradient
    # subtract, multiply and add
    per_element = 11 if "Grad" in info.op else 3
    return Work(flops=per_element * element_count(info.inputs[0]))


@cost_rule("LRN LRNGrad")
def local_response_work(info: OpInfo) -> Work:
    """Per element: the window's squares (2 per neighbour), then scale, add, power, multiply; of the
    gradient about five operations per neighbour, as in ``lrn_op.cc``."""
    radius = info.attributes.get("depth_radius", 5)
    neighbours = 2 * radius + 1 if isinstance(radius, int) else 11
    per_neighbour = 5 if info.op == "LRNGrad" else 2
    return Work(flops=(per_neighbour * neighbours + 4) * element_count(info.inputs[0]))
