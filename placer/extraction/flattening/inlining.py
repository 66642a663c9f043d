"""Function calls replaced by the ops of their bodies, so that every op can be placed.

A body op becomes ``callnode/bodynode``; the call itself becomes a NoOp that carries its control
inputs to the body.  This mirrors ``InlineFunctionBody`` in TensorFlow's
``core/common_runtime/inline_function_utils.cc``: ops of a body without inputs of their own wait
for the control inputs of the call, and whoever waits for a call waits for the body's control
outputs.  Conditionals become ``Switch`` and ``Merge`` where TensorFlow makes these of them
(``graph_defs.conditionals``); other functional control flow (``While``, ``Case``),
dataset functions and symbolic gradients stay one op.  Only what the outputs and the side effects
reach is emitted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from placer.errors import ModelError
from placer.extraction.flattening.flat_graphs import FlatGraph, Source, flat_names
from placer.extraction.graph_defs.added_control import added_control
from placer.extraction.graph_defs.call_scopes import CallTree, Scope
from placer.extraction.graph_defs.conditionals import BRANCH, RESULTS
from placer.extraction.graph_defs.flat_nodes import Contents
from placer.extraction.graph_defs.op_definitions import OpDefinitions, attribute
from placer.extraction.graph_defs.protobufs import StoredShapes
from placer.graph.op_types import CALLS, READS
from placer.graph.tensor_names import CONTROL, op_of, source_of

INPUT_ANCHOR = "_placer_input"
"""Marks the identities that a placement adds before control flow (see
``placer.application.placing.control_flow_placement``); they are looked through."""

_NO_NAMES: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class InlinedGraph:
    """A GraphDef without calls; see :class:`placer.extraction.graph_defs.program.FlatProgram`.

    ``contents`` has op type, device and attributes of every node as bytes, ``None`` for large
    constants, and its inputs.  ``outputs`` are the flat tensors of the requested outputs, in
    order.  ``arguments`` are the placeholders of a function's body.  ``stored_shapes`` keeps the
    ``_output_shapes`` attributes (lists of TensorShapeProto) that the flat nodes had.
    """

    graph_def: Any
    contents: Contents
    origins: Mapping[str, tuple[str, str]]
    call_path: Mapping[str, tuple[tuple[str, str], ...]]
    outputs: tuple[str, ...]
    targets: tuple[str, ...]
    stored_shapes: StoredShapes
    compiled_calls: tuple[str, ...]
    arguments: tuple[str, ...] = ()


class _Inliner:
    """Follows a graph from its outputs through calls."""

    def __init__(self, tree: CallTree) -> None:
        self.tree, self.definitions = tree, tree.definitions
        self.plain = frozenset(
            name
            for name, node in self.tree.root.nodes.items()
            if node.op not in self.tree.callable
            and INPUT_ANCHOR not in node.attr
            and RESULTS not in node.attr
        )
        self.pending: list[tuple[Scope, str]] = []
        self.inputs: dict[tuple[Scope, str], list[Source]] = {}
        self.touched: set[Scope] = set()
        self.effects: dict[tuple[Scope, str], None] = {}
        self.compiled: list[str] = []

    def resolve(self, scope: Scope, reference: str) -> Source:
        """The plain op that computes a data reference."""
        while True:
            node, index = self.tree.locate(scope, reference)
            if node is None:
                if scope.parent is None or index >= len(scope.call_inputs):
                    raise ModelError(f"call {scope.prefix[:-1]!r} lacks argument {index}")
                scope, reference = scope.parent, scope.call_inputs[index]
                continue
            body = self.tree.called(scope, node)
            if body is None and INPUT_ANCHOR in node.attr:
                reference = node.input[0]
                continue
            if body is None and RESULTS in node.attr:
                reference = node.input[index]
                continue
            if body is None:
                return scope, node.name, index
            self.touch(body)
            if index >= len(body.returns):
                raise ModelError(f"function {body.function!r} has no output {index}")
            scope, reference = body, body.returns[index]

    def touch(self, scope: Scope) -> None:
        """Notes that a call runs: its side effects are needed, and where it is in a branch, what
        runs after either branch."""
        if scope in self.touched:
            return
        self.touched.add(scope)
        asks_for_xla = (scope.definition.attr, scope.call.attr)
        if any(attribute(attributes, "_XlaMustCompile").b for attributes in asks_for_xla):
            self.compiled.append(scope.prefix[:-1])
        for name in self.side_effects(scope):
            for found in self.control_sources(scope, name):
                self.pending.append(found)
                if self.is_effect(*found):
                    self.effects[scope.conditional or found] = None
                    self.pending.append(scope.conditional or found)

    def is_effect(self, scope: Scope, name: str) -> bool:
        node = scope.nodes[name]
        return node.op not in READS and self.tree.called(scope, node) is None

    def side_effects(self, scope: Scope) -> list[str]:
        """The body ops that must run: the control outputs, else all ops that change state."""
        if scope.definition.control_ret:
            return sorted(scope.definition.control_ret.values())
        return [node.name for node in scope.nodes.values() if self.changes_state(node)]

    def changes_state(self, node: Any) -> bool:
        if node.op in CALLS or node.op in self.tree.library:
            return True
        if RESULTS in node.attr:
            return bool(node.attr[RESULTS].b)
        definition = self.definitions.find(node.op)
        if definition is None or not definition.is_stateful or not node.input:
            return False
        # random ops need not run unless their output is read
        return node.op not in READS and not node.op.startswith(("Random", "Stateful", "CudnnRNN"))

    def control_sources(self, scope: Scope, name: str) -> list[tuple[Scope, str]]:
        """The plain ops, and anchors of calls, that a control edge from ``name`` waits for."""
        found: dict[tuple[Scope, str], None] = {}
        stack = [(scope, name)]
        while stack:
            owner, op = stack.pop()
            if op in owner.arguments and owner.parent is not None:
                reference = owner.call_inputs[owner.arguments[op]]
                source, op, _ = self.resolve(owner.parent, reference)
                found[source, op] = None
                continue
            node = self.tree.node(owner, op)
            body = self.tree.called(owner, node)
            if RESULTS in node.attr:
                stack.append((owner, source_of(node.input[-1])))
                continue
            if body is None:
                found[owner, op] = None
                continue
            self.touch(body)
            if body.has_anchor:
                found[owner, op] = None
            stack.extend((body, effect) for effect in self.waited_for(body))
        return list(found)

    def waited_for(self, scope: Scope) -> list[str]:
        """Body ops that an op waiting for the call waits for."""
        names = sorted(scope.definition.control_ret.values())
        if names or (scope.call.op in CALLS and BRANCH not in scope.call.attr):
            return names
        references = [op_of(reference) for reference in scope.returns]
        return list(dict.fromkeys([*references, *self.side_effects(scope)]))

    def sources(self, scope: Scope, node: Any) -> list[Source]:
        """The resolved inputs of a plain op, or of the anchor of a call."""
        is_call = self.tree.called(scope, node) is not None
        plain = self.plain if scope.parent is None else _NO_NAMES
        found: list[Source] = []
        added: list[str] | None = None
        for name in node.input:
            if name[:1] == CONTROL:
                added = added_control(node) if added is None else added
                if name[1:] in added:
                    continue
                if name[1:] in plain:
                    found.append((scope, name[1:], -1))
                    continue
                waited_for = self.control_sources(scope, name[1:])
                found.extend((owner, op, -1) for owner, op in waited_for)
            elif not is_call:  # most inputs are those of plain ops
                found.append((scope, name, 0) if name in plain else self.resolve(scope, name))
        if scope.parent is not None and scope.has_anchor and scope.begins(node):
            found.append((scope.parent, scope.call.name, -1))
        return found

    def collect(self) -> list[tuple[Scope, str]]:
        """Visits everything that is needed; the ops in the order of the file."""
        while self.pending:
            scope, name = key = self.pending.pop()
            if key not in self.inputs:
                self.inputs[key] = found = self.sources(scope, scope.nodes[name])
                self.pending += [(owner, op) for owner, op, _ in found]
        return sorted(self.inputs, key=lambda key: (*key[0].order, key[0].positions[key[1]]))

    def run(self, outputs: Sequence[str], targets: Sequence[str]) -> InlinedGraph:
        root = self.tree.root
        ends = [self.resolve(root, name) for name in outputs]
        runs = [found for name in targets for found in self.control_sources(root, name)]
        self.pending.extend((scope, name) for scope, name, _ in ends)
        self.pending.extend(runs)
        order = self.collect()
        names = flat_names(order)
        effects = dict.fromkeys([key for key in runs if self.is_effect(*key)]) | self.effects
        flat = FlatGraph(self.tree)
        asked = {names[key] for key in [*(end[:2] for end in ends), *runs, *effects]}
        flat.emit(names, self.inputs, asked)
        return InlinedGraph(
            graph_def=flat.graph_def,
            contents=flat.contents,
            origins={names[key]: (key[0].function, key[1]) for key in order},
            call_path={names[key]: key[0].path for key in order},
            outputs=tuple(f"{names[scope, name]}:{index}" for scope, name, index in ends),
            targets=tuple(names[key] for key in effects),
            stored_shapes=flat.stored_shapes,
            compiled_calls=tuple(self.compiled),
        )


def inline_calls(
    graph_def: Any,
    *,
    outputs: Sequence[str],
    targets: Sequence[str] = (),
    definitions: OpDefinitions,
    lowers: bool = True,
    lowers_main: bool = False,
) -> InlinedGraph:
    """The flat graph that computes ``outputs`` (tensor names) and runs ``targets`` (op names).

    Conditionals of called functions are lowered unless ``lowers`` is ``False``, those of the main
    graph (whose names others may know) if it ``lowers_main``.
    Raises :class:`ModelError` for a call of a missing or recursive function and for an input that
    is not in the graph.
    """
    tree = CallTree(graph_def, definitions, lowers=lowers, lowers_main=lowers_main)
    return _Inliner(tree).run(outputs, targets)
