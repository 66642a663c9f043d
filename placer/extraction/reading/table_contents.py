"""How much lookup tables and string constants of a SavedModel take on the host.

The keys of a table are in constants, in a file of the model's own ``assets`` folder, or, of mutable
tables, in the checkpoint.  Files are counted line by line, never kept.  TensorFlow's static tables
are ``absl::flat_hash_map``s, mutable ones ``std::unordered_map``s (``lookup_table_op.h``).
"""

from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

from cost_models.tensor_size import element_bytes
from placer.extraction.graph_defs.op_definitions import attribute, called_function
from placer.extraction.graph_defs.program import FlatProgram
from placer.extraction.graph_defs.protobufs import dtype_name, functions_by_name
from placer.extraction.graph_defs.state import resource_key
from placer.extraction.reading.checkpoint_index import STRING_BYTES, CheckpointIndex
from placer.graph.op_types import TABLE_INITIALISERS, TABLES
from placer.graph.tensor_names import data_inputs, op_of

_BLOCK_BYTES = 16
"""Bytes that the allocator of the C library rounds to, and keeps beside a block."""


def text_bytes(length: float) -> int:
    """Returns the bytes that a string of this length takes beside its slot.

    >>> text_bytes(22), text_bytes(40)
    (0, 64)
    """
    if length <= 22:  # a longer ``tstring`` has a block of its own
        return 0
    blocks = -(-int(length + 1) // _BLOCK_BYTES)
    return (blocks + 1) * _BLOCK_BYTES


def strings_bytes(count: int, total_length: int) -> int:
    """Returns the bytes of ``count`` strings of about equal length.

    >>> strings_bytes(2, 80)
    176
    """
    return count * (STRING_BYTES + text_bytes(total_length / count)) if count else 0


def table_bytes(count: int, slot_bytes: int, text_length: int, *, is_mutable: bool = False) -> int:
    """Returns the bytes of a table of ``count`` entries, whose keys and values take ``slot_bytes``
    each, and texts ``text_length`` bytes in all.

    >>> table_bytes(1000, 32, 0)  # 2,047 slots, each with a byte of its own
    67551
    """
    texts = count * text_bytes(text_length / count) if count else 0
    if is_mutable:  # a node with its hash and the next one, and a bucket
        return count * (slot_bytes + 2 * _BLOCK_BYTES + 8) + texts
    capacity = 1
    while capacity * 7 // 8 < count:
        capacity = 2 * capacity + 1
    return capacity * (slot_bytes + 1) + texts


_KEYS = "/.ATTRIBUTES/table-keys"


def find_tables(
    program: FlatProgram, meta_graph: Any, path: Path, index: CheckpointIndex
) -> tuple[dict[str, int], int, bool]:
    """(bytes by op of the flat graph, bytes of tables that it does not use, whether these are the
    least, since what some table holds is not known)."""
    held = dict(_string_constants(program))
    used = {resource_key(node): node.name for node in program.graph_def.node if node.op in TABLES}
    static = {
        resource_key(node) for node in program.graph_def.node if node.op.startswith("HashTable")
    }
    idle, known = _mutable_bytes(index), set()
    for node, size in _initialised(meta_graph, path):
        key = resource_key(node)
        if size is None or key in known:
            continue
        known.add(key)
        if key in used:
            held[used[key]] = size
        else:
            idle += size
    return held, idle, bool(static - known)


def _string_constants(program: FlatProgram) -> Iterator[tuple[str, int]]:
    for node in program.graph_def.node:
        if node.op == "Const" and dtype_name(attribute(node.attr, "dtype").type) == "string":
            count, length = _texts(attribute(node.attr, "value").tensor)
            yield node.name, strings_bytes(count, length)


def _texts(tensor: Any) -> tuple[int, int]:
    """How many strings a TensorProto has, and how long they are together."""
    count = prod(dim.size for dim in tensor.tensor_shape.dim)
    length = sum(map(len, tensor.string_val))
    if len(tensor.string_val) == 1:
        length *= count
    return count, length


def _mutable_bytes(index: CheckpointIndex) -> int:
    """Returns the bytes of the mutable tables that the checkpoint restores."""
    found = 0
    for key, entry in index.entries.items():
        values = index.entries.get(key.removesuffix(_KEYS) + "/.ATTRIBUTES/table-values")
        if key.endswith(_KEYS) and values is not None:
            count = prod(entry.shape)
            slots = sum(_slot_bytes(t.dtype) for t in (entry, values))
            length = sum(t.size for t in (entry, values) if t.dtype == "string")
            found += table_bytes(count, slots, length, is_mutable=True)
    return found


def _slot_bytes(dtype: str) -> int:
    return element_bytes(dtype) or STRING_BYTES


def _initialised(meta_graph: Any, path: Path) -> Iterator[tuple[Any, int | None]]:
    """The tables of the main graph that something there fills, with what they take then."""
    nodes = {node.name: node for node in meta_graph.graph_def.node}
    files = {op_of(item.tensor_info.name): item.filename for item in meta_graph.asset_file_def}
    library = functions_by_name(meta_graph.graph_def)
    for node in meta_graph.graph_def.node:
        if node.op in TABLE_INITIALISERS:
            given = {text: text for text in data_inputs(node.input)}
            yield from _filled(node, given, nodes, nodes, files, path)
        elif called_function(node) in library:
            function = library[called_function(node)]
            names = [argument.name for argument in function.signature.input_arg]
            given = dict(zip(names, data_inputs(node.input), strict=False))
            body = {inner.name: inner for inner in function.node_def}
            for inner in function.node_def:
                if inner.op in TABLE_INITIALISERS:
                    yield from _filled(inner, given, body, nodes, files, path)


def _filled(
    node: Any,
    given: Mapping[str, str],
    body: Mapping[str, Any],
    nodes: Mapping[str, Any],
    files: Mapping[str, str],
    path: Path,
) -> Iterator[tuple[Any, int | None]]:
    """The table that ``node`` of ``body`` fills, of ``nodes`` of the main graph."""
    read = [op_of(given.get(op_of(text), text)) for text in data_inputs(node.input)]
    table = nodes.get(read[0])
    if table is None or table.op not in TABLES:
        return
    keys, values = (dtype_name(attribute(table.attr, k).type) for k in ("key_dtype", "value_dtype"))
    slots = _slot_bytes(keys) + _slot_bytes(values)
    if node.op.startswith("InitializeTableFromTextFile"):
        lines = _lines(path, _file_name(read[1], nodes, files))
        yield table, lines and table_bytes(lines[0], slots, lines[1])
        return
    constants = [body.get(name) or nodes.get(name) for name in read[1:3]]
    if len(constants) < 2 or any(item is None or item.op != "Const" for item in constants):
        yield table, None
        return
    tensors = [attribute(item.attr, "value").tensor for item in constants if item is not None]
    count = prod(dim.size for dim in tensors[0].tensor_shape.dim)
    yield table, table_bytes(count, slots, sum(_texts(t)[1] for t in tensors))


def _file_name(name: str, nodes: Mapping[str, Any], files: Mapping[str, str]) -> str:
    """The asset behind a tensor of the main graph, which may come out of a variable."""
    assigned = {
        op_of(node.input[0]): op_of(node.input[1])
        for node in nodes.values()
        if node.op == "AssignVariableOp"
    }
    for _ in range(len(nodes)):
        node = nodes.get(name)
        if name in files or node is None:
            break
        read = data_inputs(node.input)
        name = op_of(read[0]) if read else assigned.get(name, "")
    return files.get(name, "")


def _lines(path: Path, name: str) -> tuple[int, int] | None:
    """(lines, bytes of text) of a file in the ``assets`` of the model, ``None`` for any other."""
    file = path / "assets" / name
    if not name or not file.is_file() or not file.resolve().is_relative_to(path.resolve()):
        return None
    count = size = 0
    with file.open("rb") as content:
        while chunk := content.read(1 << 20):
            count, size = count + chunk.count(b"\n"), size + len(chunk)
    return count, size - count
