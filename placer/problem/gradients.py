"""Which forward op a gradient op belongs to, read from the names that TensorFlow gives.

A tape writes ``gradient_tape/SCOPE/...`` for the gradients of the ops in ``SCOPE``
(``tensorflow/python/eager/backprop.py``), TensorFlow 1 ``gradients/OP_grad/...``
(``tensorflow/python/ops/gradients_util.py``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from placer.graph.op_graph import ColocationGroup, OpGraph

_TAPE = re.compile(r"(?:.*/)?gradient_tape(?:_\d+)?/(.+)")
_V1 = re.compile(r"(?:.*/)?gradients(?:_\d+)?/(.+)_grad/.+")


def gradient_groups(graph: OpGraph) -> tuple[ColocationGroup, ...]:
    """Every gradient op together with its forward op; those without one are left out."""
    first_in_scope: dict[str, str] = {}
    for name in graph.ops:
        if _TAPE.fullmatch(name) is None and _V1.fullmatch(name) is None:
            first_in_scope.setdefault(name.rpartition("/")[0], name)
    found = ((name, _forward_op(name, graph, first_in_scope)) for name in graph.ops)
    return tuple(
        ColocationGroup(ops=(forward, name), reasons=("gradient",))
        for name, forward in found
        if forward
    )


def _forward_op(name: str, graph: OpGraph, first_in_scope: dict[str, str]) -> str:
    """The op whose gradient ``name`` computes, ``""`` if it is no gradient op or none is found.

    A tape's scope may be that of several forward ops, and then the first of them stands for all.
    """
    v1 = _V1.fullmatch(name)
    if v1 is not None:
        return v1[1] if v1[1] in graph.ops else ""
    tape = _TAPE.fullmatch(name)
    for scope in _scopes(tape[1]) if tape else ():
        if scope in graph.ops:
            return scope
        if scope in first_in_scope:
            return first_in_scope[scope]
    return ""


def _scopes(path: str) -> Iterator[str]:
    """The scopes around a path, innermost first."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path
