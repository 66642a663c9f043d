"""A SavedModel without the variables that nothing uses.

What no signature reads and no saved function captures goes from everything that loaders read: the
objects (``tf.saved_model.load``), the ops that restore and save (sessions, TensorFlow Serving),
the collections of TensorFlow 1, and the index of the checkpoint.  The files of data are links: the
bytes stay in them, and no entry leads there.
"""

import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from placer.errors import UsageError
from placer.extraction.graph_defs.op_definitions import called_function
from placer.extraction.graph_defs.protobufs import functions_by_name
from placer.extraction.reading.checkpoint_index import (
    OBJECT_GRAPH,
    PREFIX,
    CheckpointIndex,
    read_index,
)
from placer.extraction.reading.loaded_variables import (
    checkpoint_keys,
    leading_to,
    restored_handles,
    restorer_of,
    tracked_variables,
)
from placer.extraction.splitting.split_checkpoints import shared_keys, write_partial_checkpoint
from placer.graph.op_types import ASSIGNS, RESTORES, VARIABLES
from placer.graph.tensor_names import data_inputs, op_of, source_of
from placer.graph.walks import grouped, reached

_SAVES = ("SaveV2",)
_FIRST_TENSOR = 3
"""Inputs of SaveV2 before the tensors: the file, the keys, the slices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """The parts that are left out: objects by number, handles of the main graph by name, and keys
    of the checkpoint.  ``renamed`` are handles restored from another key with the same bytes."""

    objects: frozenset[int] = frozenset()
    handles: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    renamed: Mapping[str, str] = field(default_factory=dict)


def drop_unused(saved_model: Any, meta_graph: Any, source: Path) -> Dropped:
    """Takes the variables out of ``meta_graph``, in place; what went.

    Raises :class:`UsageError` for a file with several meta graphs, which share one checkpoint.
    """
    if len(saved_model.meta_graphs) > 1:
        raise UsageError(
            f"{str(source)!r} has {len(saved_model.meta_graphs)} tag sets, which share its "
            "weights: unused variables can be dropped where there is one"
        )
    dropped = _find_unused(meta_graph, read_index(source))
    _cut_objects(meta_graph.object_graph_def, dropped.objects)
    _cut_graph(meta_graph, dropped)
    _cut_collections(meta_graph, dropped.handles)
    return dropped


def write_checkpoint_without(
    dropped: Dropped, source: Path, folder: Path, bring: Callable[[Path, Path], None]
) -> None:
    """Writes the checkpoint of ``source`` anew in ``folder``, without what was dropped."""
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    index = read_index(source)
    if not dropped.keys or not index.has_data:
        return
    content, objects = index.text(OBJECT_GRAPH), None
    if content is not None:
        graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(content)
        for node in graph.nodes:
            kept = [item for item in node.attributes if item.checkpoint_key not in dropped.keys]
            del node.attributes[:]
            node.attributes.extend(kept)
        _cut_objects(graph, dropped.objects)
        objects = graph.SerializeToString()
    keys = set(index.entries) - dropped.keys - {OBJECT_GRAPH}
    shutil.rmtree(folder / PREFIX.parent)
    write_partial_checkpoint(source / PREFIX, folder / PREFIX.parent, keys, objects, bring)


def _find_unused(meta_graph: Any, index: CheckpointIndex) -> Dropped:
    nodes = {node.name: node for node in meta_graph.graph_def.node}
    # what TensorFlow 2 restores
    saved = meta_graph.object_graph_def
    bound = {number for item in saved.concrete_functions.values() for number in item.bound_inputs}
    tracked, keys = tracked_variables(meta_graph), checkpoint_keys(index) or {}
    objects = {number for number in tracked if number not in bound}
    needed = {keys[number] for number in tracked if number not in objects and number in keys}
    # what the restore op assigns
    outputs = {
        source_of(info.name)
        for signature in meta_graph.signature_def.values()
        for info in signature.outputs.values()
        if info.name
    }
    read = {name for output in outputs for name in leading_to(output, nodes)}
    restored = dict(restored_handles(meta_graph))
    handles = {handle for handle in restored if handle not in read}
    renamed = dict(shared_keys(restored, handles, needed, index))
    needed |= {renamed.get(h, key) for h, key in restored.items() if h not in handles}
    gone = {keys[number] for number in objects if number in keys}
    gone |= set(restored.values())
    return Dropped(
        objects=frozenset(objects),
        handles=frozenset(handles),
        keys=frozenset(gone - needed),
        renamed=renamed,
    )


def _cut_objects(graph: Any, dropped: Collection[int]) -> None:
    """Takes every edge to the objects out of an object graph; numbers stay."""
    for node in graph.nodes:
        for edges in (node.children, *filter(None, [getattr(node, "dependencies", None)])):
            kept = [edge for edge in edges if edge.node_id not in dropped]
            if len(kept) < len(edges):
                del edges[:]
                edges.extend(kept)
        slots = [
            slot
            for slot in node.slot_variables
            if not {slot.slot_variable_node_id, slot.original_variable_node_id} & set(dropped)
        ]
        if len(slots) < len(node.slot_variables):
            del node.slot_variables[:]
            node.slot_variables.extend(slots)


def _cut_graph(meta_graph: Any, dropped: Dropped) -> None:
    """Takes what restores and saves the handles out of the graph and its functions."""
    graph_def, library = meta_graph.graph_def, functions_by_name(meta_graph.graph_def)
    for call in graph_def.node:
        function = library.get(called_function(call))
        if function is None or not any(n.op in (*RESTORES, *_SAVES) for n in function.node_def):
            continue
        names = [argument.name for argument in function.signature.input_arg]
        given = {n: op_of(t) for n, t in zip(names, data_inputs(call.input), strict=False)}
        gone = {name for name, handle in given.items() if handle in dropped.handles}
        renamed = {n: dropped.renamed[h] for n, h in given.items() if h in dropped.renamed}
        removed = _cut(function.node_def, gone, renamed, in_function=True)
        for output, node in list(function.control_ret.items()):
            if node in removed:
                del function.control_ret[output]
                function.signature.control_output.remove(output)
    _cut(graph_def.node, dropped.handles, dropped.renamed, in_function=False)


def _cut(
    nodes: Any, gone: Collection[str], renamed: Mapping[str, str], *, in_function: bool
) -> set[str]:
    """Takes what saves and restores the handles ``gone`` out of a list of NodeDefs; names of the
    removed ones.  In the main graph other reads of the handles stay: nothing runs them."""
    by_name = {node.name: node for node in nodes}
    for node in nodes:
        if node.op in _SAVES:
            _cut_saver(node, by_name, gone, renamed)
    removed = _depending(nodes, gone) if in_function else _assignments(nodes, by_name, gone)
    removed |= _unread_values(nodes, by_name, removed)
    for node in nodes:
        if node.op in RESTORES and not _cut_restorer(node, nodes, by_name, removed, renamed):
            removed.add(node.name)
    if not removed:
        return removed
    kept = [node for node in nodes if node.name not in removed]
    for node in kept:
        node.input[:] = [t for t in node.input if not (t[0] == "^" and t[1:] in removed)]
    copies = [type(node).FromString(node.SerializeToString()) for node in kept]
    del nodes[:]
    nodes.extend(copies)
    return removed


def _depending(nodes: Any, gone: Collection[str]) -> set[str]:
    """The nodes that compute with a handle."""
    readers = grouped(
        (op_of(text), node.name)
        for node in nodes
        for text in (data_inputs(node.input) if node.op not in _SAVES else ())
    )
    return {*reached(gone, lambda name: readers.get(name, ()))} - {*gone}


def _assignments(nodes: Any, by_name: Mapping[str, Any], gone: Collection[str]) -> set[str]:
    """The nodes that assign restored values to a handle."""
    return {
        node.name
        for node in nodes
        if node.op in ASSIGNS
        and op_of(node.input[0]) in gone
        and restorer_of(node.input[1], by_name) is not None
    }


def _unread_values(nodes: Any, by_name: Mapping[str, Any], removed: Collection[str]) -> set[str]:
    """Identities of restored values that nobody reads any more."""
    read: dict[bool, set[str]] = {True: set(), False: set()}
    for node in nodes:
        read[node.name in removed].update(op_of(text) for text in data_inputs(node.input))
    return {
        name
        for name in read[True] - read[False]
        if name in by_name
        and by_name[name].op == "Identity"
        and restorer_of(by_name[name].input[0], by_name) is not None
    }


def _cut_saver(
    node: Any, by_name: Mapping[str, Any], gone: Collection[str], renamed: Mapping[str, str]
) -> None:
    """Leaves out what is gone, with the keys as ``renamed``: each of them once."""
    read = data_inputs(node.input)
    tensors, keys = read[_FIRST_TENSOR:], _constants(node, by_name)[0]
    handles = [_handle_of(text, by_name) for text in tensors]
    own = {key.decode() for key, h in zip(keys, handles, strict=True) if h not in (*gone, *renamed)}
    kept = []
    for number, handle in enumerate(handles):
        if handle in gone or renamed.get(handle) in own:
            continue
        kept.append(number)
        if handle in renamed:
            keys[number] = renamed[handle].encode()
            own.add(renamed[handle])
    if len(kept) == len(tensors):
        return
    _keep(node, by_name, kept)
    waits = [text for text in node.input if text[0] == "^"]
    node.input[:] = [*read[:_FIRST_TENSOR], *(tensors[i] for i in kept), *waits]


def _handle_of(text: str, by_name: Mapping[str, Any]) -> str:
    """The handle, or the argument of a function, that a saved tensor is read from."""
    for _ in range(len(by_name)):
        node = by_name.get(op_of(text))
        if node is None or node.op in VARIABLES or not data_inputs(node.input):
            break
        text = data_inputs(node.input)[0]
    return op_of(text)


def _cut_restorer(
    node: Any,
    nodes: Any,
    by_name: Mapping[str, Any],
    removed: Collection[str],
    renamed: Mapping[str, str],
) -> bool:
    """Leaves out what nobody reads any more, with the keys as ``renamed``; whether any is left."""
    readers: dict[int, list[tuple[Any, int]]] = {}
    for reader in nodes:
        for slot, text in enumerate(reader.input if reader.name not in removed else ()):
            if text[0] != "^" and op_of(text) == node.name:
                number = int(text.rpartition(":")[2]) if ":" in text else 0
                readers.setdefault(number, []).append((reader, slot))
    for reader in nodes:
        handle = op_of(reader.input[0]) if reader.op in ASSIGNS else ""
        found = restorer_of(reader.input[1], by_name) if handle in renamed else None
        if found is not None and found[0].name == node.name:
            _constants(node, by_name)[0][found[1]] = renamed[handle].encode()
    kept = sorted(readers)
    if len(kept) < len(node.attr["dtypes"].list.type):
        _keep(node, by_name, kept)
        for new, old in enumerate(kept):
            for reader, slot in readers[old]:
                stem = reader.input[slot].rpartition(":")[0] or reader.input[slot]
                reader.input[slot] = f"{stem}:{new}"
    return bool(kept)


def _constants(node: Any, by_name: Mapping[str, Any]) -> tuple[Any, Any]:
    """The keys and slices of a saver or restorer, one for every tensor."""
    count = len(node.attr["dtypes"].list.type)
    found = []
    for text in data_inputs(node.input)[1:3]:
        texts = by_name[op_of(text)].attr["value"].tensor.string_val
        texts.extend([texts[-1]] * (count - len(texts)))
        found.append(texts)
    return found[0], found[1]


def _keep(node: Any, by_name: Mapping[str, Any], kept: list[int]) -> None:
    """Leaves a saver or restorer the tensors ``kept``."""
    for texts in _constants(node, by_name):
        texts[:] = [texts[number] for number in kept]
    for text in data_inputs(node.input)[1:3]:
        constant = by_name[op_of(text)]
        constant.attr["value"].tensor.tensor_shape.dim[0].size = len(kept)
        constant.attr.pop("_output_shapes", None)
    types = node.attr["dtypes"].list.type
    types[:] = [types[number] for number in kept]
    node.attr.pop("_output_shapes", None)


def _cut_collections(meta_graph: Any, dropped: Collection[str]) -> None:
    """Takes variables of TensorFlow 1 out of the collections that list them."""
    from tensorflow.core.framework import variable_pb2

    for name, collection in meta_graph.collection_def.items():
        if "variables" not in name:
            continue
        values = collection.bytes_list.value
        definitions = [variable_pb2.VariableDef.FromString(value) for value in values]
        values[:] = [
            value
            for value, definition in zip(values, definitions, strict=True)
            if op_of(definition.variable_name) not in dropped
        ]
