"""Copies of variables of which every device that runs a part of the batch has one.

In a SavedModel each copy is a variable of its own wherever loaders look: a handle of the main graph
and an argument of the signature's function; an object below the root, ``placer_replicas``, which
``tf.saved_model.load`` restores; and an assignment beside that of the variable in what sessions and
TensorFlow Serving run to restore (of TensorFlow 1 the handle and the last are all there is).  All
copies are restored from the bytes of the variable: the checkpoint has further keys for objects, and
no byte more.

While a model is bound the first copy is the model's own: it is read and saved, and whatever assigns
it from outside of a step (a checkpoint, a callback that changes the learning rate) is assigned to
the others too.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from placer.extraction.division.division import copy_name
from placer.extraction.graph_defs.op_definitions import called_function
from placer.extraction.graph_defs.program import FlatProgram
from placer.extraction.graph_defs.protobufs import copied, functions_by_name
from placer.extraction.reading.checkpoint_index import OBJECT_GRAPH, PREFIX, read_index
from placer.extraction.reading.loaded_variables import leading_to, objects_in_use
from placer.extraction.splitting.parts import ATTRIBUTES
from placer.extraction.splitting.split_checkpoints import write_partial_checkpoint
from placer.graph.name_scopes import free_name
from placer.graph.op_types import ASSIGNS
from placer.graph.tensor_names import data_inputs, is_control, op_of, source_of

_ROOT = "placer_replicas"
_GENERIC = "_generic_user_object"

_ASSIGNING = ("assign", "assign_add", "assign_sub", "_restore_from_tensors")
"""How a ``tf.Variable`` is given a value outside of a step, by Keras and by checkpoints."""


def add_replicas(meta_graph: Any, program: FlatProgram) -> None:
    """Gives a MetaGraphDef the copies of variables that ``program`` has, in place, but for their
    handles, which are ops of the program."""
    copies = handle_copies(program)
    if not copies:
        return
    if not meta_graph.object_graph_def.nodes:  # of TensorFlow 1
        nodes = {node.name: node for node in meta_graph.graph_def.node}
        restoring = leading_to(source_of(meta_graph.saver_def.restore_op_name), nodes)
        _assign_copies(meta_graph.graph_def.node, copies, restoring)
        return
    _add_objects(meta_graph, copies)
    library = functions_by_name(meta_graph.graph_def)
    outputs = meta_graph.signature_def[program.signature].outputs.values()
    (call_name,) = {source_of(info.name) for info in outputs}
    nodes = {node.name: node for node in meta_graph.graph_def.node}
    call = nodes[call_name]
    _add_arguments(call, library[called_function(call)], copies)
    bound = meta_graph.object_graph_def.concrete_functions[called_function(call)].bound_inputs
    bound.extend(number for _, number in _added(meta_graph.object_graph_def))
    for name in leading_to(source_of(meta_graph.saver_def.restore_op_name), nodes):
        if called_function(nodes[name]) in library:
            _restore(nodes[name], library[called_function(nodes[name])], copies)


def handle_copies(program: FlatProgram) -> dict[str, list[str]]:
    """The handles of variables with those of their copies, in the order of the arguments."""
    division, known = program.division, program.copies
    if division is None or not known:
        return {}
    found = {handle: division.copies(handle) for handle in division.variables}
    return {handle: copies for handle, copies in found.items() if known.issuperset(copies)}


def write_replicas(saved_model: Any, folder: Path, bring: Callable[[Path, Path], None]) -> None:
    """Writes the checkpoint in ``folder`` anew, with a key for every copy that the objects of
    ``saved_model`` have and it has not; ``bring`` links a file of data."""
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    objects = saved_model.meta_graphs[0].object_graph_def
    added = _added(objects)
    index = read_index(folder)
    content = index.text(OBJECT_GRAPH) if added else None
    if content is None:
        return
    graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(content)
    if any(child.local_name == _ROOT for child in graph.nodes[0].children):
        return
    alike = {}
    root = graph.nodes[0].children.add(node_id=len(graph.nodes), local_name=_ROOT).node_id
    graph.nodes.add()
    for name, _ in added:
        original, copy = map(int, name.split("_"))
        graph.nodes[root].children.add(node_id=len(graph.nodes), local_name=name)
        (held,) = graph.nodes[original].attributes
        attribute = graph.nodes.add().attributes.add()
        attribute.CopyFrom(held)
        path, mark, kind = held.checkpoint_key.partition(ATTRIBUTES)
        attribute.checkpoint_key = copy_name(path, copy) + mark + kind
        alike[attribute.checkpoint_key] = held.checkpoint_key
    keys = index.entries.keys() - {OBJECT_GRAPH}
    target, before = folder / PREFIX.parent, folder / f"{PREFIX.parent}_before"
    target.rename(before)
    write_partial_checkpoint(
        before / PREFIX.name, target, keys, graph.SerializeToString(), bring, alike
    )
    if before.is_symlink():
        before.unlink()
    else:
        shutil.rmtree(before)


def _add_objects(meta_graph: Any, copies: Mapping[str, Sequence[str]]) -> None:
    """Adds the object of every copy, below one that the root has; ``3_1`` is the first copy of the
    object number 3."""
    objects = meta_graph.object_graph_def
    numbers = {handle: number for number, handle in objects_in_use(meta_graph).items()}
    root = objects.nodes[0].children.add(node_id=len(objects.nodes), local_name=_ROOT).node_id
    plain = objects.nodes.add().user_object
    plain.identifier, plain.version.producer, plain.version.min_consumer = _GENERIC, 1, 1
    for handle, names in copies.items():
        for number, _ in enumerate(names, 1):
            variable = copied(objects.nodes[numbers[handle]].variable)
            name = f"{numbers[handle]}_{number}"
            objects.nodes[root].children.add(node_id=len(objects.nodes), local_name=name)
            variable.name = copy_name(variable.name, number)
            objects.nodes.add().variable.CopyFrom(variable)


def _added(objects: Any) -> list[tuple[str, int]]:
    """(name, number) of the objects of copies."""
    children = objects.nodes[0].children if objects.nodes else ()
    roots = [child.node_id for child in children if child.local_name == _ROOT]
    return [(c.local_name, c.node_id) for root in roots for c in objects.nodes[root].children]


def _add_arguments(
    call: Any, function: Any, copies: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """Gives ``function`` the copies of the handles that ``call`` gives it, in place; the new
    arguments by that of the handle."""
    arguments, inputs = function.signature.input_arg, data_inputs(call.input)
    waits = call.input[len(inputs) :]
    given = {op_of(text): number for number, text in enumerate(inputs)}
    taken = {*(a.name for a in arguments), *(node.name for node in function.node_def)}
    found: dict[str, list[str]] = {}
    for handle, copy in [(key, name) for key, names in copies.items() for name in names]:
        if handle not in given:
            continue
        number, new = given[handle], len(arguments)
        argument = arguments.add()
        argument.CopyFrom(arguments[number])
        argument.name = free_name(f"{argument.name}_replica", taken)
        taken.add(argument.name)
        if number in function.arg_attr:
            function.arg_attr[new].CopyFrom(function.arg_attr[number])
            function.arg_attr[new].attr.pop("_user_specified_name", None)
        if "_input_shapes" in function.attr:
            shapes = function.attr["_input_shapes"].list.shape
            shapes.add().CopyFrom(shapes[number])
        if "Tin" in call.attr:
            call.attr["Tin"].list.type.append(argument.type)
        found.setdefault(arguments[number].name, []).append(argument.name)
        inputs.append(copy)
    call.input[:] = [*inputs, *waits]
    return found


def _restore(call: Any, function: Any, copies: Mapping[str, Sequence[str]]) -> None:
    """Has ``function`` assign what is restored to the copies too, in place."""
    new = _add_arguments(call, function, copies)
    names = [node.name for node in function.node_def]
    added = _assign_copies(function.node_def, new, names)
    for node_name in list(function.control_ret.values()):
        for name in added.get(node_name, ()):
            function.control_ret[name] = name
            function.signature.control_output.append(name)


def _assign_copies(
    nodes: Any, copies: Mapping[str, Sequence[str]], names: Collection[str]
) -> dict[str, list[str]]:
    """Gives the ``copies`` of a handle what those of the ``nodes`` with these ``names`` assign it,
    in place; the new ops by the old one."""
    added: dict[str, list[str]] = {}
    for node in [node for node in nodes if node.op in ASSIGNS and node.name in names]:
        for number, handle in enumerate(copies.get(op_of(node.input[0]), ()), 1):
            copy = nodes.add()
            copy.CopyFrom(node)
            copy.name, copy.device = f"{node.name}_replica_{number}", ""
            copy.input[0] = handle
            copy.attr.pop("_class", None)
            added.setdefault(node.name, []).append(copy.name)
    for node in nodes if added else ():
        waited = [text[1:] for text in node.input if is_control(text)]
        node.input.extend(f"^{name}" for each in waited for name in added.get(each, ()))
    return added


class Replicas:
    """The other replicas of some variables, by the first one's."""

    def __init__(self) -> None:
        self._others: dict[int, tuple[Any, list[Any]]] = {}

    def add(self, first: Any, other: Any) -> None:
        """``other`` follows ``first`` from now on."""
        if id(first) not in self._others:
            self._others[id(first)] = first, []
            for name in _ASSIGNING:
                vars(first)[name] = partial(self._assigned, first, getattr(first, name))
        self._others[id(first)][1].append(other)

    def spread(self, only: Iterable[Any] | None = None) -> None:
        """Gives the others the values of the first ones, by default all of them."""
        wanted = None if only is None else {id(variable) for variable in only}
        for key, (first, others) in self._others.items():
            for other in others if wanted is None or key in wanted else ():
                other.assign(first.read_value())

    def pairs(self) -> list[tuple[Any, list[Any]]]:
        """Every first one with the others."""
        return list(self._others.values())

    def release(self) -> None:
        """Nothing follows any more."""
        for first, _ in self._others.values():
            for name in _ASSIGNING:
                vars(first).pop(name, None)
        self._others.clear()

    def _assigned(self, first: Any, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        import tensorflow as tf

        found = method(*args, **kwargs)
        if tf.executing_eagerly():
            self.spread([first])
        return found
