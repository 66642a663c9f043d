"""Shapes that need no inference: those a file states, and those a kernel fixes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cost_models.op_info import Shape
from placer.extraction.graph_defs.op_definitions import attribute
from placer.extraction.graph_defs.protobufs import StoredShapes, shape_of
from placer.extraction.graph_defs.tensor_states import TensorState, is_known
from placer.extraction.graph_defs.tensor_types import GraphTypes
from placer.graph.tensor_names import split_tensor

RESERVE_OUTPUT = 5
"""``FusedBatchNormV3``'s reserve space.

Its shape function leaves it open; the CPU kernel (``core/kernels/fused_batch_norm_op.cc``)
allocates a scalar (an empty vector with oneDNN).  cuDNN's fused training mode needs a workspace
there whose size follows from no shape.
"""

_SAME_SHAPE = frozenset({"ZerosLike", "OnesLike", "Identity", "StopGradient"})


def stated_shapes(
    graph_def: Any,
    types: GraphTypes,
    stored: StoredShapes,
    inputs: Mapping[str, TensorState],
) -> dict[str, tuple[Shape, ...]]:
    """The shapes that a graph states itself, unknown where it does not."""
    found: dict[str, tuple[Shape, ...]] = {}
    for node in graph_def.node:
        count = len(types.outputs[node.name])
        shapes: tuple[Shape, ...] = tuple(shape_of(proto) for proto in stored.get(node.name, ()))
        if node.name in inputs:
            shapes = (inputs[node.name].shape,)
        elif node.op == "Const":
            shapes = (shape_of(attribute(node.attr, "value").tensor.tensor_shape),)
        found[node.name] = (*shapes[:count], *[None] * (count - len(shapes)))
    return found


def settle_reserve_spaces(
    types: GraphTypes, shapes: Mapping[str, tuple[Shape, ...]]
) -> dict[str, tuple[Shape, ...]]:
    """``shapes`` with the reserve spaces of batch normalisation, and what copies them, known."""
    settled = dict(shapes)
    for node in types.nodes_of({"FusedBatchNormV3"} | _SAME_SHAPE):
        found = settled[node.name]
        if node.op == "FusedBatchNormV3" and found[RESERVE_OUTPUT] is None:
            settled[node.name] = (*found[:RESERVE_OUTPUT], ())
        elif node.op in _SAME_SHAPE and not is_known(found[0]):
            name, index = split_tensor(node.input[0])
            source = settled[name][index]
            if is_known(source):
                settled[node.name] = (source,)
    return settled
