"""Ops that TensorFlow must find on one device, and why; and those that a graph only asks to share
one.

Law mirrors what ``core/common_runtime/colocation_graph.cc`` demands of the ops themselves (resource
and reference edges), what ``OptimizeControlFlowColocation`` in ``graph_partition.cc`` does whatever
was asked (a ``Switch`` goes to its data input), what cannot be cut in practice (chains of variant
tensors, the frames of v1 loops), and what meets by name on one device: a variable, a table or a
staging area that several ops reach by one ``shared_name``.  ``_class`` alone is a hint of whoever
built the graph: TensorFlow keeps to it, but nothing breaks where it is left out.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from placer.extraction.graph_defs.flat_nodes import NO_CONTENTS, Contents, hinted_ops
from placer.extraction.graph_defs.op_definitions import attribute, decoded
from placer.extraction.graph_defs.protobufs import NodeDef
from placer.extraction.graph_defs.state import resource_key, shared_name
from placer.extraction.graph_defs.tensor_types import GraphTypes
from placer.extraction.graph_defs.v1_control_flow import find_contexts
from placer.graph.op_graph import ColocationGroup
from placer.graph.op_types import ENTERS, EXITS, SWITCHES, TABLES, VARIABLES
from placer.graph.tensor_names import data_inputs, op_of
from placer.graph.union_find import UnionFind
from placer.graph.walks import grouped

STRING_HANDLE_PREFIXES = ("TensorArray", "Stack", "Queue", "LookupTable", "Barrier", "Reader")
"""Op types that take an old string handle as their first input."""

_REASONS = (
    ("Stack", "stack"),
    ("TensorArray", "tensor_array"),
    ("Iterator", "iterator"),
    ("OneShotIterator", "iterator"),
    ("MultiDeviceIterator", "iterator"),
)

_ON_MAPS = ("Stage", "Unstage", "UnstageNoKey", "Peek", "Size", "IncompleteSize", "Clear")
_STAGING_AREAS = {
    **dict.fromkeys(("Stage", "Unstage", "StagePeek", "StageSize", "StageClear"), "staging area"),
    **{f"Map{what}": "map" for what in _ON_MAPS},
    **{f"OrderedMap{what}": "ordered map" for what in _ON_MAPS},
}
"""The ops of each kind of staging area: they share no handle, only its name."""

Join = tuple[str, str, str]
"""Two ops that must share a device, and why."""


def find_colocation_groups(graph_def: Any, types: GraphTypes) -> tuple[ColocationGroup, ...]:
    """The groups of a flat graph that must share a device, merged and in graph order; hints are
    left out."""
    nodes = dict(types.contents.named(graph_def.node))
    joins = list(_joins(nodes, types))
    if not joins:
        return ()
    sets = UnionFind[str]()
    for first, second, _ in joins:
        sets.union(first, second)
    reasons: dict[str, set[str]] = {}
    for first, _, reason in joins:
        reasons.setdefault(sets.root(first), set()).add(reason)
    members = grouped((sets.root(name), name) for name in nodes if name in sets.parent)
    return tuple(
        ColocationGroup(ops=tuple(ops), reasons=tuple(sorted(reasons[root])))
        for root, ops in members.items()
        if len(ops) > 1
    )


def find_colocation_hints(
    graph_def: Any, groups: Iterable[ColocationGroup], contents: Contents = NO_CONTENTS
) -> tuple[ColocationGroup, ...]:
    """The pairs of ops of a flat graph that ``_class`` ties and none of ``groups``, which must
    share a device, holds together; in graph order, the op that is named first.  ``contents`` are
    those of the nodes."""
    classed = [
        (name, node)
        for name, node in contents.named(graph_def.node)
        if (content := contents.get(name)) is None or b"_class" in content
    ]
    if not classed:
        return ()
    group_of = {name: number for number, group in enumerate(groups) for name in group.ops}
    names = {name for name, _ in contents.named(graph_def.node)}
    return tuple(
        ColocationGroup(ops=(target, name), reasons=("colocation_hint",))
        for name, node in classed
        for target in dict.fromkeys(hinted_ops(node))
        if target in names
        and target != name
        and (target not in group_of or group_of[target] != group_of.get(name))
    )


def _joins(nodes: Mapping[str, NodeDef], types: GraphTypes) -> Iterator[Join]:
    owners: dict[tuple[str, str, str], str] = {}
    for node in types.nodes_of(VARIABLES | TABLES):
        owner = owners.setdefault(resource_key(node), node.name)
        if owner != node.name:
            yield owner, node.name, "resource"
    for node in types.nodes_of(_STAGING_AREAS.keys()):
        container = decoded(attribute(node.attr, "container").s)
        name = shared_name(node) or f"//{node.name}"
        owner = owners.setdefault((_STAGING_AREAS[node.op], container, name), node.name)
        if owner != node.name:
            yield owner, node.name, "staging_area"
    for node in types.handle_readers:
        yield from _joined_inputs(node, nodes, types)
    for node in types.nodes_of(SWITCHES):
        yield op_of(node.input[0]), node.name, "switch"
    if types.nodes_of(ENTERS):
        yield from _joined_frames(nodes)


def _joined_inputs(node: Any, nodes: Mapping[str, NodeDef], types: GraphTypes) -> Iterator[Join]:
    expected = types.inputs[node.name]
    for number, reference in enumerate(data_inputs(node.input)):
        name = op_of(reference)
        produced = types.of(reference)
        if produced.dtype == "resource":
            yield name, node.name, _resource_reason(nodes[name])
        elif produced.dtype == "variant":
            yield name, node.name, "variant"
        elif produced.is_ref if expected is None else expected[number].is_ref:
            yield name, node.name, "reference"
        elif (
            number == 0
            and produced.dtype == "string"
            and node.op.startswith(STRING_HANDLE_PREFIXES)
        ):
            yield name, node.name, _resource_reason(node)


def _joined_frames(nodes: Mapping[str, NodeDef]) -> Iterator[Join]:
    """The ops of every outermost v1 loop, ``Enter`` to ``Exit``, inner loops included."""
    contexts = find_contexts(nodes.values())
    first: dict[str, str] = {}
    for node in nodes.values():
        inside = op_of(node.input[0]) if node.op in EXITS else node.name
        frames = contexts[node.name].frames or contexts[inside].frames
        if frames:
            yield first.setdefault(frames[0], node.name), node.name, "frame"


def _resource_reason(node: Any) -> str:
    for prefix, reason in _REASONS:
        if node.op.startswith(prefix):
            return reason
    if node.op in TABLES or node.op.startswith("LookupTable"):
        return "table"
    return "queue" if "Queue" in node.op else "resource"
