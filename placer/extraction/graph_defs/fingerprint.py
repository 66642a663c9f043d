"""A hash of a flat graph that does not change when the graph is placed."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from operator import itemgetter
from typing import Any

from placer.extraction.graph_defs.flat_nodes import NO_CONTENTS, ByContent, Contents
from placer.extraction.graph_defs.op_definitions import OpDefinitions, functions_of
from placer.extraction.graph_defs.program import FlatProgram
from placer.extraction.graph_defs.protobufs import FunctionDef, functions_by_name
from placer.graph.op_types import TABLES
from placer.graph.tensor_names import CONTROL

IGNORED_ATTRIBUTES = frozenset(
    {"_class", "_output_shapes", "_gradient_op_type", "config_proto", "token"}
)
"""Numbers and settings of one process among them: ``config_proto`` of a call counts its devices,
``token`` of a Python function those before it."""


def fingerprint_graph(
    graph_def: Any,
    definitions: OpDefinitions,
    contents: Contents = NO_CONTENTS,
) -> str:
    """The hash of a flat GraphDef as hexadecimal text (BLAKE2b, 128 bits).

    Nodes count with name, op type, inputs and attributes, in the order of their names.  Devices,
    :data:`IGNORED_ATTRIBUTES`, attributes at their default, names of tables, arguments that are
    called by a number of one process, and the names of functions (their bodies count instead) are
    left out, so a placed, cloned or newly traced program has the same fingerprint.  Nodes with
    equal ``contents`` (by name) have equal attributes, which are then read once.
    """
    library = functions_by_name(graph_def)
    hasher = _Hasher(library, definitions, contents)
    return str(hasher.nodes(graph_def.node).hexdigest())


def fingerprint_of(program: FlatProgram) -> str:
    """The hash of the program's graph."""
    return fingerprint_graph(program.graph_def, program.definitions, program.contents)


def with_fingerprint(program: FlatProgram) -> FlatProgram:
    """``program`` with the hash of its graph."""
    return replace(program, fingerprint=fingerprint_of(program))


class _Hasher:
    def __init__(
        self,
        library: Mapping[str, FunctionDef],
        definitions: OpDefinitions,
        contents: Contents,
    ) -> None:
        self.library = library
        self.definitions = definitions
        self.contents = contents
        self.known: dict[str, bytes] = {}
        self.defaults: dict[str, dict[str, bytes]] = {}
        self.alike = ByContent(self.op_and_attributes)

    def nodes(self, nodes: Any, arguments: Mapping[str, str] | None = None) -> Any:
        """The digest of nodes; ``arguments`` are numbers that stand for a body's argument names,
        in which TensorFlow writes numbers of one process."""
        known = arguments or {}
        contents = self.contents if arguments is None else NO_CONTENTS
        digest = hashlib.blake2b(digest_size=16)
        for name, node in sorted(contents.named(nodes), key=itemgetter(0)):
            op, attributes = self.alike.of(node, contents.get(name))
            inputs = contents.inputs_of(name, node)
            data = [known.get(text) or _tensor(text) for text in inputs if text[:1] != CONTROL]
            control = sorted([text for text in inputs if text[:1] == CONTROL])
            digest.update(_framed(name, op, *data, *control))
            digest.update(attributes)
        return digest

    def op_and_attributes(self, node: Any) -> tuple[str, bytes]:
        """The type and the attributes that count; for a call the digest of what it calls."""
        op = node.op
        return self.function(op).hex() if op in self.library else op, self.attributes(node)

    def attributes(self, node: Any) -> bytes:
        """The attributes that count, in the order of their names: name, content, name, ..."""
        found: list[str | bytes] = []
        attributes, defaults = node.attr, self.default(node.op)
        for key in sorted(attributes):
            value = attributes[key]
            if key in IGNORED_ATTRIBUTES or _is_of_process(node.op, key, value):
                continue
            functions = functions_of(value)
            if functions:
                found += (key, *[self.function(function.name) for function in functions])
                continue
            content = value.SerializeToString(deterministic=True)
            if defaults.get(key) != content:
                found += (key, content)
        return _framed(*found)

    def default(self, op_type: str) -> dict[str, bytes]:
        if op_type not in self.defaults:
            defaults = self.definitions.defaults(op_type)
            self.defaults[op_type] = {
                key: value.SerializeToString(deterministic=True) for key, value in defaults.items()
            }
        return self.defaults[op_type]

    def function(self, name: str) -> bytes:
        """The digest of a function's body; its name, where it has none or calls itself."""
        if name not in self.known:
            self.known[name] = name.encode()
            if name in self.library:
                function = self.library[name]
                names = {a.name: f"<{n}>" for n, a in enumerate(function.signature.input_arg)}
                digest = self.nodes(function.node_def, names)
                types = [str(a.type) for a in function.signature.input_arg]
                returns = [function.ret[a.name] for a in function.signature.output_arg]
                returns = [names.get(name, name) for name in returns]
                digest.update(_framed(*types, *returns, *sorted(function.control_ret.values())))
                self.known[name] = digest.digest()
        return self.known[name]


def _is_of_process(op_type: str, key: str, value: Any) -> bool:
    """Whether an attribute names what only this process calls so: a capture by its number, or a
    table by a number or where its file lies."""
    if key == "shared_name":
        return op_type in TABLES
    return key == "_user_specified_name" and bool(value.s.isdigit())


def _tensor(reference: str) -> str:
    if ":" not in reference:  # as most
        return reference
    return reference.removesuffix(":0") if reference.count(":") == 1 else reference


def _framed(*parts: str | bytes) -> bytes:
    """The parts with their lengths."""
    contents = [part.encode() if isinstance(part, str) else part for part in parts]
    return b"".join([len(content).to_bytes(8, "little") + content for content in contents])
