"""Loop variables of v1 loops: what TensorFlow's shape functions leave unknown behind ``Enter``.

::

    Enter -> Merge -> Switch -> body -> NextIteration -.      A variable is taken to keep the shape
               ^______________________________________'       it enters with, as ``tf.while_loop``
                                                              demands, until one iteration gives
    another one: then the dimensions that differ are unknown.
"""

from __future__ import annotations

from collections.abc import Mapping

from cost_models.op_info import Shape
from placer.extraction.graph_defs.scratch_graphs import Refinement
from placer.extraction.graph_defs.tensor_states import sharpen_shape, widen_shapes
from placer.extraction.graph_defs.tensor_types import GraphTypes
from placer.extraction.shapes.imported_shapes import ImportedGraph
from placer.graph.tensor_names import op_of, split_tensor

_HANDLES = frozenset({"resource", "variant"})
"""What they refer to would get lost on the way through an ``EnsureShape``."""


class LoopVariables:
    """The loop variables of one graph; :meth:`refinements` says what is assumed of them."""

    def __init__(self, types: GraphTypes) -> None:
        self.enters = {
            node.name: node.input[0]
            for node in types.nodes_of({"Enter"})
            if types.outputs[node.name][0].dtype not in _HANDLES
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
        """What is newly assumed of ``Enter`` and ``Merge`` outputs, given what is ``known``.

        With ``final``, what an iteration leaves unknown counts as changing; before, it may still
        become known.
        """
        found = {name: _shape(source, imported) for name, source in self.enters.items()}
        for name, sources in self.variables.items():
            entering, returning = (_shape(source, imported) for source in sources)
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


def _shape(reference: str, imported: ImportedGraph) -> Shape:
    name, number = split_tensor(reference)
    return imported.shapes[name][number]
