"""Rewritings for tests: everything cheap is computed twice.

Not how a plan decides it: a plain rule, so that what applies rewritings is tested without it.
"""

from __future__ import annotations

from placer.graph.op_graph import OpGraph
from placer.graph.rewriting import Clone, Rewriting, recomputable_ops

KEPT = frozenset({"MatMul", "BatchMatMulV2", "Conv2D", "Const"})
"""What is dear, and is read again by its own gradient: it stays."""


def backward_ops(graph: OpGraph, scope: str) -> set[str]:
    """The ops of the name scope in which gradients are computed, and all that depends on them."""
    found: set[str] = set()
    for name, op in graph.ops.items():
        before = (*op.producers, *op.control_inputs)
        if f"/{scope}/" in f"/{name}" or not found.isdisjoint(before):
            found.add(name)
    return found


def recompute_cheap_ops(
    graph: OpGraph, scope: str = "gradient_tape", *, released: tuple[str, ...] = ()
) -> Rewriting:
    """The forward ops that the backward pass reads and that are cheap are computed twice, right
    before the first gradient that needs them.  ``scope`` is where gradients are computed."""
    backward = backward_ops(graph, scope)
    forward = graph.ops.keys() - backward
    place = {name: number for number, name in enumerate(graph.ops)}
    allowed = {op for op in recomputable_ops(graph) & forward if graph.ops[op].op_type not in KEPT}
    late_readers: dict[str, tuple[str, ...]] = {}
    needed: dict[str, str] = {}  # a clone, and the op whose gradient is its trigger
    for name, op in graph.ops.items():
        late = tuple(dict.fromkeys(producer for producer in op.producers if producer in allowed))
        gradients = [other for other in op.producers if other not in forward]
        if f"/{scope}/" in f"/{name}" and gradients and late:
            late_readers[name] = late
            for producer in late:
                needed.setdefault(producer, max(gradients, key=place.__getitem__))
    # what a clone reads is cloned with it, up to what is kept
    for op in reversed(graph.ops):
        for producer in graph.ops[op].producers if op in needed else ():
            if producer in allowed:
                trigger = needed.setdefault(producer, needed[op])
                needed[producer] = min(trigger, needed[op], key=place.__getitem__)
    clones = []
    for op in (op for op in graph.ops if op in needed):
        reads = tuple(dict.fromkeys(p for p in graph.ops[op].producers if p in needed))
        clones.append(Clone(op=op, reads=reads, after=() if reads else (needed[op],)))
    return Rewriting(clones=tuple(clones), late_readers=late_readers, released=released)
