"""Control edges added to a graph, and the ops that they may join."""

from collections.abc import Iterable
from dataclasses import replace

from placer.errors import UsageError
from placer.graph.op_graph import OpGraph
from placer.graph.op_types import ENTERS, PLACEHOLDERS, SWITCHES, VARIABLES
from placer.graph.order import topological_order

ControlEdge = tuple[str, str]
"""The op that runs before, the op that waits for it."""

_CONDITIONAL = SWITCHES | ENTERS | {"_SwitchN"}
_NEVER_RUN = PLACEHOLDERS | VARIABLES | {"Const"}


def add_control_edges(graph: OpGraph, edges: Iterable[ControlEdge]) -> OpGraph:
    """``graph`` with the ``edges``, in a topological order again.

    Raises :class:`UsageError` for an op that the graph lacks, ``ModelError`` for a cycle.
    """
    added: dict[str, dict[str, None]] = {}
    for before, after in edges:
        for name in (before, after):
            if name not in graph.ops:
                raise UsageError(f"a control edge of the plan names {name}, which the model lacks")
        added.setdefault(after, {})[before] = None
    if not added:
        return graph
    ops = dict(graph.ops)
    for name, before_it in added.items():
        waits = dict.fromkeys((*ops[name].control_inputs, *before_it))
        ops[name] = replace(ops[name], control_inputs=tuple(waits))
    return replace(graph, ops={name: ops[name] for name in topological_order(ops)})


def joinable_ops(graph: OpGraph) -> frozenset[str]:
    """The ops that a control edge may join: those that run once in every step.

    Left out are fed values, constants and handles, functional loops and branches (what waits for
    one does not wait for all that it runs), and what is in a loop or branch of TensorFlow 1 or
    reads from one: a signal does not leave the frame of a loop, and one out of a
    branch that is not taken would keep its receiver from running (``tensorflow/core/
    common_runtime/propagator_state.cc``).
    """
    conditional: set[str] = set()
    for op in graph.ops.values():
        before = (*op.producers, *op.control_inputs)
        if op.op_type in _CONDITIONAL or not conditional.isdisjoint(before):
            conditional.add(op.name)
    feeds = frozenset(graph.feeds)
    return frozenset(
        name
        for name, op in graph.ops.items()
        if not (op.bodies or name in conditional or name in feeds or op.op_type in _NEVER_RUN)
    )
