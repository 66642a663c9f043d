"""Tensors that tensor lists keep alive: ``tensorflow/core/kernels/list_kernels.{h,cc}``.

A list is a variant, whose size follows from no shape.  Cutting a tensor into a list copies it;
putting a tensor into a list keeps that tensor; loops add one element to a list with every trip, and
those of gradients take one out.  A list that others hold too is copied before it changes, its
elements not.
"""

from collections.abc import Mapping
from dataclasses import replace

from cost_models.op_cost import OpCost
from cost_models.op_info import OpInfo
from placer.graph.op_graph import OpGraph
from placer.graph.tensor_names import split_tensor

CUT = frozenset(
    {"TensorListFromTensor", "TensorListScatter", "TensorListScatterV2", "TensorListSplit"}
)


def cut_items(info: OpInfo) -> int | None:
    """Into how many elements an op cuts a tensor, ``None`` if it does not, or if it is unknown."""
    if info.op != "TensorListFromTensor" or not info.inputs or not info.inputs[0].shape:
        return None
    return info.inputs[0].shape[0]


def list_costs(graph: OpGraph, costs: Mapping[str, OpCost]) -> dict[str, OpCost]:
    """The costs of the ops that cut a tensor into a list, which holds the copies from then on."""
    found = {}
    for op in graph.ops.values():
        if op.op_type in CUT and op.inputs:
            producer, index = split_tensor(op.inputs[0])
            size = costs[producer].output_bytes[index] or 0
            found[op.name] = replace(costs[op.name], held_bytes=(size,), temporary_bytes=0)
    return found
