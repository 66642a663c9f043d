"""The default outputs of a bare graph: its sinks, initialisers and savers left out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from placer.extraction.node_order import order_nodes
from placer.extraction.op_definitions import OpDefinitions, argument_length
from placer.extraction.v1_control_flow import NOWHERE, find_contexts

ASSIGN_TYPES = frozenset({"Assign", "AssignVariableOp"})
SAVER_TYPES = frozenset(
    {"SaveV2", "Save", "SaveSlices", "RestoreV2", "Restore", "RestoreSlice", "MergeV2Checkpoints"}
)
STATE_TYPES = frozenset({"VarHandleOp", "VariableV2", "Variable", "AutoReloadVariable"})
TABLE_INITIALISERS = frozenset(
    {"InitializeTable", "InitializeTableV2", "InitializeTableFromTextFile"}
    | {"InitializeTableFromTextFileV2", "LookupTableImport", "LookupTableImportV2"}
    | {"InitializeTableFromDatasetV2"}
)
STATUS_TYPES = frozenset({"IsVariableInitialized", "VarIsInitializedOp", "ReadVariableOp"})
FED_TYPES = frozenset({"Placeholder", "PlaceholderV2", "PlaceholderWithDefault"})


class _Graph:
    def __init__(self, nodes: Iterable[Any]) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.inputs = {
            name: [reference.lstrip("^").split(":")[0] for reference in node.input]
            for name, node in self.nodes.items()
        }

    def sinks(self) -> list[str]:
        read = {source for sources in self.inputs.values() for source in sources}
        return [name for name in self.nodes if name not in read]

    def cone(self, name: str) -> set[str]:
        """Everything that an op depends on, itself left out."""
        seen: set[str] = set()
        stack = list(self.inputs[name])
        while stack:
            source = stack.pop()
            if source not in seen and source in self.nodes:
                seen.add(source)
                stack.extend(self.inputs[source])
        return seen

    def types(self, names: Iterable[str]) -> set[str]:
        return {self.nodes[name].op for name in names}

    def is_initialiser(self, name: str) -> bool:
        """Whether an op only sets or inspects state, from values that nothing is fed into."""
        op = self.nodes[name].op
        if op in TABLE_INITIALISERS or op in STATUS_TYPES:
            return True
        if op in ASSIGN_TYPES:
            return self._sets_initial_value(name)
        if op == "NoOp" and self.inputs[name]:
            return all(self.is_initialiser(source) for source in self.inputs[name])
        return False

    def _sets_initial_value(self, name: str) -> bool:
        _, value, *_ = [*self.inputs[name], ""]
        if value not in self.nodes:
            return False
        types = self.types(self.cone(value)) | {self.nodes[value].op}
        if types & SAVER_TYPES:
            return True
        return not types & (FED_TYPES | STATE_TYPES | {"ReadVariableOp", "IteratorGetNext"})

    def is_plumbing(self, name: str) -> bool:
        """Whether a sink belongs to a saver or an initialiser, or is state that nobody reads."""
        op = self.nodes[name].op
        if op in STATE_TYPES or op == "Const" or self.is_initialiser(name):
            return True
        cone = self.types(self.cone(name)) | {op}
        if cone & SAVER_TYPES:
            return True
        return op == "Identity" and cone <= STATE_TYPES | {"Identity", "Const", "ReadVariableOp"}


def default_ends(
    graph_def: Any, definitions: OpDefinitions
) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """The (key, tensor) outputs and the target ops of a graph that names none.

    They are its sinks, without those of a saver or an initialiser.  A sink that changes state or
    has no outputs is a target, all outputs of any other are outputs; a value inside a v1 loop, or
    in one branch of a v1 conditional, cannot be fetched and is no output.
    """
    graph = _Graph(graph_def.node)
    sinks = graph.sinks()
    chosen = [name for name in sinks if not graph.is_plumbing(name)] or sinks
    contexts = find_contexts(graph.nodes[name] for name in order_nodes(graph.nodes))
    chosen = [name for name in chosen if contexts[name] == NOWHERE] or chosen
    outputs, targets = [], []
    for name in chosen:
        count = output_count(graph.nodes[name], definitions)
        if count == 0 or changes_state(graph.nodes[name], definitions):
            targets.append(name)
        elif count == 1:
            outputs.append((name, f"{name}:0"))
        else:
            outputs.extend((f"{name}:{index}",) * 2 for index in range(count))
    return tuple(outputs), tuple(targets)


def output_count(node: Any, definitions: OpDefinitions) -> int:
    """How many outputs an op has; 1 for an op type that nobody knows."""
    definition = definitions.find(node.op)
    if definition is None:
        return 1
    return sum(argument_length(argument, node.attr) for argument in definition.output_arg)


def changes_state(node: Any, definitions: OpDefinitions) -> bool:
    """Whether an op returns a reference, as ``Assign`` and ``Apply*`` on v1 variables do."""
    definition = definitions.find(node.op)
    return definition is not None and any(argument.is_ref for argument in definition.output_arg)
