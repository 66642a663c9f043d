"""Everything in a SavedModel that touches a placed variable follows it.

A file has more handles than variables, save and restore ops, and signatures besides the placed
one.  Handles of one variable, the ops of the main graph that read and write them, and variables
that one op touches together (a weight and its optimizer slots) must share a device, or the model
does not restore or another signature does not run.  What nothing planned touches goes to the host.
"""

from collections.abc import Collection, Mapping
from typing import Any

from cost_models.device_names import full_name
from placer.application.devices.device_mapping import HOST
from placer.extraction.graph_defs.flat_nodes import hinted_ops
from placer.extraction.graph_defs.program import FlatProgram
from placer.extraction.graph_defs.state import resource_key
from placer.extraction.reading.companions import other_signatures, touched_by, touched_in_main
from placer.extraction.reading.loaded_variables import objects_in_use
from placer.graph.op_types import CALLS, CONTROL_FLOW, RESTORES, TABLES, VARIABLES
from placer.graph.program_source import Warning_
from placer.graph.tensor_names import op_of

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
    variables = {node.name for node in graph_def.node if node.op in VARIABLES}
    handle_devices = {
        name: planned.get(key, full_name(HOST))
        for name, key in keys.items()
        if key in planned or name in variables
    }
    _place_accesses(graph_def, handle_devices, planned=devices)
    _restore_on_host(graph_def)
    _place_objects(meta_graph, handle_devices)
    return warnings


def _place_companions(
    meta_graph: Any,
    program: FlatProgram,
    keys: Mapping[str, ResourceKey],
    planned: dict[ResourceKey, str],
) -> tuple[Warning_, ...]:
    """Extends ``planned`` by variables that other signatures, or ops of the main graph, touch
    together with placed ones."""
    warnings = []
    for _, handles in touched_in_main(meta_graph.graph_def):
        beside = [keys[name] for name in handles if name in keys]
        devices = [planned[key] for key in beside if key in planned]
        for key in beside if devices else ():
            planned.setdefault(key, devices[0])
    others = other_signatures(meta_graph, program.signature)
    for signature, ops in touched_by(program.path, ",".join(program.tags), others):
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


def _place_accesses(
    graph_def: Any, handle_devices: Mapping[str, str], planned: Collection[str]
) -> None:
    """Devices of all handles in the main graph and of the ops that read or write them.

    Ops that are not ``planned`` may be on the host for the sake of an earlier placement.
    """
    host = full_name(HOST)
    nodes = {node.name: node for node in graph_def.node}
    followers = set(handle_devices)
    for name, device in handle_devices.items():
        nodes[name].device = device
    for node in graph_def.node:
        for source in map(op_of, node.input):
            is_free = not node.device or (node.device == host and node.name not in planned)
            if source in followers and is_free and node.op not in CALLS | CONTROL_FLOW:
                node.device = handle_devices[source]
    for node in graph_def.node:
        for owner in hinted_ops(node):
            if owner in followers:
                node.device = node.device or handle_devices[owner]


def _restore_on_host(graph_def: Any) -> None:
    """Puts the values read from a checkpoint on the host: else they pass through GPU:0."""
    read: set[str] = set()
    for node in graph_def.node:  # an Identity comes after what it reads
        is_read = node.op in RESTORES or (node.op == "Identity" and op_of(node.input[0]) in read)
        if is_read and not node.device:
            node.device = full_name(HOST)
            read.add(node.name)


def _place_objects(meta_graph: Any, handle_devices: Mapping[str, str]) -> None:
    """Devices of variables in the object graph, found through the functions that capture them; the
    host for those that nothing in the main graph captures."""
    handles = objects_in_use(meta_graph)
    for number, item in enumerate(meta_graph.object_graph_def.nodes):
        if item.WhichOneof("kind") == "variable":
            device = handle_devices.get(handles.get(number, ""))
            item.variable.device = device or full_name(HOST)
