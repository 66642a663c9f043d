"""Functions of a SavedModel that no signature exports, read as if one did.

TensorFlow 2 saves every traced function of an object: its body in the library of the main graph,
the objects that it captures as ``bound_inputs`` in the object graph
(``tensorflow/core/protobuf/saved_object_graph.proto``).  A signature is a call of such a function
in the main graph, so one is added: placeholders, the captured handles and constants, the call.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from placer.errors import ModelError, UsageError
from placer.extraction.graph_defs.op_definitions import called_function
from placer.extraction.graph_defs.protobufs import functions_by_name
from placer.graph.name_scopes import free_name
from placer.graph.op_types import TABLES
from placer.graph.tensor_names import data_inputs

_INNER_NAMES = frozenset({"signatures", "_create_resource", "_initialize", "_destroy_resource"})
"""Objects that TensorFlow itself keeps in addition to those of the user."""

INITIALISER_SIGNATURE = "__saved_model_init_op"
"""The signature that loaders of sessions run, and nobody calls."""

_MOST_NAMED = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedFunction:
    """One concrete function: ``name`` in the library, ``path`` of the attribute of the loaded
    object that holds it, ``number`` among the concrete functions there."""

    name: str
    path: tuple[str, ...]
    number: int


def saved_functions(meta_graph: Any) -> dict[str, list[SavedFunction]]:
    """The functions that a loaded SavedModel offers, by dotted path, the shortest paths first.

    A ``tf.function`` has one concrete function per trace; what is reached along two paths is
    named by the shorter one.
    """
    objects = meta_graph.object_graph_def.nodes
    saved = meta_graph.object_graph_def.concrete_functions
    found: dict[str, list[SavedFunction]] = {}
    pending: deque[tuple[int, tuple[str, ...]]] = deque([(0, ())])
    seen = {0}
    while pending:
        number, path = pending.popleft()
        for child in objects[number].children if number < len(objects) else ():
            if child.node_id in seen or child.local_name in _INNER_NAMES:
                continue
            seen.add(child.node_id)
            inner = (*path, child.local_name)
            names = concrete_names(objects, child.node_id)
            known = [
                SavedFunction(name=name, path=inner, number=position)
                for position, name in enumerate(names)
                if name in saved
            ]
            if known:
                found[".".join(inner)] = known
            if not names:
                pending.append((child.node_id, inner))
    return found


def concrete_names(objects: Any, number: int) -> list[str]:
    """The concrete functions that an object of the object graph is, by their names in the library;
    none for other objects."""
    if number >= len(objects):
        return []
    kind = objects[number].WhichOneof("kind")
    if kind == "function":
        return list(objects[number].function.concrete_functions)
    if kind == "bare_concrete_function":
        return [objects[number].bare_concrete_function.concrete_function_name]
    return []


def find_function(meta_graph: Any, name: str) -> SavedFunction | None:
    """The function called ``name`` (``__inference_f_91``) or at that path (``f``, ``model.call``).

    Raises :class:`UsageError` naming them if the path leads to several concrete functions.
    """
    found = saved_functions(meta_graph)
    choice = found.get(name.replace("/", "."), [])
    if len(choice) > 1:
        traces = ", ".join(f"{item.name!r} ({_arguments(meta_graph, item)})" for item in choice)
        raise UsageError(
            f"{name!r} was traced {len(choice)} times, as {traces}: choose one with --signature"
        )
    named = (item for group in found.values() for item in group if item.name == name)
    return choice[0] if choice else next(named, None)


def _arguments(meta_graph: Any, found: SavedFunction) -> str:
    """Returns the arguments that a trace was made for, in words."""
    from tensorflow.python.saved_model import nested_structure_coder

    saved = meta_graph.object_graph_def.concrete_functions[found.name]
    try:
        positional, keywords = nested_structure_coder.decode_proto(
            saved.canonicalized_input_signature
        )
    except Exception:  # as for output_keys
        return "?"
    shown = [_argument(value) for value in positional]
    shown += [f"{key}={_argument(value)}" for key, value in keywords.items()]
    return ", ".join(shown) or "no arguments"


def _argument(value: Any) -> str:
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        return repr(value)[:60]
    shape = value.shape.as_list() if value.shape.rank is not None else "?"
    name = f"{value.name}: " if getattr(value, "name", None) else ""
    return f"{name}{value.dtype.name} {shape}".replace("None", "?")


def listed_functions(meta_graph: Any) -> str:
    """The paths of the functions, for a message; ``""`` if there are none."""
    paths = list(saved_functions(meta_graph))
    if not paths:
        return ""
    more = f" and {len(paths) - _MOST_NAMED} more" if len(paths) > _MOST_NAMED else ""
    return ", ".join(map(repr, paths[:_MOST_NAMED])) + more


@contextmanager
def exported_function(meta_graph: Any, name: str) -> Iterator[None]:
    """Gives ``meta_graph`` a signature ``name`` that calls the function of that name, in the block.

    Nothing happens if it has such a signature, or no such function.  What was added is taken out
    again at the end; what was changed meanwhile stays.
    """
    count = len(meta_graph.graph_def.node)
    before = {node.name for node in meta_graph.graph_def.node}
    added = export_function(meta_graph, name)
    try:
        yield
    finally:
        if added:
            del meta_graph.signature_def[name]
            nodes = meta_graph.graph_def.node
            for number in reversed(range(count, len(nodes))):
                if nodes[number].name not in before:
                    del nodes[number]


def export_function(meta_graph: Any, name: str) -> bool:
    """Adds a signature ``name`` that calls the function of that name, in place; whether it did.

    Names of the added ops depend on the path, not on devices, so a placed file gives the same
    flat names as the original.  Raises as :func:`find_function`, and :class:`ModelError` if the
    function captures what cannot be found.
    """
    if name in meta_graph.signature_def:
        return False
    found = find_function(meta_graph, name)
    if found is None:
        return False
    _Export(meta_graph, found).write(meta_graph.signature_def[name])
    return True


class _Export:
    """Writes the call of a function, and what it reads, into the main graph."""

    def __init__(self, meta_graph: Any, found: SavedFunction) -> None:
        self.meta_graph = meta_graph
        self.found = found
        self.taken = {node.name: node for node in meta_graph.graph_def.node}
        library = functions_by_name(meta_graph.graph_def)
        if found.name not in library:
            raise ModelError(f"the function {found.name!r} is not in the model's library")
        self.library = library
        self.function = library[found.name]
        self.saved = meta_graph.object_graph_def.concrete_functions[found.name]

    def write(self, signature: Any) -> None:
        """The call and its inputs; ``signature`` is filled in."""
        handles: dict[int, str] = {}
        for captured, tensor in captured_tensors(self.meta_graph):
            handles.setdefault(captured, tensor)
        arguments = self.function.signature.input_arg
        bound = list(self.saved.bound_inputs)
        if len(bound) > len(arguments):
            raise ModelError(f"the function {self.found.name!r} captures more than it takes")
        fed = len(arguments) - len(bound)
        inputs = [self.placeholder(number, signature) for number in range(fed)]
        for number, object_id in enumerate(bound, fed):
            inputs.append(handles.get(object_id) or self.captured(object_id, arguments[number]))
        call = self.add("StatefulPartitionedCall", self.found.path[-1])
        call.input.extend(inputs)
        call.attr["f"].func.name = self.found.name
        call.attr["Tin"].list.type.extend(argument.type for argument in arguments)
        outputs = self.function.signature.output_arg
        call.attr["Tout"].list.type.extend(argument.type for argument in outputs)
        for number, (key, argument) in enumerate(zip(self.output_keys(), outputs, strict=True)):
            signature.outputs[key].name = f"{call.name}:{number}"
            signature.outputs[key].dtype = argument.type

    def add(self, op: str, name: str) -> Any:
        """A new node of the main graph, ``name`` made unique."""
        unique = free_name(name, self.taken)
        node = self.meta_graph.graph_def.node.add(op=op, name=unique)
        self.taken[unique] = node
        return node

    def placeholder(self, number: int, signature: Any) -> str:
        argument = self.function.signature.input_arg[number]
        attributes = self.function.arg_attr[number].attr
        key = argument.name
        if "_user_specified_name" in attributes:
            key = attributes["_user_specified_name"].s.decode(errors="replace") or key
        key = key if key not in signature.inputs else argument.name
        node = self.add("Placeholder", f"{self.found.path[-1]}_{argument.name}")
        node.attr["dtype"].type = argument.type
        shape = node.attr["shape"].shape
        shape.unknown_rank = True
        for owner, index in ((attributes, 0), (self.function.attr, number)):
            for known in ("_output_shapes", "_input_shapes"):
                shapes = owner[known].list.shape if known in owner else ()
                if len(shapes) > index:
                    shape.CopyFrom(shapes[index])
        signature.inputs[key].name = f"{node.name}:0"
        signature.inputs[key].dtype = argument.type
        signature.inputs[key].tensor_shape.CopyFrom(shape)
        return str(node.name)

    def captured(self, object_id: int, argument: Any) -> str:
        """A handle for an object that no call of the main graph reads."""
        objects = self.meta_graph.object_graph_def.nodes
        if object_id >= len(objects):
            raise ModelError(f"the function {self.found.name!r} captures an object that is missing")
        item = objects[object_id]
        kind = item.WhichOneof("kind")
        files = self.meta_graph.asset_file_def
        if kind == "constant" and item.constant.operation in self.taken:
            return str(item.constant.operation)
        if kind == "asset" and item.asset.asset_file_def_index < len(files):
            return str(files[item.asset.asset_file_def_index].tensor_info.name.removesuffix(":0"))
        name = f"{self.found.path[-1]}_{item.variable.name or argument.name}"
        if kind == "variable":
            node = self.add("VarHandleOp", name)
            node.attr["dtype"].type = item.variable.dtype
            node.attr["shape"].shape.CopyFrom(item.variable.shape)
            node.attr["shared_name"].s = item.variable.name.encode()
            # apart from those of the main graph, whatever their shared names
            node.attr["container"].s = f"saved_object_{object_id}".encode()
            return str(node.name)
        table = self.table(item) if kind == "resource" else None
        if table is None:
            raise ModelError(
                f"the function {self.found.name!r} captures a {kind or 'nameless object'} "
                f"({argument.name}) whose handle is not in the file: export the function as a "
                "signature (tf.saved_model.save(model, folder, signatures=...))"
            )
        node = self.add(table.op, name)
        node.attr.MergeFrom(table.attr)
        return str(node.name)

    def table(self, item: Any) -> Any | None:
        """The table op inside the function that creates a resource."""
        objects = self.meta_graph.object_graph_def.nodes
        for child in item.children:
            names = concrete_names(objects, child.node_id)
            if child.local_name == "_create_resource" and names and names[0] in self.library:
                body = self.library[names[0]].node_def
                return next((node for node in body if node.op in TABLES), None)
        return None

    def output_keys(self) -> list[str]:
        """Keys of the outputs, out of the structure that the function returns."""
        from tensorflow.python.saved_model import nested_structure_coder

        count = len(self.function.signature.output_arg)
        try:
            structure = nested_structure_coder.decode_proto(self.saved.output_signature)
            return output_keys(structure, count)
        except Exception:  # a damaged file, or a type that is not here: the keys are only names
            return output_keys((), count)


def output_keys(structure: Any, count: int) -> list[str]:
    """Keys for ``count`` outputs: their paths in the structure that a function returns, or numbers
    where these do not fit."""
    from tensorflow.python.util import nest

    pairs = nest.flatten_with_joined_string_paths(structure, expand_composites=True)
    keys = [path or "output" for path, value in pairs if value is not None]
    if len(keys) == count == len(set(keys)):
        return keys
    return [f"output_{number}" for number in range(count)]


def captured_tensors(meta_graph: Any) -> Iterator[tuple[int, str]]:
    """The objects (by number) that calls in the main graph capture, and the tensors that they are
    there."""
    saved = meta_graph.object_graph_def.concrete_functions
    for call in meta_graph.graph_def.node:
        name = called_function(call)
        if name in saved:
            tensors, bound = data_inputs(call.input), saved[name].bound_inputs
            yield from zip(bound, tensors[max(len(tensors) - len(bound), 0) :], strict=False)
