"""Softmax and the losses built on it."""

from __future__ import annotations

from cost_models.op_info import OpInfo
from cost_models.registry import Work, cost_rule
from cost_models.tensor_size import counted_shape, element_bytes, element_count


@cost_rule("Softmax SparseSoftmax")
def softmax_work(info: OpInfo) -> Work:
    """Five flops per element: maximum, subtract, exp, sum, divide (TensorFlow counts the same)."""
    values = info.inputs[1] if info.op == "SparseSoftmax" else info.inputs[0]
    return Work(flops=5 * element_count(values))


@cost_rule("LogSoftmax")
def log_softmax_work(info: OpInfo) -> Work:
    """Five flops per element: maximum, subtract, exp, sum, subtract the logarithm."""
    return Work(flops=5 * element_count(info.inputs[0]))


@cost_rule("SoftmaxCrossEntropyWithLogits")
def cross_entropy_work(info: OpInfo) -> Work:
    """Eight flops per logit: softmax (5), times the label and summed (2), minus the label (1).

    The CPU kernel keeps one scratch value per example (``xent_op.cc``).
    """
    logits = element_count(info.inputs[0])
    return Work(flops=8 * logits, temporary_bytes=_scratch_bytes(info))


@cost_rule("SparseSoftmaxCrossEntropyWithLogits")
def sparse_cross_entropy_work(info: OpInfo) -> Work:
    """Six flops per logit: softmax (5) and minus the one-hot label (1)."""
    return Work(flops=6 * element_count(info.inputs[0]), temporary_bytes=_scratch_bytes(info))


@cost_rule("CTCLoss CTCLossV2")
def ctc_work(info: OpInfo) -> Work:
    """About five flops per logit for the softmax and five for the two recursions."""
    return Work(flops=10 * element_count(info.inputs[0]))


def _scratch_bytes(info: OpInfo) -> int:
    shape = counted_shape(info.inputs[0].shape)
    return (shape or (1,))[0] * (element_bytes(info.inputs[0].dtype) or 0)
