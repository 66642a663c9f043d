"""How the graph makes ops slower or faster than others of their type.

An op that writes its result over an input needs no new buffer: on a CPU, where memory is fresh or
cold, it may be five times as fast as one that does.  ``OpKernelContext::forward_input`` of
``tensorflow/core/framework/op_kernel.cc``.

TensorFlow's optimiser joins the activation after a batch normalisation to it on GPUs, at inference,
and the addition between them if there is one (``FindFusedBatchNormEx`` of
``tensorflow/core/grappler/optimizers/remapper.cc``).

A variable that is also accessed row by row is copied when it is read as a whole:
``ReadVariableOp`` of ``tensorflow/core/kernels/resource_variable_ops.cc``.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from cost_models.op_cost import OpCost
from placer.graph.buffer_sharing import find_copied_variables, find_variables, sharing_of
from placer.graph.op_graph import OpGraph
from placer.graph.op_types import READ_VARIABLE
from placer.graph.tensor_names import op_of
from placer.prediction.step.executor import prepare, run
from placer.prediction.step.laying_out import RESIDENT_OUTPUTS

IN_PLACE = "in-place"
COPY = "copy"
FUSED = "fused"
SIDE_INPUT = "side-input"

_BATCH_NORMS = frozenset({"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"})


def copied_reads(graph: OpGraph, costs: Mapping[str, OpCost]) -> dict[str, OpCost]:
    """The costs of the reads that copy their variable."""
    variable_of = graph.ask_once(find_variables)
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


def fused_costs(graph: OpGraph, costs: Mapping[str, OpCost]) -> dict[str, OpCost]:
    """The costs of the ops that a GPU runs within a batch normalisation at inference: the ``Relu``
    behind it, and the addition between them; what they read is read by nothing else."""
    if not any(op.op_type in _BATCH_NORMS for op in graph.ops.values()):
        return {}
    readers = Counter(tensor for op in graph.ops.values() for tensor in op.inputs)
    readers.update(graph.fetches)

    def is_normalised(tensor: str) -> bool:
        op = graph.ops[op_of(tensor)]
        trains = op.info.attributes.get("is_training", True)
        return op.op_type in _BATCH_NORMS and not trains and readers[tensor] == 1

    found = {}
    for op in graph.ops.values():
        if op.op_type != "Relu" or not op.inputs:
            continue
        before = graph.ops[op_of(op.inputs[0])]
        is_sum = before.op_type in ("Add", "AddV2") and readers[op.inputs[0]] == 1
        if is_normalised(op.inputs[0]):
            found[op.name] = replace(costs[op.name], gpu_kind=FUSED)
        elif is_sum and any(map(is_normalised, before.inputs)):
            found[op.name] = replace(costs[op.name], gpu_kind=FUSED)
            found[before.name] = replace(costs[before.name], gpu_kind=SIDE_INPUT)
    return found


def in_place_costs(graph: OpGraph, costs: Mapping[str, OpCost]) -> dict[str, OpCost]:
    """The costs of the ops that run in place; ``costs`` know of the reads that copy."""
    feeds, fetches = frozenset(graph.feeds), frozenset(graph.fetches)
    last_reader = _last_readers(graph)
    found = {}
    owned: set[str] = set()  # the tensors that nobody holds but those who read them
    for op, sharing in zip(graph.ops.values(), graph.ask_once(sharing_of), strict=True):
        is_copy = costs[op.name].variant == COPY
        free = [tensor in owned and last_reader.get(tensor) == op.name for tensor in op.inputs]
        slots = sharing.overwritten[0] if sharing.overwritten else ()
        if not is_copy and any(free[slot] for slot in slots if slot < len(free)):
            found[op.name] = replace(costs[op.name], variant=IN_PLACE)
        lasts = op.op_type in RESIDENT_OUTPUTS or op.op_type == READ_VARIABLE or op.name in feeds
        if is_copy or not lasts:
            for tensor, source in zip(graph.output_names[op.name], sharing.shared, strict=True):
                is_own = source is None or source >= len(free) or free[source]
                if is_own and tensor not in fetches:
                    owned.add(tensor)
    return found


def _last_readers(graph: OpGraph) -> dict[str, str]:
    """Who reads each tensor last, if all edges are followed in the order of the graph."""
    executed = prepare(graph)
    successors = [sorted(op for _, op, _ in edges) for edges in executed.successors]
    order = [graph.ops[executed.names[op]] for op in run(executed, successors)]
    return {tensor: op.name for op in order for tensor in op.inputs}
