"""Softmax and the losses built on it."""

from collections.abc import Mapping

from cost_models.op_info import OpInfo
from cost_models.registry import Work, cost_rule
from cost_models.tensor_size import counted_shape, element_bytes, element_count

_PER_LOGIT: Mapping[str, int] = {
    "Softmax": 5,  # maximum, subtract, exp, sum, divide (TensorFlow counts the same)
    "SparseSoftmax": 5,
    "LogSoftmax": 5,  # maximum, subtract, exp, sum, subtract the logarithm
    "SoftmaxCrossEntropyWithLogits": 8,  # softmax, times the label and summed, minus the label
    "SparseSoftmaxCrossEntropyWithLogits": 6,  # softmax, minus the one-hot label
    "CTCLoss": 10,  # about five for the softmax and five for the two recursions
    "CTCLossV2": 10,
}

_LEAST_SUM_BYTES = 4


@cost_rule(*_PER_LOGIT)
def loss_work(info: OpInfo) -> Work:
    """So many flops per logit; the CPU kernels of cross entropies keep one scratch value per
    example (``xent_op.cc``); a GPU's Softmax has maxima and sums in tensors of the output's shape,
    the sums of halves in float32 (``softmax_op_gpu.cu.cc``)."""
    logits = info.inputs[1] if info.op == "SparseSoftmax" else info.inputs[0]
    scratch = 0
    if "CrossEntropy" in info.op:
        scratch = (counted_shape(logits.shape) or (1,))[0] * (element_bytes(logits.dtype) or 0)
    chunks: tuple[int, ...] = ()
    if info.op in ("Softmax", "LogSoftmax"):
        size = element_bytes(logits.dtype) or 0
        chunks = tuple(element_count(logits) * n for n in (size, max(size, _LEAST_SUM_BYTES)))
    return Work(
        flops=_PER_LOGIT[info.op] * element_count(logits),
        temporary_bytes=scratch,
        gpu_temporary_bytes=sum(chunks) if chunks else None,
        gpu_temporary_chunks=chunks,
    )
