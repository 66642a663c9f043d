"""Which variables the loaders of a SavedModel restore, and which of them the chosen signature uses.

TensorFlow 2's loader makes a variable of every object that its root leads to, and restores each by
the path that leads there.  Sessions and TensorFlow Serving run the restore op of the graph instead,
which assigns handles of the main graph.  The two need not agree: Keras 3's ``export`` tracks each
variable twice, so that an object and the handle that functions are given in its place may be
restored under different keys.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from cost_models.device_names import canonical
from placer.extraction.division.division import copy_name
from placer.extraction.graph_defs.op_definitions import attribute, called_function
from placer.extraction.graph_defs.program import FlatProgram
from placer.extraction.graph_defs.protobufs import functions_by_name
from placer.extraction.graph_defs.state import resource_key
from placer.extraction.reading.checkpoint_index import (
    OBJECT_GRAPH,
    CheckpointIndex,
    declared_tensor,
)
from placer.extraction.reading.companions import other_signatures, touched_by, touched_in_main
from placer.extraction.reading.saved_functions import captured_tensors
from placer.extraction.reading.table_contents import find_tables
from placer.graph.name_scopes import free_name
from placer.graph.op_types import ASSIGNS, REF_VARIABLES, RESTORES, VARIABLES
from placer.graph.stored_variables import StoredVariable, StoredVariables
from placer.graph.tensor_names import data_inputs, op_of, source_of
from placer.graph.walks import reached

VALUE = "VARIABLE_VALUE"
_SUFFIX = f"/.ATTRIBUTES/{VALUE}"


def find_stored(
    program: FlatProgram, meta_graph: Any, path: Path, index: CheckpointIndex
) -> StoredVariables:
    """Returns the variables that loaders restore of the SavedModel from which ``program`` was
    read."""
    return _Finder(program, meta_graph, path, index).find()


def objects_in_use(meta_graph: Any) -> dict[int, str]:
    """The ops of the main graph that stand for objects, by their number, as far as calls there
    capture these."""
    found: dict[int, str] = {}
    for number, tensor in captured_tensors(meta_graph):
        found.setdefault(number, op_of(tensor))
    return found


def tracked_variables(meta_graph: Any) -> list[int]:
    """The numbers of the variables that the root of the objects leads to, nearest first: those that
    TensorFlow 2's loader restores."""
    objects = meta_graph.object_graph_def.nodes
    if not objects:
        return []
    pending, seen, found = deque([0]), {0}, []
    while pending:
        here = objects[pending.popleft()]
        for number in (
            *(child.node_id for child in here.children),
            *(slot.slot_variable_node_id for slot in here.slot_variables),
        ):
            if number in seen or number >= len(objects):
                continue
            seen.add(number)
            pending.append(number)
            if objects[number].WhichOneof("kind") == "variable":
                found.append(number)
    return found


def checkpoint_keys(index: CheckpointIndex) -> dict[int, str] | None:
    """The key of every object that has a value, by its number; ``None`` where the checkpoint has no
    objects or is not there.  Objects have the same numbers in a SavedModel and its checkpoint."""
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    content = index.text(OBJECT_GRAPH)
    if content is None:
        return None
    try:
        graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(content)
    except DecodeError:
        return None
    return {
        number: item.checkpoint_key
        for number, node in enumerate(graph.nodes)
        for item in node.attributes
        if item.name == VALUE
    }


def restored_handles(meta_graph: Any) -> Iterator[tuple[str, str]]:
    """(handle op of the main graph, key in the checkpoint) of every variable that the restore op
    assigns."""
    nodes = {node.name: node for node in meta_graph.graph_def.node}
    library = functions_by_name(meta_graph.graph_def)
    for name in leading_to(source_of(meta_graph.saver_def.restore_op_name), nodes):
        node = nodes[name]
        if node.op in ASSIGNS:
            key = _restored_key(node, nodes)
            if key is not None:
                yield op_of(data_inputs(node.input)[0]), key
        elif called_function(node) in library:
            yield from _in_function(node, library[called_function(node)])


def _in_function(call: Any, function: Any) -> Iterator[tuple[str, str]]:
    names = [argument.name for argument in function.signature.input_arg]
    given = dict(zip(names, data_inputs(call.input), strict=False))
    nodes = {node.name: node for node in function.node_def}
    for node in function.node_def:
        if node.op in ASSIGNS:
            handle = given.get(op_of(data_inputs(node.input)[0]))
            key = _restored_key(node, nodes)
            if handle is not None and key is not None:
                yield op_of(handle), key


