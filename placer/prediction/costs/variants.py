"""How the graph makes ops slower or faster than others of their type.

An op that writes its result over an input needs no new buffer: on a CPU, where memory is fresh or
cold, it may be five times as fast as one that does.  ``OpKernelContext::forward_input`` of
``tensorflow/core/framework/op_kernel.cc``.

A variable that is also accessed row by row is copied when it is read as a whole:
``ReadVariableOp`` of ``tensorflow/core/kernels/resource_variable_ops.cc``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cost_models.op_cost import OpCost
from placer.graph.op_graph import Op, OpGraph
from placer.graph.op_types import MERGES, READ_VARIABLE
from placer.graph.order import predecessors
from placer.prediction.step.buffer_sharing import may_share, overwritten_inputs, shared_input
from placer.prediction.step.executor import INEXPENSIVE, ExecutorGraph, run
from placer.prediction.step.step_layout import (
    RESIDENT_OUTPUTS,
    find_copied_variables,
    find_variables,
)

IN_PLACE = "in-place"
COPY = "copy"


def copied_reads(graph: OpGraph, costs: Mapping[str, OpCost]) -> dict[str, OpCost]:
    """The costs of the reads that copy their variable."""
    variable_of = find_variables(graph)
    copied = find_copied_variables(graph, variable_of)
    if not copied:
        return {}
    return {
        op.name: replace(
            costs[op.name],
            bytes_accessed=2 * (costs[op.name].output_bytes[0] or 0),
            variant=COPY,
            family="data_movement",
        )
        for op in graph.ops.values()
        if op.op_type == READ_VARIABLE and op.inputs and variable_of.get(op.inputs[0]) in copied
    }


def in_place_costs(graph: OpGraph, costs: Mapping[str, OpCost]) -> dict[str, OpCost]:
    """The costs of the ops that run in place; ``costs`` know of the reads that copy."""
    own = _OwnedTensors(graph)
    found = {}
    for op in graph.ops.values():
        if costs[op.name].variant == COPY:
            own.add(op)
        elif own.overwrites(op):
            found[op.name] = replace(costs[op.name], variant=IN_PLACE)
    return found


class _OwnedTensors:
    """The tensors that may be written over, op by op in graph order, and who reads each last."""

    def __init__(self, graph: OpGraph) -> None:
        self.feeds = frozenset(graph.feeds)
        self.fetches = frozenset(graph.fetches)
        self.output_names = graph.output_names
        position = _usual_positions(graph)
        self.last_reader: dict[str, str] = {}
        for op in graph.ops.values():
            for tensor in op.inputs:
                known = self.last_reader.get(tensor)
                if known is None or position[known] < position[op.name]:
                    self.last_reader[tensor] = op.name
        self.owned: set[str] = set()

    def overwrites(self, op: Op) -> bool:
        """Is output 0 written over an input?  Notes which of its outputs may be written over."""
        slots = overwritten_inputs(op.info, 0) if op.info.outputs and may_share(op.op_type) else ()
        inputs = [op.inputs[slot] for slot in slots if slot < len(op.inputs)]
        taken = any(t in self.owned and self.last_reader[t] == op.name for t in inputs)
        if (
            op.name not in self.feeds
            and op.op_type not in RESIDENT_OUTPUTS
            and op.op_type != READ_VARIABLE
        ):
            self.add(op)
        return taken

    def add(self, op: Op) -> None:
        """Notes which outputs of ``op`` nobody holds but their readers."""
        if not may_share(op.op_type):
            self.owned.update([t for t in self.output_names[op.name] if t not in self.fetches])
            return
        for index in range(len(op.info.outputs)):
            tensor = op.output_name(index)
            source = shared_input(op.info, index)
            if source is not None and source < len(op.inputs):
                of = op.inputs[source]
                free = of in self.owned and self.last_reader[of] == op.name
            else:
                free = True
            if free and tensor not in self.fetches:
                self.owned.add(tensor)


def _usual_positions(graph: OpGraph) -> dict[str, int]:
    """Where in a step each op runs, if all edges are followed in the order of the graph."""
    names = tuple(graph.ops)
    number = {name: index for index, name in enumerate(names)}
    successors: list[list[int]] = [[] for _ in range(len(names) + 1)]
    waiting = []
    feeds = frozenset(graph.feeds)
    for index, (name, op) in enumerate(graph.ops.items()):
        if op.op_type in MERGES:
            before = predecessors(op, graph.ops)
        else:
            before = [*op.producers, *op.control_inputs]
        if name in feeds or not before:
            before = []
            successors[-1].append(index)
        waiting.append(len(before) or 1)
        for producer in before:
            successors[number[producer]].append(index)
    inexpensive = [op.op_type in INEXPENSIVE for op in graph.ops.values()]
    executed = ExecutorGraph(names=names, successors=(), waiting=waiting, inexpensive=inexpensive)
    return {names[op]: place for place, op in enumerate(run(executed, successors))}
