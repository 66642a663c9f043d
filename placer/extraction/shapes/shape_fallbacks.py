"""What is taken for shapes that inference leaves unknown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from placer.extraction.graph_defs.protobufs import StoredShapes, shape_of
from placer.extraction.graph_defs.scratch_graphs import Refinement
from placer.extraction.graph_defs.tensor_states import sharpen_shape
from placer.extraction.graph_defs.tensor_types import GraphTypes
from placer.extraction.shapes.data_dependent import bound_shapes
from placer.extraction.shapes.imported_shapes import ImportedGraph
from placer.extraction.shapes.known_values import implied_shapes
from placer.extraction.shapes.tensor_arrays import HandleContents
from placer.extraction.shapes.v1_loop_shapes import LoopVariables
from placer.graph.op_types import NEXT_ITERATIONS


class Fallbacks:
    """What is taken for unknown shapes when inference finds no more.

    First v1 loops (their variables, and what was put behind handles), then what the file states,
    then what readers demand, then the most that data-dependent outputs can be; ``bounded`` are the
    ops of the last.  Nothing may come between ``NextIteration`` and ``Merge``, or the graph counts
    as cyclic.
    """

    def __init__(self, graph_def: Any, types: GraphTypes, stored: StoredShapes) -> None:
        back_edges = {node.name for node in types.nodes_of(NEXT_ITERATIONS)}
        self.graph_def = graph_def
        self.types = types
        self.stored = {name: value for name, value in stored.items() if name not in back_edges}
        self.loops = LoopVariables(types)
        self.contents = HandleContents(types)
        self.bounded: dict[str, None] = {}
        self.refused_before: set[str] = set()

    def add(
        self, imported: ImportedGraph, refinements: Mapping[str, Refinement]
    ) -> dict[str, Refinement]:
        """``refinements`` and those of the first source that has any for other ops."""
        news = self.loops.refinements(imported, refinements)
        if not news:
            news = self.contents.refinements(imported, refinements)
        if not news:
            news = _others(self._from_stored(imported), refinements)
        if not news:
            news = _others(implied_shapes(self.types, imported), refinements)
        if not news:
            if not self.bounded:
                self.refused_before = set(imported.refused)
            news = _others(bound_shapes(self.types, imported), refinements)
            self.bounded.update(dict.fromkeys(news))
        if not news:
            news = self.loops.refinements(imported, refinements, final=True)
        return {**refinements, **news}

    def refused(self, imported: ImportedGraph) -> dict[str, str]:
        """The refused ops, without those that are refused only because of a bound."""
        return {
            name: reason
            for name, reason in imported.refused.items()
            if not self.bounded or name in self.refused_before
        }

    def _from_stored(self, imported: ImportedGraph) -> dict[str, Refinement]:
        found = {}
        for name, protos in self.stored.items():
            ensured = tuple(
                (number, sharpened)
                for number, (shape, proto) in enumerate(
                    zip(imported.shapes[name], protos, strict=False)
                )
                if (sharpened := sharpen_shape(shape, shape_of(proto))) != shape
                and not self.types.outputs[name][number].is_ref
            )
            if ensured:
                found[name] = Refinement(ensured=ensured)
        return found


def _others(
    found: Mapping[str, Refinement], refinements: Mapping[str, Refinement]
) -> dict[str, Refinement]:
    return {name: value for name, value in found.items() if name not in refinements}