def _restored_key(node: Any, nodes: Mapping[str, Any]) -> str | None:
    """The key whose value ``node`` assigns; ``None`` if it is not restored."""
    read = data_inputs(node.input)
    found = restorer_of(read[1], nodes) if len(read) > 1 else None
    names = [] if found is None else data_inputs(found[0].input)[1:2]
    keys = string_values(nodes.get(op_of(names[0]))) if names else ()
    number = found[1] if found is not None else 0
    return keys[number].decode(errors="replace") if number < len(keys) else None


def restorer_of(text: str, by_name: Mapping[str, Any]) -> tuple[Any, int] | None:
    """The op that reads a tensor out of a checkpoint, and which of its outputs it is."""
    for _ in range(len(by_name)):
        node = by_name.get(op_of(text))
        if node is None:
            return None
        if node.op in RESTORES:
            return node, int(text.rpartition(":")[2]) if ":" in text else 0
        read = data_inputs(node.input)
        if not read:
            return None
        text = read[0]
    return None


def string_values(constant: Any) -> Sequence[bytes]:
    """The strings of a constant, ``()`` if it is none or has but one for all its elements."""
    if constant is None or constant.op != "Const":
        return ()
    return list(attribute(constant.attr, "value").tensor.string_val)


def leading_to(name: str, nodes: Mapping[str, Any]) -> list[str]:
    """``name`` and all nodes whose values or completion it waits for."""

    def sources(reader: str) -> Iterator[str]:
        return (source for source in map(source_of, nodes[reader].input) if source in nodes)

    return reached([name] if name in nodes else [], sources)


def _asked_devices(nodes: Iterable[Any]) -> dict[str, str]:
    """The device that a variable's handle asks for, or else the first op that reads or assigns it:
    TensorFlow keeps all of them together (a sharded saver reads the parts of a table on the host).
    """
    ordered = list(nodes)
    handles = {node.name for node in ordered if node.op in VARIABLES - REF_VARIABLES}
    found: dict[str, str] = {}
    for node in sorted(ordered, key=lambda node: node.name not in handles):
        touched = {node.name, *map(op_of, data_inputs(node.input))} & handles
        try:
            device = canonical(node.device) if touched and node.device else ""
        except ValueError:  # a partial name, such as /job:worker
            continue
        for name in touched if device else ():
            found.setdefault(name, device)
    return found


