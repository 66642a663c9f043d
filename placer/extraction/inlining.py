"""Function calls replaced by the ops of their bodies, so that every op can be placed.

A body op becomes ``callnode/bodynode``; the call itself becomes a NoOp that carries its control
inputs to the body.  This mirrors ``InlineFunctionBody`` in TensorFlow's
``core/common_runtime/inline_function_utils.cc``: ops of a body without inputs of their own wait
for the control inputs of the call, and whoever waits for a call waits for the body's control
outputs.  Functional control flow (``While``, ``If``, ``Case``), dataset functions and symbolic
gradients stay one op.  Only what the outputs and the side effects reach is emitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from placer.errors import ModelError
from placer.extraction.op_definitions import (
    OpDefinitions,
    argument_length,
    attribute,
    called_functions,
)
from placer.extraction.ordering import sort_topologically

CALL_TYPES = frozenset({"PartitionedCall", "StatefulPartitionedCall"})

INPUT_ANCHOR = "_placer_input"
"""Marks the identities that a placement adds before control flow (see
``placer.application.control_flow_placement``); they are looked through."""

READ_TYPES = frozenset(
    {
        "ReadVariableOp",
        "ResourceGather",
        "ResourceGatherNd",
        "VarHandleOp",
        "VarIsInitializedOp",
        "VariableShape",
        "LookupTableFind",
        "LookupTableFindV2",
        "LookupTableSizeV2",
        "Placeholder",
    }
)
"""Stateful op types whose execution nobody can observe: reading alone is no side effect."""


@dataclass(frozen=True, kw_only=True)
class InlinedGraph:
    """A GraphDef without calls; see :class:`placer.extraction.program.FlatProgram`.

    ``outputs`` are the flat tensors of the requested outputs, in order.  ``stored_shapes`` keeps
    the ``_output_shapes`` attributes (lists of TensorShapeProto) that the flat nodes had.
    """

    graph_def: Any
    origins: Mapping[str, tuple[str, str]]
    call_path: Mapping[str, tuple[tuple[str, str], ...]]
    outputs: tuple[str, ...]
    targets: tuple[str, ...]
    stored_shapes: Mapping[str, Any]
    compiled_calls: tuple[str, ...]


class _Scope:
    """One instance of a function body, or the main graph."""

    def __init__(
        self,
        *,
        nodes: Iterable[Any],
        function: str = "",
        parent: _Scope | None = None,
        call: Any = None,
        definition: Any = None,
    ) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.positions = {name: index for index, name in enumerate(self.nodes)}
        self.function = function
        self.parent = parent
        self.call = call
        self.definition = definition
        self.prefix = ""
        self.path: tuple[tuple[str, str], ...] = ()
        self.order: tuple[int, ...] = ()
        self.device = ""
        self.call_inputs: list[str] = []
        self.arguments: dict[str, int] = {}
        self.returns: list[str] = []
        self.anchored: bool | None = None
        self.children: dict[str, _Scope] = {}
        if parent is not None:
            self._descend(parent, call, definition)

    def _descend(self, parent: _Scope, call: Any, definition: Any) -> None:
        self.prefix = f"{parent.prefix}{call.name}/"
        self.path = (*parent.path, (parent.function, call.name))
        self.order = (*parent.order, parent.positions[call.name])
        self.device = call.device or parent.device
        self.call_inputs = [name for name in call.input if not name.startswith("^")]
        position = 0
        for argument in definition.signature.input_arg:
            self.arguments[argument.name] = position
            position += argument_length(argument, call.attr)
        for argument in definition.signature.output_arg:
            reference = definition.ret[argument.name]
            length = argument_length(argument, call.attr)
            if length == 1 and not (argument.number_attr or argument.type_list_attr):
                self.returns.append(reference)
            else:
                self.returns.extend(f"{reference}:{index}" for index in range(length))


class _Inliner:
    """Follows the graph from its outputs through calls, and emits what it meets."""

    def __init__(self, graph_def: Any, definitions: OpDefinitions) -> None:
        self.library = {f.signature.name: f for f in graph_def.library.function}
        self.definitions = definitions
        self.root = _Scope(nodes=graph_def.node)
        self.pending: list[tuple[_Scope, str]] = []
        self.needed: dict[tuple[int, str], tuple[_Scope, str]] = {}
        self.touched: set[int] = set()
        self.effects: dict[tuple[int, str], tuple[_Scope, str]] = {}
        self.compiled: list[str] = []

    # -- finding out what a reference means ------------------------------------------------

    def child(self, scope: _Scope, node: Any) -> _Scope | None:
        """The scope of the function that ``node`` calls, or ``None`` if it is a plain op."""
        if node.op in CALL_TYPES:
            name = attribute(node.attr, "f").func.name
        elif node.op in self.library:
            name = node.op
        else:
            return None
        known = scope.children.get(node.name)
        if known is not None:
            return known
        if name not in self.library:
            raise ModelError(
                f"op {scope.prefix}{node.name} calls function {name!r}, which is not in the file"
            )
        ancestor: _Scope | None = scope
        while ancestor is not None:
            if ancestor.function == name:
                raise ModelError(f"function {name!r} calls itself (at {scope.prefix}{node.name})")
            ancestor = ancestor.parent
        definition = self.library[name]
        new = _Scope(
            nodes=definition.node_def,
            function=name,
            parent=scope,
            call=node,
            definition=definition,
        )
        scope.children[node.name] = new
        return new

    def node(self, scope: _Scope, name: str, reader: str) -> Any:
        try:
            return scope.nodes[name]
        except KeyError:
            where = f"function {scope.function!r}" if scope.function else "the graph"
            raise ModelError(f"{reader} needs {name!r}, which is not in {where}") from None

    def locate(self, scope: _Scope, reference: str) -> tuple[Any | None, int]:
        """The node and output number of a reference; no node: the number of an argument."""
        name, *rest = reference.split(":")
        if name in scope.arguments:
            return None, scope.arguments[name] + (int(rest[-1]) if rest else 0)
        node = self.node(scope, name, reader=f"reference {reference!r}")
        if scope.parent is None or len(rest) < 2:
            number = rest[0] if rest else "0"
            if number.isdigit():
                return node, int(number)
            return node, self.definitions.output_offset(node, number)
        return node, self.definitions.output_offset(node, rest[0]) + int(rest[1])

    def resolve(self, scope: _Scope, reference: str) -> tuple[_Scope, str, int]:
        """The plain op that computes a data reference, as (scope, node, output number)."""
        while True:
            node, index = self.locate(scope, reference)
            if node is None:
                if scope.parent is None or index >= len(scope.call_inputs):
                    raise ModelError(f"call {scope.prefix[:-1]} lacks argument {index}")
                reference = scope.call_inputs[index]
                scope = scope.parent
                continue
            child = self.child(scope, node)
            if child is None and INPUT_ANCHOR in node.attr:
                reference = node.input[0]
                continue
            if child is None:
                return scope, node.name, index
            self.touch(child)
            if index >= len(child.returns):
                raise ModelError(f"function {child.function!r} has no output {index}")
            scope, reference = child, child.returns[index]

    def touch(self, scope: _Scope) -> None:
        """Notes that a call runs: its side effects are needed."""
        if id(scope) in self.touched:
            return
        self.touched.add(id(scope))
        asks_for_xla = (scope.definition.attr, scope.call.attr)
        if any(attribute(attributes, "_XlaMustCompile").b for attributes in asks_for_xla):
            self.compiled.append(scope.prefix[:-1])
        for name in self.side_effects(scope):
            for owner, op in self.control_sources(scope, name):
                self.pending.append((owner, op))
                if self.is_effect(owner, op):
                    self.effects[id(owner), op] = owner, op

    def is_effect(self, scope: _Scope, name: str) -> bool:
        node = scope.nodes[name]
        return node.op not in READ_TYPES and self.child(scope, node) is None

    def side_effects(self, scope: _Scope) -> list[str]:
        """The body ops that must run: the control outputs, else all ops that change state."""
        if scope.definition.control_ret:
            return list(scope.definition.control_ret.values())
        return [
            node.name
            for node in scope.nodes.values()
            if node.op not in READ_TYPES and self.changes_state(node)
        ]

    def changes_state(self, node: Any) -> bool:
        definition = self.definitions.find(node.op)
        if node.op in CALL_TYPES or node.op in self.library:
            return True
        if definition is None or not definition.is_stateful or not node.input:
            return False
        return not node.op.startswith(("Random", "Stateful", "CudnnRNN"))

    def control_sources(self, scope: _Scope, name: str) -> list[tuple[_Scope, str]]:
        """The plain ops, and anchors of calls, that a control edge from ``name`` waits for."""
        found: dict[tuple[int, str], tuple[_Scope, str]] = {}
        stack = [(scope, name)]
        while stack:
            owner, op = stack.pop()
            if op in owner.arguments:
                assert owner.parent is not None
                reference = owner.call_inputs[owner.arguments[op]]
                source, op, _ = self.resolve(owner.parent, reference)
                found[id(source), op] = source, op
                continue
            child = self.child(owner, self.node(owner, op, reader="a control edge"))
            if child is None:
                found[id(owner), op] = owner, op
                continue
            self.touch(child)
            if self.has_anchor(child):
                found[id(owner), op] = owner, op
            stack.extend((child, effect) for effect in self.waited_for(child))
        return list(found.values())

    def waited_for(self, scope: _Scope) -> list[str]:
        """Body ops that an op waiting for the call waits for."""
        names = list(scope.definition.control_ret.values())
        if names or scope.call.op in CALL_TYPES:
            return names
        references = [reference.split(":")[0] for reference in scope.returns]
        return list(dict.fromkeys([*references, *self.side_effects(scope)]))

    def has_anchor(self, scope: _Scope) -> bool:
        """Whether the call has something to wait for that its body must wait for too."""
        if scope.anchored is None:
            assert scope.parent is not None
            scope.anchored = any(name.startswith("^") for name in scope.call.input) or (
                scope.parent.parent is not None
                and self.begins(scope.parent, scope.call)
                and self.has_anchor(scope.parent)
            )
        return scope.anchored

    def begins(self, scope: _Scope, node: Any) -> bool:
        """Whether nothing inside the same body comes before ``node``."""
        return all(name.lstrip("^").split(":")[0] in scope.arguments for name in node.input)

    # -- emitting --------------------------------------------------------------------------

    def run(self, outputs: Sequence[str], targets: Sequence[str]) -> InlinedGraph:
        ends = [self.resolve(self.root, name) for name in outputs]
        runs = [source for name in targets for source in self.control_sources(self.root, name)]
        self.pending.extend((scope, name) for scope, name, _ in ends)
        self.pending.extend(runs)
        inputs = self.collect()
        order = sorted(
            self.needed.values(), key=lambda pair: (*pair[0].order, pair[0].positions[pair[1]])
        )
        names = self.flat_names(order)
        graph_def = self.emit(order, names, inputs)
        effects = {names[id(s), name]: None for s, name in runs if self.is_effect(s, name)}
        effects.update({names[key]: None for key in self.effects})
        return InlinedGraph(
            graph_def=graph_def,
            origins={names[id(s), name]: (s.function, name) for s, name in order},
            call_path={names[id(s), name]: s.path for s, name in order},
            outputs=tuple(f"{names[id(s), name]}:{index}" for s, name, index in ends),
            targets=tuple(effects),
            stored_shapes={
                names[id(s), name]: s.nodes[name].attr["_output_shapes"].list.shape
                for s, name in order
                if "_output_shapes" in s.nodes[name].attr
            },
            compiled_calls=tuple(self.compiled),
        )

    def collect(self) -> dict[tuple[int, str], list[tuple[_Scope, str, int]]]:
        """Visits everything that is needed; the resolved inputs, index -1 for control edges."""
        inputs: dict[tuple[int, str], list[tuple[_Scope, str, int]]] = {}
        while self.pending:
            scope, name = self.pending.pop()
            key = id(scope), name
            if key in self.needed:
                continue
            self.needed[key] = scope, name
            inputs[key] = sources = list(self.sources(scope, scope.nodes[name]))
            self.pending.extend((owner, op) for owner, op, _ in sources)
        return inputs

    def sources(self, scope: _Scope, node: Any) -> Iterator[tuple[_Scope, str, int]]:
        """The resolved inputs of a plain op, or of the anchor of a call."""
        is_call = self.child(scope, node) is not None
        for name in node.input:
            if name.startswith("^"):
                yield from ((*pair, -1) for pair in self.control_sources(scope, name[1:]))
            elif not is_call:
                yield self.resolve(scope, name)
        if scope.parent is not None and self.has_anchor(scope) and self.begins(scope, node):
            yield scope.parent, scope.call.name, -1

    def flat_names(self, order: list[tuple[_Scope, str]]) -> dict[tuple[int, str], str]:
        names: dict[tuple[int, str], str] = {}
        taken: set[str] = set()
        for scope, name in order:
            flat = base = scope.prefix + name
            suffix = 0
            while flat in taken:
                suffix += 1
                flat = f"{base}_inlined_{suffix}"
            taken.add(flat)
            names[id(scope), name] = flat
        return names

    def emit(
        self,
        order: list[tuple[_Scope, str]],
        names: dict[tuple[int, str], str],
        inputs: dict[tuple[int, str], list[tuple[_Scope, str, int]]],
    ) -> Any:
        from tensorflow.core.framework import graph_pb2

        nodes = {}
        for scope, name in order:
            key = id(scope), name
            node = flat_node(scope.nodes[name], anchor=self.child(scope, scope.nodes[name]))
            node.name = names[key]
            node.device = node.device or scope.device
            data = [(names[id(s), n], i) for s, n, i in inputs[key] if i >= 0]
            control = dict.fromkeys(names[id(s), n] for s, n, i in inputs[key] if i < 0)
            node.input.extend(f"{n}:{i}" if i else n for n, i in data)
            node.input.extend(f"^{n}" for n in control if n != node.name)
            self.bind_placeholders(scope, node)
            self.rename_classes(scope, node, names)
            nodes[node.name] = node
        retarget_classes(nodes)
        graph_def = graph_pb2.GraphDef()
        graph_def.node.extend(nodes[name] for name in sort_topologically(nodes))
        graph_def.library.CopyFrom(needed_library(graph_def.node, self.library))
        return graph_def

    def bind_placeholders(self, scope: _Scope, node: Any) -> None:
        """Replaces attributes that stand for an attribute of the call by its value."""
        for key in [k for k, v in node.attr.items() if v.WhichOneof("value") == "placeholder"]:
            wanted = node.attr[key].placeholder
            values = scope.call.attr["f"].func.attr if "f" in scope.call.attr else scope.call.attr
            if wanted in values:
                node.attr[key].CopyFrom(values[wanted])

    def rename_classes(self, scope: _Scope, node: Any, names: dict[tuple[int, str], str]) -> None:
        if "_class" not in node.attr:
            return
        entries = node.attr["_class"].list.s
        renamed = []
        for entry in entries:
            target = entry.decode()
            if not target.startswith("loc:@"):
                continue
            name, owner = target[5:], scope
            while name in owner.arguments and owner.parent is not None:
                name = owner.call_inputs[owner.arguments[name]].split(":")[0]
                owner = owner.parent
            flat = names.get((id(owner), name), owner.prefix + name)
            renamed.append(b"loc:@" + flat.encode())
        node.attr["_class"].list.s[:] = renamed


def flat_node(source: Any, anchor: _Scope | None) -> Any:
    """A copy of a node without inputs and ``_output_shapes``; a NoOp for an anchor."""
    from tensorflow.core.framework import node_def_pb2

    if anchor is not None:
        return node_def_pb2.NodeDef(op="NoOp", device=source.device)
    node = node_def_pb2.NodeDef()
    node.CopyFrom(source)
    del node.input[:]
    if "_output_shapes" in node.attr:
        del node.attr["_output_shapes"]
    return node


def retarget_classes(nodes: Mapping[str, Any]) -> None:
    """Makes ``_class`` entries that name ops outside the flat graph name a surviving member."""
    replacement: dict[bytes, str] = {}
    for node in nodes.values():
        if "_class" not in node.attr:
            continue
        kept: list[bytes] = []
        for entry in node.attr["_class"].list.s:
            target = entry[5:].decode()
            if target not in nodes:
                target = replacement.setdefault(entry, node.name)
            if target != node.name:
                kept.append(b"loc:@" + target.encode())
        if kept:
            node.attr["_class"].list.s[:] = list(dict.fromkeys(kept))
        else:
            del node.attr["_class"]


def needed_library(nodes: Iterable[Any], library: Mapping[str, Any]) -> Any:
    """The functions that ``nodes`` still refer to, directly or through other functions."""
    from tensorflow.core.framework import function_pb2

    kept: dict[str, None] = {}
    pending = [name for node in nodes for name in referred_functions(node, library)]
    while pending:
        name = pending.pop()
        if name in kept:
            continue
        kept[name] = None
        for node in library[name].node_def:
            pending.extend(referred_functions(node, library))
    result = function_pb2.FunctionDefLibrary()
    result.function.extend(library[name] for name in sorted(kept))
    return result


def referred_functions(node: Any, library: Mapping[str, Any]) -> list[str]:
    """Names of library functions that a node calls or carries as an attribute."""
    names = [name for _, name in called_functions(node)]
    return [name for name in [node.op, *names] if name in library]


def inline_calls(
    graph_def: Any,
    *,
    outputs: Sequence[str],
    targets: Sequence[str] = (),
    definitions: OpDefinitions,
) -> InlinedGraph:
    """The flat graph that computes ``outputs`` (tensor names) and runs ``targets`` (op names).

    Raises :class:`ModelError` for a call of a missing or recursive function and for an input that
    is not in the graph.
    """
    inlined = _Inliner(graph_def, definitions).run(outputs, targets)
    inlined.graph_def.versions.CopyFrom(graph_def.versions)
    return inlined
