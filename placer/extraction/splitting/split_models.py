"""Model files in which tables are split: a SavedModel, a GraphDef or a MetaGraphDef."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from placer.errors import ModelError, near_names
from placer.extraction.files.sources import graph_defs, model_file, read_source
from placer.extraction.graph_defs.op_definitions import called_function
from placer.extraction.graph_defs.protobufs import copied, fill_shape, functions_by_name
from placer.extraction.reading.checkpoint_index import PREFIX, read_index
from placer.extraction.reading.loaded_variables import checkpoint_keys
from placer.extraction.splitting.parts import Table
from placer.extraction.splitting.split_checkpoints import split_checkpoint
from placer.extraction.splitting.split_graphs import copies_of, find_tables, is_split, split_graph
from placer.graph.op_types import CALLS
from placer.graph.tensor_names import data_inputs, op_of


def split_model(source: Path, counts: Mapping[str, int], target: Path, *, weights: bool) -> None:
    """Writes the model ``source`` to ``target`` with variables split into so many parts.

    Of a SavedModel the weights are linked, not copied; without ``weights`` they are not read: what
    is written says what is stored, and no loader restores it.  If the variables are split so
    already, nothing is.  Raises :class:`UsageError` for a variable that it lacks,
    :class:`ModelError` for one that cannot be split.
    """
    message = read_source(source)
    kind = message.DESCRIPTOR.name
    if all(is_split(graph_def, counts) for graph_def in graph_defs(message)):
        return
    if kind != "SavedModel":
        graph_def = message if kind == "GraphDef" else message.graph_def
        tables = find_tables(graph_def, counts)
        split_graph(graph_def, tables, {}, sliced=True)
        if kind == "MetaGraphDef":
            _split_definitions(message.collection_def, tables)
        target.write_bytes(message.SerializeToString())
        return
    keys: dict[str, Table] = {}
    folder = source.resolve()
    index = read_index(folder)
    held = checkpoint_keys(index) or {}
    for meta_graph in message.meta_graphs:
        keys.update(_split_meta_graph(meta_graph, counts, held))
    target.mkdir()
    if weights:
        for entry in sorted(folder.iterdir()):
            if entry.name not in (model_file(source).name, "fingerprint.pb", "variables"):
                (target / entry.name).symlink_to(entry)
    if weights or (index.has_data and not index.damage):
        split_checkpoint(folder / PREFIX, target / PREFIX.parent, keys, reads=weights)
    (target / "saved_model.pb").write_bytes(message.SerializeToString())


def _split_meta_graph(
    meta_graph: Any, counts: Mapping[str, int], held: Mapping[int, str]
) -> dict[str, Table]:
    """Splits the tables of a meta graph, in place; what they are called in the checkpoint.

    ``held`` are the keys of its objects by number: Keras's ``export`` has a copy of each variable,
    and functions read the one as an object, the other as a handle of the main graph.
    """
    graph_def, objects = meta_graph.graph_def, meta_graph.object_graph_def
    tables = find_tables(graph_def, counts)
    asked = {table.name for table in tables.values()}
    tables.update(copies_of(graph_def, tables) if objects.nodes else {})
    numbers = _object_numbers(meta_graph, tables, counts) if objects.nodes else {}
    given: dict[str, dict[int, Table]] = {}
    library = functions_by_name(graph_def)
    for name, function in objects.concrete_functions.items():
        if name not in library:
            continue
        bound = list(function.bound_inputs)
        first = len(library[name].signature.input_arg) - len(bound)
        taken = {first + i: numbers[n] for i, n in enumerate(bound) if n in numbers}
        if taken:
            given[name] = taken
    keys = {held[number]: table for number, table in numbers.items() if number in held}
    keys.update(split_graph(graph_def, tables, given, sliced=False))
    copies = {number: keys[key] for number, key in held.items() if key in keys}
    reads = {n: name for name, f in objects.concrete_functions.items() for n in f.bound_inputs}
    if apart := sorted((copies.keys() - numbers.keys()) & reads.keys()):
        raise ModelError(
            f"{copies[apart[0]].name} cannot be split by rows: function {reads[apart[0]]} reads a "
            "copy of it that no signature reads"
        )
    _split_objects(objects, {**copies, **numbers} if objects.nodes else {})
    missing = sorted(asked - {t.name for t in keys.values()})
    if missing:
        raise ModelError(f"{missing[0]} cannot be split by rows: the model does not restore it")
    _split_definitions(meta_graph.collection_def, tables)
    return keys


def _object_numbers(
    meta_graph: Any, tables: Mapping[str, Table], counts: Mapping[str, int]
) -> dict[int, Table]:
    """The tables by their numbers in the object graph: a call of the main graph is given the
    variables that its function is bound to, in the same order."""
    objects = meta_graph.object_graph_def
    found: dict[int, Table] = {}
    read = set()
    for node in meta_graph.graph_def.node:
        name = called_function(node) if node.op in CALLS else ""
        if name in objects.concrete_functions:
            bound = list(objects.concrete_functions[name].bound_inputs)
            inputs = data_inputs(node.input)
            for text, number in zip(inputs[len(inputs) - len(bound) :], bound, strict=True):
                read.add(op_of(text))
                if op_of(text) in tables:
                    found[number] = tables[op_of(text)]
    for name in counts.keys() - {table.name for table in found.values()}:
        alike = [
            number
            for number, node in enumerate(objects.nodes)
            if node.WhichOneof("kind") == "variable" and node.variable.name == name
        ]
        if len(alike) != 1:
            raise ModelError(
                f"{name} cannot be split by rows: no signature reads it"
                f"{near_names(name, sorted(read))}"
            )
        found[alike[0]] = tables[name]
    return found


def _split_objects(objects: Any, numbers: Mapping[int, Table]) -> None:
    """Makes the variables that are split plain objects whose ``part_0``, ... are variables."""
    parts: dict[int, list[int]] = {}
    for number, table in sorted(numbers.items()):  # as the checkpoint numbers the parts
        whole = copied(objects.nodes[number])
        node = objects.nodes[number]
        node.ClearField("variable")
        node.user_object.identifier = "_generic_user_object"
        node.user_object.version.producer = 1
        node.user_object.version.min_consumer = 1
        node.ClearField("slot_variables")
        parts[number] = []
        for part, shape in enumerate(table.shapes):
            parts[number].append(len(objects.nodes))
            objects.nodes[number].children.add(
                node_id=len(objects.nodes), local_name=f"part_{part}"
            )
            added = objects.nodes.add()
            added.variable.CopyFrom(whole.variable)
            added.variable.name = table.part(whole.variable.name, part)
            fill_shape(added.variable.shape, shape)
    for function in objects.concrete_functions.values():
        bound = [n for number in function.bound_inputs for n in parts.get(number, [number])]
        function.bound_inputs[:] = bound


def _split_definitions(collections: Any, tables: Mapping[str, Table]) -> None:
    """Gives collections of variables of TensorFlow 1 the parts in place of the tables, as slices of
    the whole: a new ``Saver`` saves the whole."""
    from google.protobuf.message import DecodeError
    from tensorflow.core.framework import variable_pb2

    for collection in collections.values():
        held = collection.bytes_list.value
        new = []
        for value in held:
            try:
                definition = variable_pb2.VariableDef.FromString(value)
            except DecodeError:  # of another kind
                new.append(value)
                continue
            table = tables.get(op_of(definition.variable_name))
            new.extend([value] if table is None else _definitions(definition, table))
        if len(new) != len(held):
            held[:] = new


def _definitions(whole: Any, table: Table) -> Iterator[bytes]:
    for number, (first, shape) in enumerate(zip(table.starts, table.shapes, strict=False)):
        part = copied(whole)
        part.variable_name = f"{table.part(op_of(whole.variable_name), number)}:0"
        part.initializer_name = table.part(whole.initializer_name, number)
        part.initial_value_name = f"{whole.initializer_name}/rows:{number}"
        if whole.snapshot_name:
            part.snapshot_name = f"{table.part(op_of(whole.snapshot_name), number)}:0"
        part.save_slice_info_def.full_name = table.name
        part.save_slice_info_def.full_shape[:] = table.shape
        part.save_slice_info_def.var_offset[:] = [first] + [0] * (len(shape) - 1)
        part.save_slice_info_def.var_shape[:] = shape
        yield bytes(part.SerializeToString())
