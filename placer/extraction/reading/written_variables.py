"""Which variables of a SavedModel stay what the restore op makes them.

A copy of such a variable on another device is as good as the variable.  One that any saved function
may write, called by whoever loads the model, is not: its copies would keep their old values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from placer.extraction.graph_defs.op_definitions import called_function, called_functions
from placer.extraction.graph_defs.protobufs import functions_by_name
from placer.extraction.reading.checkpoint_index import CheckpointIndex
from placer.extraction.reading.loaded_variables import (
    checkpoint_keys,
    leading_to,
    objects_in_use,
    restored_handles,
)
from placer.graph.op_types import BRANCHES, CALLS, CONTROL_FLOW, LOOPS, READS
from placer.graph.tensor_names import data_inputs, op_of, source_of

_KEEPS = READS | {"SaveV2", "DisableCopyOnRead", "NoOp"}
"""Op types that take a handle and leave the variable as it is."""


def find_unwritten(signature: str, meta_graph: Any, index: CheckpointIndex) -> set[str]:
    """The handles of the main graph whose variables are objects that only the restore op writes.

    Copies become arguments of the function that ``signature`` calls, which nothing else may call.
    """
    if not meta_graph.object_graph_def.nodes:
        return _restored_alone(meta_graph, index)
    objects = objects_in_use(meta_graph)
    library = functions_by_name(meta_graph.graph_def)
    nodes = meta_graph.graph_def.node
    outputs = meta_graph.signature_def[signature].outputs.values() if signature else ()
    callers = {source_of(info.name) for info in outputs}
    calls = [called_function(node) for node in nodes if node.name in callers]
    inner = (
        name.name for f in library.values() for n in f.node_def for _, name in called_functions(n)
    )
    if len(calls) != 1 or calls[0] not in meta_graph.object_graph_def.concrete_functions:
        return set()
    if calls[0] in {*inner} or [called_function(node) for node in nodes].count(calls[0]) > 1:
        return set()
    # what functions and the main graph may write
    written = _Written(library)
    saved = meta_graph.object_graph_def.concrete_functions
    found = set[int]()
    for name in saved.keys() & library.keys():
        bound = saved[name].bound_inputs
        first = len(library[name].signature.input_arg) - len(bound)
        found.update(n for at, n in enumerate(bound, first) if at in written.by(name))
    main = {node.name: node for node in nodes}
    restoring = set(leading_to(source_of(meta_graph.saver_def.restore_op_name), main))
    taken = written.in_graph(nodes, restoring)
    # what the checkpoint has as a value of its own
    keys = checkpoint_keys(index) if index.entries else {}
    entries = {number: index.entries.get(key) for number, key in (keys or {}).items()}
    return {
        handle
        for number, handle in objects.items()
        if meta_graph.object_graph_def.nodes[number].WhichOneof("kind") == "variable"
        and number not in found
        and handle not in taken
        and (not index.entries or ((e := entries.get(number)) is not None and not e.sliced))
    }


def _restored_alone(meta_graph: Any, index: CheckpointIndex) -> set[str]:
    """The same of a model of TensorFlow 1, where variables have initializers beside."""
    nodes = {node.name: node for node in meta_graph.graph_def.node}
    written = _Written(functions_by_name(meta_graph.graph_def))
    passed = set(_initializers(meta_graph.collection_def))
    passed.update(leading_to(source_of(meta_graph.saver_def.restore_op_name), nodes))
    taken = written.in_graph(nodes.values(), passed)
    entries = ((handle, index.entries.get(key)) for handle, key in restored_handles(meta_graph))
    return {
        handle
        for handle, entry in entries
        if nodes[handle].op == "VarHandleOp"
        and handle not in taken
        and entry is not None
        and not entry.sliced
    }


def _initializers(collections: Any) -> Iterator[str]:
    """The ops that give variables of TensorFlow 1 their first values."""
    from google.protobuf.message import DecodeError
    from tensorflow.core.framework.variable_pb2 import VariableDef

    # where TensorFlow 1 has the definitions of variables
    for key in ("variables", "trainable_variables", "local_variables", "model_variables"):
        values = collections[key].bytes_list.value if key in collections else ()
        for value in values:
            with suppress(DecodeError):  # of another kind
                yield op_of(VariableDef.FromString(value).initializer_name)


class _Written:
    """Which arguments of functions may be written, by the numbers of the arguments."""

    def __init__(self, library: Mapping[str, Any]) -> None:
        self.library = library
        self._known: dict[str, tuple[set[int], set[int]]] = {}

    def by(self, name: str, *, loop: bool = False) -> set[int]:
        """The arguments that function ``name`` may write, or returns to whoever may; of a ``loop``
        without those that its body only passes on."""
        if name not in self._known:
            self._known[name] = set(), set()  # a function that calls itself
            self._known[name] = self._found(self.library[name])
        written, passed = self._known[name]
        return written if loop else written | passed

    def _found(self, function: Any) -> tuple[set[int], set[int]]:
        """The arguments that are written, and those that are returned in their own places."""
        numbers = {arg.name: n for n, arg in enumerate(function.signature.input_arg)}
        before = 0
        while before < len(numbers):  # a loop passes handles on
            before = len(numbers)
            for node in function.node_def:
                for at, text in enumerate(data_inputs(node.input)):
                    if node.op in LOOPS and text in numbers:
                        numbers[f"{node.name}:output:{at}"] = numbers[text]
        written = {
            numbers[text]
            for node in function.node_def
            for at, text in enumerate(data_inputs(node.input))
            if text in numbers and self.takes(node, at)
        }
        ends = [function.ret.get(item.name, "") for item in function.signature.output_arg]
        returned = {(at, numbers[text]) for at, text in enumerate(ends) if text in numbers}
        elsewhere = {number for at, number in returned if at != number}
        return written | elsewhere, {number for at, number in returned if at == number}

    def in_graph(self, nodes: Iterable[Any], but: Collection[str]) -> set[str]:
        """The handles that ``nodes`` may write, those named in ``but`` aside."""
        return {
            op_of(text)
            for node in nodes
            if node.name not in but
            for at, text in enumerate(data_inputs(node.input))
            if self.takes(node, at)
        }

    def takes(self, node: Any, at: int) -> bool:
        """Whether ``node`` may write a variable whose handle is its input number ``at``."""
        name = called_function(node)
        if node.op in CONTROL_FLOW:
            at -= node.op in BRANCHES
            names = [each.name for _, each in called_functions(node)]
        elif node.op in CALLS or name in self.library:
            names = [name]
        else:
            return node.op not in _KEEPS
        return any(n not in self.library or at in self.by(n, loop=node.op in LOOPS) for n in names)
