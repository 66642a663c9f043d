"""Everything in a SavedModel that touches a placed variable follows it.

A file has more handles than variables, save and restore ops, and signatures besides the placed
one.  Handles of one variable, the ops of the main graph that read and write them, and variables
that one op touches together (a weight and its optimizer slots) must share a device, or the model
does not restore or another signature does not run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from placer.errors import ModelError
from placer.extraction.graph_defs.flat_nodes import hinted_ops
from placer.extraction.graph_defs.program import FlatProgram
from placer.extraction.graph_defs.state import resource_key
from placer.extraction.reading.saved_functions import captured_tensors
from placer.extraction.reading.signatures import INITIALISER_SIGNATURE
from placer.graph.op_types import CALLS, ENTERS, LOOPS, SWITCHES, TABLES, VARIABLES
from placer.graph.program_source import Warning_
from placer.graph.tensor_names import data_inputs, full_tensor, op_of

_PASSING = ENTERS | SWITCHES | {"Identity", "RefIdentity"}

ResourceKey = tuple[str, str, str]


def follow_variables(
    meta_graph: Any, program: FlatProgram, devices: Mapping[str, str]
) -> tuple[Warning_, ...]:
    """Writes the devices of placed variables wherever they matter, in place; returns warnings.

    ``devices`` maps the flat ops of ``program`` to full device names.
    """
    graph_def = meta_graph.graph_def
    keys = {
        node.name: resource_key(node)
        for node in graph_def.node
        if node.op in VARIABLES or node.op in TABLES
    }
    planned = {keys[name]: device for name, device in devices.items() if name in keys}
    warnings = _place_companions(meta_graph, program, keys, planned)
    handle_devices = {name: planned[key] for name, key in keys.items() if key in planned}
    _place_accesses(graph_def, handle_devices)
    _place_objects(meta_graph, handle_devices)
    return warnings


def _is_handle(node: Any) -> bool:
    from tensorflow.core.framework import types_pb2

    if node.op == "Placeholder":
        return bool(node.attr["dtype"].type == types_pb2.DT_RESOURCE)
    return node.op in VARIABLES or node.op in TABLES


def _place_companions(
    meta_graph: Any,
    program: FlatProgram,
    keys: Mapping[str, ResourceKey],
    planned: dict[ResourceKey, str],
) -> tuple[Warning_, ...]:
    """Extends ``planned`` by variables that other signatures touch together with placed ones."""
    warnings = []
    for signature, ops in _other_signatures(meta_graph, program):
        for op, handles in ops:
            touched = {keys[name] for name in handles if name in keys}
            found = {planned[key] for key in touched if key in planned}
            if len(found) == 1:
                planned.update(dict.fromkeys(touched - planned.keys(), *found))
            elif len(found) > 1:
                message = (
                    f"signature {signature!r} cannot run any more: op {op} touches variables on "
                    f"{', '.join(sorted(found))}"
                )
                warnings.append(("signature_torn", message, (op,)))
    return tuple(warnings)


def _other_signatures(
    meta_graph: Any, program: FlatProgram
) -> Iterator[tuple[str, list[tuple[str, list[str]]]]]:
    """(signature, its ops with the handles they touch) for all signatures but the placed one."""
    from placer.extraction.reading.loading import load_program

    for name in sorted(meta_graph.signature_def):
        if name in (program.signature, INITIALISER_SIGNATURE):
            continue
        try:
            other = load_program(program.path, tag_set=",".join(program.tags), signature=name)
        except ModelError:
            continue
        yield name, touched_handles(other.graph_def.node)


def touched_handles(nodes: Any) -> list[tuple[str, list[str]]]:
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


def _place_accesses(graph_def: Any, handle_devices: Mapping[str, str]) -> None:
    """Devices of all handles in the main graph and of the ops that read or write them."""
    nodes = {node.name: node for node in graph_def.node}
    followers = set(handle_devices)
    for name, device in handle_devices.items():
        nodes[name].device = device
    for node in graph_def.node:
        for source in map(op_of, node.input):
            if source in followers and node.op not in CALLS and not node.device:
                node.device = handle_devices[source]
    for node in graph_def.node:
        for owner in hinted_ops(node):
            if owner in followers:
                node.device = node.device or handle_devices[owner]


def _place_objects(meta_graph: Any, handle_devices: Mapping[str, str]) -> None:
    """Devices of variables in the object graph, found through the functions that capture them."""
    objects = meta_graph.object_graph_def.nodes
    for object_id, tensor in captured_tensors(meta_graph):
        device = handle_devices.get(op_of(tensor))
        if device and objects[object_id].WhichOneof("kind") == "variable":
            objects[object_id].variable.device = device
