"""The nodes of a flat graph, written from the scopes that they are in."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from placer.extraction.flattening.implied_control import drop_implied_control
from placer.extraction.graph_defs.call_scopes import CallTree, Scope
from placer.extraction.graph_defs.flat_nodes import (
    Contents,
    bind_placeholders,
    content_of,
    needed_library,
    referred_functions,
    rename_classes,
    retarget_classes,
    strip_node,
)
from placer.extraction.graph_defs.protobufs import TensorShapeProto
from placer.graph.name_scopes import free_name
from placer.graph.order import order_by_sources

Key = tuple[Scope, str]
"""An op, as scope and node name."""

Source = tuple[Scope, str, int]
"""An op, as scope and node name, and one of its outputs; output -1 is a control edge."""


class FlatGraph:
    """A flat graph that is written node by node.

    ``alike`` has one object for all equal contents, which are looked up often; ``unchanged`` are
    those of which nodes of the main graph stay as they are.
    """

    def __init__(self, tree: CallTree) -> None:
        self.tree = tree
        self.graph_def = type(tree.graph_def)(versions=tree.graph_def.versions)
        self.contents = Contents()
        self.stored_shapes: dict[str, Sequence[TensorShapeProto]] = {}
        self.alike: dict[bytes, bytes] = {}
        self.unchanged: set[bytes] = set()
        self.referred: list[str] = []
        self.classed: dict[Key, Any] = {}

    def emit(
        self,
        names: Mapping[Key, str],
        read: Mapping[Key, Sequence[Source]],
        asked: Collection[str],
    ) -> None:
        """Writes the nodes with these ``names``, producers first, else in the given order; ``read``
        has the inputs of each, and ``asked`` must run."""
        inputs, sources, op_types, keys = {}, {}, {}, {}
        for key, flat in names.items():
            inputs[flat], sources[flat] = _flat_inputs(names[key], read[key], names)
            op_types[flat], keys[flat] = key[0].nodes[key[1]].op, key
        order = order_by_sources(op_types, sources)
        bundles = {n for n, op in op_types.items() if op == "NoOp" or op in self.tree.callable}
        drop_implied_control(order, op_types, inputs, sources, bundles.difference(asked))
        self.contents.inputs = inputs
        self.graph_def.node.extend([keys[flat][0].nodes[keys[flat][1]] for flat in order])
        for flat, node in zip(order, self.graph_def.node, strict=True):
            self.fill(node, *keys[flat], flat, inputs[flat])
        for (scope, _), node in self.classed.items():
            rename_classes(scope, node, names)
        retarget_classes([self.classed[key] for key in names if key in self.classed], self.contents)
        self.graph_def.library.CopyFrom(needed_library(self.referred, self.tree.library))

    def fill(self, node: Any, scope: Scope, name: str, flat: str, inputs: Sequence[str]) -> None:
        """Makes the copy of an op, or of a call whose anchor it becomes, the flat node."""
        node.ClearField("name")
        node.ClearField("input")
        content = content_of(node)
        if scope.call is not None or content is None or content not in self.unchanged:
            content = self.adapt(node, content, scope, name, flat)
        self.contents[flat] = self.alike[content] if content is not None else None
        node.name = flat
        node.input.extend(inputs)

    def adapt(
        self, node: Any, whole: bytes | None, scope: Scope, name: str, flat: str
    ) -> bytes | None:
        """Takes out of a copy what flat nodes go without, and notes what it refers to; its content
        then, which was ``whole`` before."""
        source = scope.nodes[name]
        attributes = source.attr
        if "_output_shapes" in attributes:
            self.stored_shapes[flat] = attributes["_output_shapes"].list.shape
        strip_node(node, is_anchor=source.op in self.tree.callable)
        if scope.call is not None:
            if scope.device and not node.device:
                node.device = scope.device
            bind_placeholders(scope, node)
        if "_class" in attributes and "_class" in node.attr:  # an anchor has none
            self.classed[scope, name] = node
        content = content_of(node)
        if content is None or content not in self.alike:
            self.referred += referred_functions(node, self.tree.library)
        if content is not None:
            self.alike.setdefault(content, content)
            if content == whole and "_class" not in attributes:
                self.unchanged.add(content)
        return content


def _flat_inputs(
    name: str, read: Sequence[Source], names: Mapping[Key, str]
) -> tuple[list[str], list[str]]:
    """The inputs of a flat node, and the nodes that these name."""
    producers: list[str] = []
    data: list[str] = []
    control: dict[str, str] = {}
    for owner, producer, index in read:
        flat = names[owner, producer]
        if index >= 0:
            producers.append(flat)
            data.append(f"{flat}:{index}" if index else flat)
        elif flat != name:
            control[flat] = f"^{flat}"
    if not control:
        return data, producers
    return [*data, *control.values()], [*producers, *control]


def flat_names(order: Sequence[Key]) -> dict[Key, str]:
    """A unique flat name for every op: its call path, with a suffix where that is taken."""
    names, taken = dict[Key, str](), set[str]()
    for scope, name in order:
        flat = free_name(scope.prefix + name, taken, "_inlined_")
        taken.add(flat)
        names[scope, name] = flat
    return names
