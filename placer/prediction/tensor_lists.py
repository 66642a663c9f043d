"""What tensor lists keep alive: ``tensorflow/core/kernels/list_kernels.{h,cc}``.

A list is a variant, whose size no shape tells.  Cutting a tensor into a list copies it; putting a
tensor into a list keeps that tensor; loops add one element to a list with every trip.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cost_models.op_cost import OpCost
from placer.graph.op_graph import OpGraph
from placer.prediction.buffer_sharing import shared_input

_CUT = frozenset(
    {"TensorListFromTensor", "TensorListScatter", "TensorListScatterV2", "TensorListSplit"}
)
_ADDED_ITEM = {"TensorListSetItem": 2, "TensorListPushBack": 1}


def added_item(op_type: str) -> int | None:
    """The input that an op puts into the list that is its input 0, ``None`` for other ops."""
    return _ADDED_ITEM.get(op_type)


def list_costs(graph: OpGraph, costs: Mapping[str, OpCost]) -> dict[str, OpCost]:
    """The costs of the ops that cut a tensor into a list, which holds the copies from then on."""
    found = {}
    for op in graph.ops.values():
        if op.op_type in _CUT and op.inputs:
            producer, _, index = op.inputs[0].rpartition(":")
            size = costs[producer].output_bytes[int(index)] or 0
            found[op.name] = replace(costs[op.name], held_bytes=(size,), temporary_bytes=0)
    return found


def added_bytes(tensor: str, graph: OpGraph, costs: Mapping[str, OpCost]) -> int:
    """Bytes of the elements that ``graph`` adds to the list that ends up as ``tensor``.

    Zero for anything that is not a list, or that is not handed on from an argument.
    """
    total = 0
    while True:
        producer, _, number = tensor.rpartition(":")
        op, index = graph.ops[producer], int(number)
        if op.info.outputs[index].dtype != "variant" or op.name in graph.feeds:
            return total
        item = added_item(op.op_type)
        if item is not None:
            source, _, output = op.inputs[item].rpartition(":")
            total += costs[source].output_bytes[int(output)] or 0
        elif costs[op.name].held_bytes:
            total += costs[op.name].held_bytes[index]
        passed_on = index if op.bodies else shared_input(op.info, index)
        if passed_on is None or passed_on >= len(op.inputs):
            return total
        tensor = op.inputs[passed_on]
