"""Loops of TensorFlow 1: what its shape functions leave unknown behind an ``Enter`` or a handle."""

from collections.abc import Mapping
from functools import reduce
from typing import Any

from cost_models.op_info import Shape
from placer.extraction.graph_defs.op_definitions import attribute
from placer.extraction.graph_defs.protobufs import shape_of
from placer.extraction.graph_defs.scratch_graphs import Refinement
from placer.extraction.graph_defs.tensor_states import sharpen_shape, widen_shapes
from placer.extraction.graph_defs.tensor_types import GraphTypes
from placer.extraction.shapes.imported_shapes import ImportedGraph
from placer.graph.op_types import ENTERS, HANDLES, MERGES, SWITCHES
from placer.graph.tensor_names import op_of


class LoopVariables:
    """The loop variables of one graph; :meth:`refinements` says what is assumed of them.

    ::

        Enter -> Merge -> Switch -> body -> NextIteration -.
                   ^______________________________________'

    A variable is taken to keep the shape it enters with, as ``tf.while_loop`` demands, until one
    iteration gives another one: then the dimensions that differ are unknown.
    """

    def __init__(self, types: GraphTypes) -> None:
        self.enters = {
            node.name: node.input[0]
            for node in types.nodes_of({"Enter"})
            if types.outputs[node.name][0].dtype not in HANDLES
        }
        steps = {node.name: node.input[0] for node in types.nodes_of({"NextIteration"})}
        self.variables: dict[str, tuple[str, str]] = {}
        for node in types.nodes_of({"Merge"}):
            sources = [op_of(name) for name in node.input]
            entering = [self.enters[name] for name in sources if name in self.enters]
            returning = [steps[name] for name in sources if name in steps]
            if len(entering) == len(returning) == 1:
                self.variables[node.name] = entering[0], returning[0]
        self.changing: dict[str, Shape] = {}
        self.ours: set[str] = set()

    def refinements(
        self, imported: ImportedGraph, known: Mapping[str, Refinement], *, final: bool = False
    ) -> dict[str, Refinement]:
        """Returns the new assumptions about ``Enter`` and ``Merge`` outputs, given those ``known``.

        With ``final``, what an iteration leaves unknown counts as changing; before, it may still
        become known.
        """
        found = {name: imported.shape(source) for name, source in self.enters.items()}
        for name, sources in self.variables.items():
            entering, returning = map(imported.shape, sources)
            if not final:
                returning = sharpen_shape(returning, entering)
            found[name] = self._kept(name, entering, returning)
        news = {}
        for name, shape in found.items():
            refinement = Refinement(ensured=((0, shape),))
            is_ours = name in self.ours or (name not in known and shape is not None)
            if is_ours and shape != imported.shapes[name][0] and refinement != known.get(name):
                news[name] = refinement
        self.ours.update(news)
        return news

    def _kept(self, name: str, entering: Shape, returning: Shape) -> Shape:
        """The shape of a loop variable in every iteration; what once changed stays unknown."""
        kept = widen_shapes(entering, returning)
        if name in self.changing:
            kept = widen_shapes(kept, self.changing[name])
        if kept != entering:
            self.changing[name] = kept
        return kept


_READERS = frozenset(
    {"TensorArrayReadV3", "TensorArrayGatherV3", "TensorArrayConcatV3", "TensorArraySizeV3"}
    | {"StackPopV2"}
)
_WRITTEN = {"TensorArrayWriteV3": 2, "TensorArrayScatterV3": 2, "StackPushV2": 1}
"""The input that an op puts behind a handle; a scatter takes it apart into elements."""

_PASSING = ENTERS | SWITCHES | MERGES | {"Exit", "Identity", "TensorArrayGradV3"}
"""Op types that pass a handle on; the gradient of an array has elements of the same shape."""


class HandleContents:
    """The contents of TensorArrays and stacks in one graph: what is read has the shape of what was
    written."""

    def __init__(self, types: GraphTypes) -> None:
        users = types.nodes_of(_READERS | _WRITTEN.keys())
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
        """The op that made the handle which ``node`` uses, where it can be followed there."""
        seen: set[str] = set()
        node = self.nodes.get(op_of(node.input[0]))
        while node is not None and node.op not in ("TensorArrayV3", "StackV2"):
            if node.name in seen or node.op not in _PASSING or not node.input:
                return None
            seen.add(node.name)
            node = self.nodes.get(op_of(node.input[0]))
        return node

    def refinements(
        self, imported: ImportedGraph, known: Mapping[str, Refinement]
    ) -> dict[str, Refinement]:
        """Returns the news about reads, given the shapes so far and the refinements ``known``."""
        news = {}
        for node, creator in self.reads:
            found = self._read(node, creator, imported)
            is_ours = node.name in self.ours or node.name not in known
            if found is not None and is_ours and found != known.get(node.name):
                news[node.name] = found
        self.ours.update(news)
        return news

    def _read(self, node: Any, creator: Any, imported: ImportedGraph) -> Refinement | None:
        """Returns the refinement of one read's result; ``None`` if TensorFlow knows as much."""
        shape, count = self._element(creator, imported), _length(creator, imported)
        if node.op == "TensorArraySizeV3":
            return None if count is None else Refinement(value=((), (count,)))
        if node.op == "StackPopV2":
            pushed = {imported.value(push.input[1]) for push in self.writes.get(creator.name, ())}
            value = pushed.pop() if len(pushed) == 1 else None
            if value is not None:
                return Refinement(value=(shape, value))
        elif node.op == "TensorArrayGatherV3":
            indices = imported.shape(node.input[1])
            shape = None if shape is None or indices is None else (*indices, *shape)
        elif node.op == "TensorArrayConcatV3" and shape is not None:
            length = None if count is None or not shape or shape[0] is None else count * shape[0]
            shape = (length, *shape[1:]) if shape else None
        found = imported.shapes[node.name][0]
        if sharpen_shape(found, shape) == found:
            return None
        return Refinement(ensured=((0, shape),))

    def _element(self, creator: Any, imported: ImportedGraph) -> Shape:
        """Returns the known part of every element's shape."""
        alike = attribute(creator.attr, "identical_element_shapes").b
        combine = sharpen_shape if alike else widen_shapes
        written = [_written_element(n, imported) for n in self.writes.get(creator.name, ())]
        found = reduce(combine, written) if written else None
        if "element_shape" in creator.attr:
            found = sharpen_shape(found, shape_of(creator.attr["element_shape"].shape))
        return found


def _written_element(node: Any, imported: ImportedGraph) -> Shape:
    shape = imported.shape(node.input[_WRITTEN[node.op]])
    if node.op == "TensorArrayScatterV3":
        return shape[1:] if shape else None
    return shape


def _length(creator: Any, imported: ImportedGraph) -> int | None:
    """How many elements an array has; ``None`` if it may grow."""
    if attribute(creator.attr, "dynamic_size").b:
        return None
    value = imported.value(creator.input[0])
    return value[0] if value else None
