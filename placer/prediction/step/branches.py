"""Ops that are dead in a step, since another branch of a conditional runs.

TensorFlow 1, and what a functional conditional is lowered to, hand a value to one of two branches
by a ``Switch`` and take the result by a ``Merge``.  The ops of the other branch are dead: they take
no memory (``ExecutorState::Process`` of ``tensorflow/core/common_runtime/executor.cc``)::

    x, is_training --> switch --true---> dropout --> merge --> y
                          '----false---> scale ------^

Which branch runs depends on data.  So two steps are followed: where of each conditional the branch
with more bytes runs, and where the other one does.
"""

from collections import Counter
from collections.abc import Sequence

from placer.graph.op_graph import OpGraph
from placer.graph.op_types import MERGES, SWITCHES
from placer.graph.order import is_back_edge
from placer.graph.tensor_names import op_of, split_tensor

_Branch = tuple[str, int]
"""A predicate, and whether it holds."""


def find_dead(graph: OpGraph, output_bytes: Sequence[int]) -> tuple[frozenset[int], ...]:
    """The numbers of the ops that are dead where the larger branch of each conditional runs, and
    where the smaller does, given the bytes that each op writes; nothing without conditionals."""
    branches = graph.ask_once(_find_branches)
    if not any(branches):
        return ()
    sizes: Counter[_Branch] = Counter()
    for taken, size in zip(branches, output_bytes, strict=True):
        for branch in taken:
            sizes[branch] += size
    larger = {
        (predicate, int(sizes[predicate, 1] >= sizes[predicate, 0])) for predicate, _ in sizes
    }
    return (
        frozenset([op for op, taken in enumerate(branches) if not taken <= larger]),
        frozenset([op for op, taken in enumerate(branches) if taken & larger]),
    )


def _find_branches(graph: OpGraph) -> list[frozenset[_Branch]]:
    """The branches that each op is in."""
    if all(info.op not in SWITCHES for info in graph.infos):
        return []
    known: dict[str, frozenset[_Branch]] = {}
    for op in graph.ops.values():
        inputs = op.inputs
        if op.op_type in MERGES:
            inputs = tuple(
                [t for t in inputs if not is_back_edge(graph.ops[op_of(t)].op_type, op.op_type)]
            )
        above = [_around(tensor, graph, known) for tensor in inputs]
        if op.op_type in MERGES and above:
            known[op.name] = frozenset.intersection(*above)
        else:
            known[op.name] = frozenset().union(*above, *[known[c] for c in op.control_inputs])
    return [*known.values()]


def _around(
    tensor: str, graph: OpGraph, known: dict[str, frozenset[_Branch]]
) -> frozenset[_Branch]:
    """The branches that a reader of ``tensor`` is in."""
    name, index = split_tensor(tensor)
    op = graph.ops[name]
    if op.op_type not in SWITCHES or len(op.inputs) < 2:
        return known[name]
    predicate = graph.ops[op_of(op.inputs[1])]
    while predicate.op_type == "Identity":
        predicate = graph.ops[op_of(predicate.inputs[0])]
    is_loop = predicate.op_type == "LoopCond"  # which takes both in turn
    return known[name] if is_loop else known[name] | {(predicate.name, index)}
