"""Ops that TensorFlow must find on one device, and why.

This mirrors what ``core/common_runtime/colocation_graph.cc`` demands of a graph (resource and
reference edges, ``_class``), what ``OptimizeControlFlowColocation`` in ``graph_partition.cc`` does
whatever was asked (a ``Switch`` goes to its data input), and what cannot be cut in practice:
chains of variant tensors (TensorLists, datasets) and the frames of v1 loops.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from placer.extraction.graph_defs.op_definitions import decoded
from placer.extraction.graph_defs.protobufs import NodeDef
from placer.extraction.graph_defs.state import resource_key
from placer.extraction.graph_defs.tensor_types import GraphTypes, TensorType
from placer.extraction.graph_defs.v1_control_flow import loop_members
from placer.graph.op_graph import ColocationGroup
from placer.graph.op_types import ENTERS, SWITCHES, TABLES, VARIABLES
from placer.graph.tensor_names import data_inputs, op_of
from placer.graph.union_find import UnionFind

STRING_HANDLE_PREFIXES = ("TensorArray", "Stack", "Queue", "LookupTable", "Barrier", "Reader")
"""Op types that take an old string handle as their first input."""

_REASONS = (
    ("Stack", "stack"),
    ("TensorArray", "tensor_array"),
    ("Iterator", "iterator"),
    ("OneShotIterator", "iterator"),
    ("MultiDeviceIterator", "iterator"),
)


class _Groups:
    """Sets of op names, with the reasons of every union."""

    def __init__(self) -> None:
        self.sets = UnionFind()
        self.reasons: dict[str, set[str]] = {}

    def join(self, first: str, second: str, reason: str) -> None:
        a, b = self.sets.root(first), self.sets.root(second)
        if a != b:
            self.sets.union(a, b)
            self.reasons.setdefault(a, set()).update(self.reasons.pop(b, ()))
        self.reasons.setdefault(a, set()).add(reason)

    def groups(self, order: Iterable[str]) -> Iterator[ColocationGroup]:
        members: dict[str, list[str]] = {}
        for name in order:
            if name in self.sets:
                members.setdefault(self.sets.root(name), []).append(name)
        for root, ops in members.items():
            if len(ops) > 1:
                yield ColocationGroup(
                    ops=tuple(ops), reasons=tuple(sorted(self.reasons.get(root, ())))
                )


def find_colocation_groups(graph_def: Any, types: GraphTypes) -> tuple[ColocationGroup, ...]:
    """The groups of a flat graph that must share a device, merged and in graph order."""
    nodes = {node.name: node for node in graph_def.node}
    groups = _Groups()
    _join_shared_handles(nodes, groups)
    for node in types.handle_readers:
        _join_inputs(node, nodes, types, groups)
    for node in graph_def.node:
        attributes = node.attr
        for entry in attributes["_class"].list.s if "_class" in attributes else ():
            target = decoded(entry).removeprefix("loc:@")
            if entry.startswith(b"loc:@") and target in nodes:
                groups.join(target, node.name, "_class")
    for node in types.nodes_of(SWITCHES):
        groups.join(op_of(node.input[0]), node.name, "switch")
    has_frames = not types.present.isdisjoint(ENTERS)
    for frame in loop_members(graph_def.node) if has_frames else ():
        for name in frame:
            groups.join(frame[0], name, "frame")
    return tuple(groups.groups(nodes))


def _join_shared_handles(nodes: dict[str, NodeDef], groups: _Groups) -> None:
    first: dict[tuple[str, str, str], str] = {}
    for node in nodes.values():
        if node.op in VARIABLES or node.op in TABLES:
            key = resource_key(node)
            owner = first.setdefault(key, node.name)
            if owner != node.name:
                groups.join(owner, node.name, "resource")


def _join_inputs(
    node: Any,
    nodes: dict[str, NodeDef],
    types: GraphTypes,
    groups: _Groups,
) -> None:
    expected = types.inputs[node.name]
    for number, reference in enumerate(data_inputs(node.input)):
        name = op_of(reference)
        produced = types.of(reference)
        reason = None
        if produced.dtype == "resource":
            reason = _resource_reason(nodes[name])
        elif produced.dtype == "variant":
            reason = "variant"
        elif _takes_reference(expected, number, produced):
            reason = "reference"
        elif number == 0 and _is_old_handle(node, produced):
            reason = _resource_reason(node)
        if reason is not None:
            groups.join(name, node.name, reason)


def _takes_reference(
    expected: tuple[TensorType, ...] | None, number: int, produced: TensorType
) -> bool:
    if expected is None:
        return produced.is_ref
    return number < len(expected) and expected[number].is_ref


def _is_old_handle(node: Any, produced: TensorType) -> bool:
    return produced.dtype == "string" and node.op.startswith(STRING_HANDLE_PREFIXES)


def _resource_reason(node: Any) -> str:
    for prefix, reason in _REASONS:
        if node.op.startswith(prefix):
            return reason
    if node.op in TABLES or node.op.startswith("LookupTable"):
        return "table"
    return "queue" if "Queue" in node.op else "resource"
