"""From an op to its cost: the rule registered for its type.

Three lists: types with a rule (:func:`cost_rule`, open to users), types that are free on purpose
(:mod:`cost_models.free_ops`), and everything else, which is unmodelled: it costs the bytes it
reads and writes and says so.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import import_module
from math import prod
from typing import Any

from cost_models.free_ops import free_category
from cost_models.op_cost import KernelWork, OpCost
from cost_models.op_info import OpInfo, TensorProperties, ask_once
from cost_models.tensor_size import counted_bytes, element_bytes, is_known, tensor_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Work(KernelWork):
    """The answer of a cost rule.

    ``flops`` counts a fused multiply-add as two. ``bytes_accessed`` is what is read plus what is
    written; ``None`` means every input once and every output once. ``temporary_bytes`` live only
    while the op runs. ``output_bytes`` gives sizes that do not follow from the shapes, by output
    number; for ``temporary_chunks``, ``gpu_temporary_bytes``, ``gpu_temporary_chunks``,
    ``workspace_bytes``, ``tuned_bytes``, ``pieces``, ``packed_bytes``, ``variant`` and ``family``
    (by default the module of the rule), ``tiled_flops`` and ``gpu_kind`` see
    :class:`~cost_models.op_cost.OpCost`. ``inaccurate`` says that the work follows from no shape.
    """

    bytes_accessed: int | None = None
    output_bytes: Mapping[int, int] = field(default_factory=dict)


_SAID = tuple(each.name for each in fields(KernelWork))

FMA_FLOPS = 2
"""A fused multiply-add counts two, as in TensorFlow's ``flops_registry.py``."""

Rule = Callable[[OpInfo], Work]
"""A cost rule sees the op's type, attributes, shapes and dtypes, never the graph.

Unknown dimensions reach it as ``None``; it takes them as 1 (``tensor_size.counted_shape``)."""

_RULES: dict[str, Rule] = {}
_LOG = logging.getLogger(__name__)


def cost_rule(*op_types: str) -> Callable[[Rule], Rule]:
    """A decorator that makes a function the cost rule of ``op_types``.

    Each argument may name several types, separated by blanks: ``@cost_rule("Abs Neg Sign")``.
    A rule of yours replaces the one that comes with the package, and may cover an op type of your
    own or one that is free otherwise.
    """

    def register(rule: Rule) -> Rule:
        _RULES.update(dict.fromkeys(" ".join(op_types).split(), rule))
        return rule

    return register


@cache
def _load_rules() -> None:
    """Import the rules of the package, keeping those that were registered before."""
    registered = dict(_RULES)
    import_module("cost_models.rules")
    _RULES.update(registered)


def has_rule(op_type: str) -> bool:
    """Is there a cost rule for ``op_type``?

    >>> has_rule("MatMul"), has_rule("Reshape")
    (True, False)
    """
    _load_rules()
    return op_type in _RULES


def op_cost(info: OpInfo) -> OpCost:
    """The cost of one execution of the op.

    It is inaccurate where a shape that the cost needs is unknown, or the op type has no rule.  An
    op that its rule cannot cope with (a MatMul of one input) counts as one without a rule.
    """
    _load_rules()
    rule = _RULES.get(info.op)
    if rule is None and free_category(info.op) is not None:
        return _free_cost(info)
    found = _apply_rule(rule, info) if rule is not None else None
    work = found or Work()
    outputs = list(map(tensor_bytes, info.outputs))
    for index, size in work.output_bytes.items():
        outputs[index] = size
    unsized = any([_is_unsized(tensor) for tensor in info.inputs if not is_known(tensor.shape)])
    if not unsized and None in outputs:
        unsized = any(
            size is None and _is_unsized(tensor)
            for size, tensor in zip(outputs, info.outputs, strict=True)
        )
    said: dict[str, Any] = {name: getattr(work, name) for name in _SAID}
    said["inaccurate"] = unsized or found is None or work.inaccurate
    said["family"] = work.family or _family(rule)
    return OpCost(
        **said,
        bytes_accessed=bytes_touched(info) if work.bytes_accessed is None else work.bytes_accessed,
        output_bytes=tuple(outputs),
        persistent_bytes=persistent_bytes(info) or 0,
        unmodelled=found is None,
        # the floating type of the first result, or else of the first input that has one
        precision=next((t.dtype for t in (*info.outputs, *info.inputs) if "float" in t.dtype), ""),
        op_type=info.op,
    )


def estimate(ops: Mapping[str, OpInfo]) -> dict[str, OpCost]:
    """The cost of every op by name; ops with one ``OpInfo`` between them are costed once."""
    return dict(zip(ops, ask_once(op_cost, ops.values()), strict=True))


def _apply_rule(rule: Rule, info: OpInfo) -> Work | None:
    """Returns the rule's answer, ``None`` where it fails: files hold ops that no kernel would
    take."""
    try:
        return rule(info)
    except Exception as error:  # rules are open to users, and ops to whoever wrote the file
        _warn(info.op, f"{type(error).__name__}: {error}")
        return None


@cache
def _warn(op_type: str, reason: str) -> None:
    """Says once that the rule of ``op_type`` failed."""
    _LOG.warning(
        "the cost rule of %s fails on an op (%s): only the bytes of such ops are counted",
        op_type,
        reason,
    )


def _family(rule: Rule | None) -> str:
    """The module that a rule of the package is in; a rule of a user's has none."""
    home, _, family = (getattr(rule, "__module__", None) or "").rpartition(".")  # run text has none
    return family if home == "cost_models.rules" else ""


def _free_cost(info: OpInfo) -> OpCost:
    """No work: the sizes of the outputs, and what a variable or constant keeps."""
    kept = persistent_bytes(info)
    return OpCost(
        output_bytes=tuple(map(tensor_bytes, info.outputs)),
        persistent_bytes=kept or 0,
        inaccurate=kept is None,
        op_type=info.op,
    )


def _is_unsized(tensor: TensorProperties) -> bool:
    """Would a fully known shape give this tensor a size?"""
    return not is_known(tensor.shape) and element_bytes(tensor.dtype) is not None


def bytes_touched(info: OpInfo) -> int:
    """Bytes of all inputs read once and all outputs written once."""
    return sum(map(counted_bytes, info.inputs)) + sum(map(counted_bytes, info.outputs))


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
