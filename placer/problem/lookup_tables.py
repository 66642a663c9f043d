"""The tables of a program: weights of which an op reads some rows."""

from __future__ import annotations

from placer.graph.op_graph import OpGraph
from placer.graph.op_types import ENTERS, READ_VARIABLE

_LOOKUPS = frozenset(
    {"Gather", "GatherNd", "GatherV2", "ResourceGather", "ResourceGatherNd"}
    | {"SparseSegmentMean", "SparseSegmentSqrtN", "SparseSegmentSum"}
)
_PASS_ON = ENTERS | {READ_VARIABLE, "Identity"}


def lookup_tables(graph: OpGraph) -> list[str]:
    """The ops that hold a table (variables, and constants of two axes or more), in graph order."""
    handles = {variable.handle for variable in graph.variables}
    found = set()
    for op in graph.ops.values():
        source = op
        while (source is op and op.op_type in _LOOKUPS) or source.op_type in _PASS_ON:
            if not source.inputs:
                break
            source = graph.ops[source.producers[0]]
        if source is not op and op.op_type in _LOOKUPS:
            outputs = source.info.outputs
            is_matrix = bool(outputs) and len(outputs[0].shape or ()) > 1
            if source.name in handles or (source.op_type == "Const" and is_matrix):
                found.add(source.name)
    return [name for name in graph.ops if name in found]
