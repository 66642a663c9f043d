"""Variables that one op touches together, in the signatures and the main graph of a SavedModel."""

from collections.abc import Iterator
from typing import Any

from placer.errors import ModelError
from placer.extraction.reading.saved_functions import INITIALISER_SIGNATURE
from placer.graph.op_types import (
    CALLS,
    CONTROL_FLOW,
    ENTERS,
    LOOPS,
    SAVERS,
    SWITCHES,
    TABLES,
    VARIABLES,
)
from placer.graph.tensor_names import data_inputs, full_tensor

_PASSING = ENTERS | SWITCHES | {"Identity", "RefIdentity"}

Touched = list[tuple[str, list[str]]]
"""Ops with the handles that they touch."""


def other_signatures(meta_graph: Any, signature: str) -> list[str]:
    """The signatures besides ``signature`` that can be called."""
    return [
        name
        for name in sorted(meta_graph.signature_def)
        if name not in (signature, INITIALISER_SIGNATURE)
    ]


def touched_by(source: Any, tag_set: str, names: list[str]) -> Iterator[tuple[str, Touched]]:
    """(signature, its ops with the handles they touch) for the signatures ``names`` of a file,
    without those that cannot be read."""
    from placer.extraction.reading.loading import load_program

    for name in names:
        try:
            other = load_program(source, tag_set=tag_set, signature=name)
        except ModelError:
            continue
        yield name, touched_handles(other.graph_def.node)


def touched_in_main(graph_def: Any) -> Touched:
    """The ops of a main graph that touch two handles or more, with these handles.

    A session places them all, also those that no signature reaches (the update of a weight and its
    slots).  Savers and calls tie nothing: what they take may lie anywhere.
    """
    nodes = sorted(graph_def.node, key=lambda node: not _is_handle(node))
    free = {node.name for node in nodes if node.op in SAVERS | CALLS | CONTROL_FLOW}
    return [
        (op, handles)
        for op, handles in touched_handles(nodes)
        if op not in free and len(set(handles)) > 1
    ]


def touched_handles(nodes: Any) -> Touched:
    """Every op that touches resources or reference variables, with the names of the handles.

    ``nodes`` are in topological order.  Handles are followed through identities, switches and the
    outputs of loops.
    """
    handle_of: dict[str, str] = {}
    touched = []
    for node in nodes:
        if _is_handle(node):
            handle_of[f"{node.name}:0"] = node.name
            continue
        tensors = [full_tensor(name) for name in data_inputs(node.input)]
        found = {number: handle_of[t] for number, t in enumerate(tensors) if t in handle_of}
        if found:
            touched.append((node.name, list(found.values())))
        if node.op in LOOPS:
            handle_of |= {f"{node.name}:{number}": handle for number, handle in found.items()}
        elif found and node.op in _PASSING:
            handle_of |= {f"{node.name}:{number}": found[0] for number in (0, 1) if 0 in found}
    return touched


def _is_handle(node: Any) -> bool:
    from tensorflow.core.framework import types_pb2

    if node.op == "Placeholder":
        return bool(node.attr["dtype"].type == types_pb2.DT_RESOURCE)
    return node.op in VARIABLES or node.op in TABLES
