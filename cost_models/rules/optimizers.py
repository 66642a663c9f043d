"""Optimizer updates (``tensorflow/core/kernels/training_ops.cc``).

The variables come as handles without a shape; they have that of the gradient.  Every state tensor
(the variable and its slots) is read and written once, the gradient read once.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from cost_models.op_info import OpInfo
from cost_models.registry import Work, cost_rule
from cost_models.tensor_size import counted_bytes, element_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """One update rule: ``flops`` per element, how many ``states`` it changes, and the number of
    the input that is the ``gradient``."""

    flops: int
    states: int
    gradient: int


UPDATES: Mapping[str, Update] = {
    "GradientDescent": Update(flops=2, states=1, gradient=2),
    "Momentum": Update(flops=4, states=2, gradient=3),
    "KerasMomentum": Update(flops=4, states=2, gradient=3),
    "Adagrad": Update(flops=6, states=2, gradient=3),
    "AdagradV2": Update(flops=7, states=2, gradient=4),
    "AdagradDA": Update(flops=12, states=3, gradient=3),
    "Adam": Update(flops=12, states=3, gradient=9),
    "AdamWithAmsgrad": Update(flops=13, states=4, gradient=10),
    "AdaMax": Update(flops=10, states=3, gradient=8),
    "Adadelta": Update(flops=14, states=3, gradient=6),
    "RMSProp": Update(flops=11, states=3, gradient=7),
    "CenteredRMSProp": Update(flops=16, states=4, gradient=8),
    "Ftrl": Update(flops=15, states=3, gradient=3),
    "FtrlV2": Update(flops=16, states=3, gradient=3),
    "AddSign": Update(flops=8, states=2, gradient=6),
    "PowerSign": Update(flops=9, states=2, gradient=6),
    "ProximalAdagrad": Update(flops=12, states=2, gradient=5),
    "ProximalGradientDescent": Update(flops=8, states=1, gradient=4),
}
"""By the name after ``Apply``; the sparse forms have the indices after the gradient."""

_PREFIXES = ("ResourceSparseApply", "SparseApply", "ResourceApply", "Apply")


@cost_rule(*[prefix + name for prefix in _PREFIXES for name in UPDATES])
def update_work(info: OpInfo) -> Work:
    """The rule's flops per element of the gradient, and its states read and written.

    A sparse update touches only the rows that its indices name, which are as many as the
    gradient's.
    """
    name = next(info.op.removeprefix(prefix) for prefix in _PREFIXES if info.op.startswith(prefix))
    update = UPDATES[name]
    gradient = info.inputs[update.gradient]
    indices = counted_bytes(info.inputs[update.gradient + 1]) if "Sparse" in info.op else 0
    return Work(
        flops=update.flops * element_count(gradient),
        bytes_accessed=(2 * update.states + 1) * counted_bytes(gradient) + indices,
    )
