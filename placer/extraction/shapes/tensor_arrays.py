"""TensorArrays and stacks of v1 loops: what comes out has the shape of what went in.

TensorFlow's shape functions know nothing of what is behind a handle, so every read is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

from cost_models.op_info import Shape
from placer.extraction.graph_defs.op_definitions import attribute
from placer.extraction.graph_defs.protobufs import shape_of
from placer.extraction.graph_defs.scratch_graphs import Refinement
from placer.extraction.graph_defs.tensor_states import sharpen_shape, widen_shapes
from placer.extraction.graph_defs.tensor_types import GraphTypes
from placer.extraction.shapes.imported_shapes import ImportedGraph
from placer.graph.op_types import ENTERS, MERGES, SWITCHES
from placer.graph.tensor_names import full_tensor, op_of, split_tensor

_ARRAYS, _STACKS = frozenset({"TensorArrayV3"}), frozenset({"StackV2"})
_PASSING = ENTERS | SWITCHES | MERGES | {"Exit", "Identity", "TensorArrayGradV3"}
"""What a handle goes through; the gradient of an array has elements of the same shape."""


class HandleContents:
    """What is put behind the handles of one graph.

    ``writes`` are the ops that write, and ``creators`` the ops that made the handles, by the
    name of the op that reads or writes.
    """

    def __init__(self, types: GraphTypes) -> None:
        known = _READERS.keys() | _WRITTEN.keys()
        users = types.nodes_of(known)
        self.nodes = {node.name: node for node in types.nodes} if users else {}
        self.reads: list[tuple[Any, Any]] = []
        self.writes: dict[str, list[Any]] = {}
        self.ours: set[str] = set()
        for node in users:
            creator = self._creator(node)
            if creator is not None and node.op in _READERS:
                self.reads.append((node, creator))
            elif creator is not None:
                self.writes.setdefault(creator.name, []).append(node)

    def _creator(self, node: Any) -> Any | None:
        seen: set[str] = set()
        while node.op not in _ARRAYS | _STACKS:
            is_start = node.op in _READERS or node.op in _WRITTEN
            if node.name in seen or not (is_start or node.op in _PASSING) or not node.input:
                return None
            seen.add(node.name)
            node = self.nodes.get(op_of(node.input[0]))
            if node is None:
                return None
        return node

    def refinements(
        self, imported: ImportedGraph, known: Mapping[str, Refinement]
    ) -> dict[str, Refinement]:
        """What is news about reads, given the shapes so far and what is ``known`` of them."""
        news = {}
        for node, creator in self.reads:
            found = _READERS[node.op](self, node, creator, imported)
            is_ours = node.name in self.ours or node.name not in known
            if found is not None and is_ours and found != known.get(node.name):
                news[node.name] = found
        self.ours.update(news)
        return news

    def element(self, creator: Any, imported: ImportedGraph) -> Shape:
        """What is known of the shape of every element."""
        alike = attribute(creator.attr, "identical_element_shapes").b
        combine = sharpen_shape if alike else widen_shapes
        written = [_written_element(n, imported) for n in self.writes.get(creator.name, ())]
        found = reduce(combine, written) if written else None
        if "element_shape" in creator.attr:
            found = sharpen_shape(found, shape_of(creator.attr["element_shape"].shape))
        return found

    def _read(self, node: Any, creator: Any, imported: ImportedGraph) -> Refinement | None:
        return _ensure(node, self.element(creator, imported), imported)

    def _gather(self, node: Any, creator: Any, imported: ImportedGraph) -> Refinement | None:
        element, indices = self.element(creator, imported), _shape(node, 1, imported)
        if element is None or indices is None:
            return None
        return _ensure(node, (*indices, *element), imported)

    def _concatenate(self, node: Any, creator: Any, imported: ImportedGraph) -> Refinement | None:
        element, count = self.element(creator, imported), _length(creator, imported)
        if not element:
            return None
        length = None if count is None or element[0] is None else count * element[0]
        return _ensure(node, (length, *element[1:]), imported)

    def _count(self, _: Any, creator: Any, imported: ImportedGraph) -> Refinement | None:
        count = _length(creator, imported)
        return None if count is None else Refinement(value=((), (count,)))

    def _pop(self, node: Any, creator: Any, imported: ImportedGraph) -> Refinement | None:
        element = self.element(creator, imported)
        pushed = {imported.values.get(full_tensor(w.input[1])) for w in self.writes[creator.name]}
        value = next(iter(pushed)) if len(pushed) == 1 else None
        if value is not None:
            return Refinement(value=(element, value))
        return _ensure(node, element, imported)


_WRITTEN = {"TensorArrayWriteV3": 2, "TensorArrayScatterV3": 2, "StackPushV2": 1}
"""The input that an op puts behind a handle; a scatter takes it apart into elements."""

_READERS: Mapping[str, Callable[[HandleContents, Any, Any, ImportedGraph], Refinement | None]] = {
    "TensorArrayReadV3": HandleContents._read,
    "TensorArrayGatherV3": HandleContents._gather,
    "TensorArrayConcatV3": HandleContents._concatenate,
    "TensorArraySizeV3": HandleContents._count,
    "StackPopV2": HandleContents._pop,
}


def _written_element(node: Any, imported: ImportedGraph) -> Shape:
    shape = _shape(node, _WRITTEN[node.op], imported)
    if node.op == "TensorArrayScatterV3":
        return shape[1:] if shape else None
    return shape


def _length(creator: Any, imported: ImportedGraph) -> int | None:
    """How many elements an array has; ``None`` if it may grow."""
    if attribute(creator.attr, "dynamic_size").b:
        return None
    value = imported.values.get(full_tensor(creator.input[0]))
    return value[0] if value else None


def _ensure(node: Any, shape: Shape, imported: ImportedGraph) -> Refinement | None:
    found = imported.shapes[node.name][0]
    if sharpen_shape(found, shape) == found:
        return None
    return Refinement(ensured=((0, shape),))


def _shape(node: Any, number: int, imported: ImportedGraph) -> Shape:
    name, index = split_tensor(node.input[number])
    return imported.shapes[name][index]