class _Finder:
    """Finds what is stored of one model, and what its program makes of that."""

    def __init__(
        self, program: FlatProgram, meta_graph: Any, path: Path, index: CheckpointIndex
    ) -> None:
        self.program, self.meta_graph, self.path, self.index = program, meta_graph, path, index
        self.nodes = {node.name: node for node in meta_graph.graph_def.node}
        self.handle_of: dict[tuple[str, str, str], str] = {}
        for node in program.graph_def.node:
            if node.op in VARIABLES:
                self.handle_of.setdefault(resource_key(node), node.name)
        self.calls = self._calls()
        functions = meta_graph.object_graph_def.concrete_functions.values()
        bound = {number for function in functions for number in function.bound_inputs}
        self.bound = {k for n, k in (checkpoint_keys(index) or {}).items() if n in bound}
        self.asked = _asked_devices(meta_graph.graph_def.node)

    def find(self) -> StoredVariables:
        """All that is restored."""
        objects, nodes = list(self._objects()), list(self._nodes())
        follows = self._followed(objects, nodes)
        settle = partial(self._settled, follows=follows)
        held, idle, at_least = find_tables(self.program, self.meta_graph, self.path, self.index)
        return StoredVariables(
            objects=tuple(self._with_copies(settle(objects))),
            nodes=tuple(self._with_copies(settle(nodes))),
            held_bytes=held,
            idle_bytes=idle,
            at_least=at_least,
        )

    def _with_copies(self, found: Iterable[StoredVariable]) -> Iterator[StoredVariable]:
        """The variables with the copies that parts of the batch have of them."""
        division = self.program.division
        for stored in found:
            yield stored
            copies = [] if division is None else division.copies(stored.handle)
            for number, handle in enumerate(copies, 1):
                if handle in self.program.origins:
                    name = copy_name(stored.name, number)
                    yield replace(stored, name=name, handle=handle)

    def _calls(self) -> dict[str, frozenset[str]]:
        """The other signatures by the handle ops that they lead to."""
        found: dict[str, set[str]] = {}
        for name in other_signatures(self.meta_graph, self.program.signature):
            outputs = self.meta_graph.signature_def[name].outputs.values()
            for op in {source_of(info.name) for info in outputs if info.name}:
                for node in leading_to(op, self.nodes):
                    if self.nodes[node].op in VARIABLES:
                        found.setdefault(node, set()).add(name)
        return {node: frozenset(names) for node, names in found.items()}

    def _objects(self) -> Iterator[tuple[str, str, Any]]:
        """(handle op of the main graph, key, entry or object) of what TensorFlow 2 restores."""
        saved, handles = self.meta_graph.object_graph_def.nodes, objects_in_use(self.meta_graph)
        keys, names = checkpoint_keys(self.index), set[str]()
        for number in tracked_variables(self.meta_graph):
            if keys is None:
                variable = saved[number].variable
                entry = declared_tensor(variable.dtype, variable.shape)
                name = free_name(variable.name or "variable", names)
                names.add(name)
                yield handles.get(number, ""), name, entry
            elif keys.get(number) in self.index.entries:
                yield handles.get(number, ""), keys[number], self.index.entries[keys[number]]

    def _nodes(self) -> Iterator[tuple[str, str, Any]]:
        """The same of what the restore op assigns."""
        for handle, key in restored_handles(self.meta_graph):
            node = self.nodes.get(handle)
            if node is None:
                continue
            entry = self.index.entries.get(key)
            declared = declared_tensor(
                attribute(node.attr, "dtype").type, attribute(node.attr, "shape").shape
            )
            if entry is None or entry.sliced:  # of a slice only the variable has the size
                yield handle, key if entry is None else handle, declared
            else:
                yield handle, key, entry

    def _used(self, handle: str) -> str:
        """The flat op that stands for a handle of the main graph, ``""`` if none does."""
        node = self.nodes.get(handle)
        return self.handle_of.get(resource_key(node), "") if node is not None else ""

    def _followed(self, *found: Iterable[tuple[str, str, Any]]) -> dict[str, str]:
        """The flat handle beside which an unused one has to be, since an op of another signature or
        of the main graph touches both."""
        unused = {handle for rows in found for handle, _, _ in rows if not self._used(handle)}
        used = {handle for handle in self.calls if self._used(handle)}
        names = {name for handle in unused for name in self.calls.get(handle, ())}
        names &= {name for handle in used for name in self.calls[handle]}
        tags = ",".join(self.program.tags)
        follows: dict[str, str] = {}
        others = (ops for _, ops in touched_by(self.path, tags, sorted(names)))
        for ops in (touched_in_main(self.meta_graph.graph_def), *others):
            for _, handles in ops:
                beside = [self._used(handle) for handle in handles if self._used(handle)]
                for handle in handles if beside else ():
                    if handle in unused:
                        follows.setdefault(handle, beside[0])
        return follows

    def _settled(
        self, found: Iterable[tuple[str, str, Any]], follows: Mapping[str, str]
    ) -> Iterator[StoredVariable]:
        """The variables as records: the used ones first known, then the copies of these."""
        rows = list(found)
        originals: dict[object, str] = {}
        for handle, key, entry in rows:
            if self._used(handle) and entry.values is not None:
                originals.setdefault(entry.values, key.removesuffix(_SUFFIX))
        for handle, key, entry in rows:
            used = self._used(handle)
            copied = "" if used or entry.values is None else originals.get(entry.values, "")
            yield StoredVariable(
                name=key.removesuffix(_SUFFIX),
                bytes=entry.bytes,
                # which TensorFlow keeps in host memory, on whatever device a variable is
                host_only=entry.dtype in ("int32", "string", "variant"),
                by_node=handle in self.nodes and self.nodes[handle].op in REF_VARIABLES,
                asked=self.asked.get(handle, ""),
                handle=used,
                copy_of=copied,
                follows="" if used else follows.get(handle, ""),
                signatures=() if used else tuple(sorted(self.calls.get(handle, ()))),
                bound=key in self.bound,
            )
