"""Bytes that stay from step to step: variables and constants."""

from __future__ import annotations

from math import prod

from cost_models.op_info import OpInfo
from cost_models.tensor_size import element_bytes, is_known, tensor_bytes

_HOLDERS = frozenset(
    {"VarHandleOp", "VariableV2", "Variable"}
    | {"ConditionalAccumulator", "ResourceConditionalAccumulator"}
)
"""Ops that hold a tensor of their own, described by ``dtype`` and ``shape``: variables, and what
sums gradients between steps."""

_CONSTANTS = frozenset({"Const", "HostConst", "ImmutableConst", "GuaranteeConst"})


def persistent_bytes(info: OpInfo) -> int | None:
    """Bytes that the op keeps from step to step, 0 for most; ``None`` if its shape is unknown.

    A ``TemporaryVariable`` keeps nothing: it is destroyed within the step, its bytes are those
    of its output.  A table's size is not in the graph; it counts 0.

    >>> persistent_bytes(OpInfo(op="VariableV2", attributes={"dtype": "float32", "shape": (2, 3)}))
    24
    """
    if info.op in _HOLDERS:
        return _attribute_bytes(info.attributes.get("dtype"), info.attributes.get("shape"))
    if info.op == "_VarHandlesOp":
        return _sum_of_handles(info)
    if info.op in _CONSTANTS and info.outputs:
        if element_bytes(info.outputs[0].dtype) is None:
            return 0
        return tensor_bytes(info.outputs[0])
    return 0


def _attribute_bytes(dtype: object, shape: object) -> int | None:
    """Bytes of a tensor described by two attributes; 0 for strings and the like."""
    if not isinstance(dtype, str):
        return None
    size = element_bytes(dtype)
    if size is None:
        return 0
    if not isinstance(shape, tuple | list) or not is_known(tuple(shape)):
        return None
    return size * prod(shape)


def _sum_of_handles(info: OpInfo) -> int | None:
    dtypes, shapes = info.attributes.get("dtypes"), info.attributes.get("shapes")
    if not isinstance(dtypes, tuple | list) or not isinstance(shapes, tuple | list):
        return None
    sizes = [*map(_attribute_bytes, dtypes, shapes)]
    return None if None in sizes else sum(size or 0 for size in sizes)
