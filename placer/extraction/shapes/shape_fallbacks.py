"""Fallbacks for shapes that inference leaves unknown."""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace

from cost_models.op_info import Shape
from cost_models.tensor_size import is_known
from placer.extraction.graph_defs.op_definitions import attribute
from placer.extraction.graph_defs.protobufs import StoredShapes, shape_of
from placer.extraction.graph_defs.scratch_graphs import NOTHING, Refinement
from placer.extraction.graph_defs.tensor_states import TensorState, sharpen_shape
from placer.extraction.graph_defs.tensor_types import GraphTypes
from placer.extraction.shapes.data_dependent import bound_shapes, exact_shapes
from placer.extraction.shapes.imported_shapes import ImportedGraph
from placer.extraction.shapes.ragged_sources import BoundSources, source_refinements
from placer.extraction.shapes.v1_loops import HandleContents, LoopVariables
from placer.graph.op_types import NEXT_ITERATIONS
from placer.graph.tensor_names import data_inputs, split_tensor

RESERVE_OUTPUT = 5
"""``FusedBatchNormV3``'s reserve space.

Its shape function leaves it open; the CPU kernel (``core/kernels/fused_batch_norm_op.cc``)
allocates a scalar (an empty vector with oneDNN).  cuDNN's fused training mode needs a workspace
there whose size follows from no shape.
"""

_SAME_SHAPE = frozenset({"ZerosLike", "OnesLike", "Identity", "StopGradient"})


class Fallbacks:
    """Shapes that are assumed, source by source, when inference finds no more.

    First v1 loops (their variables, and what was put behind handles), then the lengths that were
    given (``lengths``) and what follows from inputs although TensorFlow does not conclude it, then
    what the file states, then what readers demand, then values that go through branches, then the
    most that data-dependent outputs can be; ``bounded`` are the ops of the last.  Nothing may come
    between ``NextIteration`` and ``Merge``, or the graph counts as cyclic.
    """

    def __init__(
        self, types: GraphTypes, stored: StoredShapes, lengths: BoundSources | None = None
    ) -> None:
        back_edges = {node.name for node in types.nodes_of(NEXT_ITERATIONS)}
        self.types = types
        self.lengths = lengths or {}
        self.stored = {name: value for name, value in stored.items() if name not in back_edges}
        self.loops = LoopVariables(types)
        self.contents = HandleContents(types)
        self.bounded: dict[str, None] = {}
        self.refused_before: set[str] = set()
        self.assumed: set[str] = set()

    def add(
        self,
        imported: ImportedGraph,
        refinements: Mapping[str, Refinement],
        branches: Mapping[str, Sequence[Sequence[Shape]]],
    ) -> dict[str, Refinement]:
        """``refinements`` and those of the first source that has any for other ops.

        ``branches`` has what the branches of a conditional give, by op and output.
        """
        changing = dict(self.loops.changing)
        found = next(filter(None, self._sources(imported, refinements, branches)), {})
        if self.loops.changing != changing:  # what followed from the shapes before is not known
            refinements = {n: r for n, r in refinements.items() if n not in self.assumed}
            self.assumed.clear()
            self.bounded.clear()
        return {**refinements, **found}

    def _sources(
        self,
        imported: ImportedGraph,
        refinements: Mapping[str, Refinement],
        branches: Mapping[str, Sequence[Sequence[Shape]]],
    ) -> Iterator[dict[str, Refinement]]:
        """Yields the refinements of each source; the next is asked if those before have none."""
        yield self.loops.refinements(imported, refinements)
        yield self.contents.refinements(imported, refinements)
        yield _sharper(source_refinements(self.lengths, imported), refinements)
        yield _sharper(exact_shapes(self.types, imported), refinements)
        yield _others(self._from_stored(imported), refinements)
        yield _others(self._implied(imported), refinements)
        handed = _others(self._handed_on(imported), refinements)
        self.assumed.update(handed)
        yield handed
        yield _sharper(self._module_batches(imported), refinements)
        if not self.bounded:
            self.refused_before = set(imported.refused)
        known = {n for n, r in refinements.items() if r.output_shapes is None and not r.ensured}
        known.update(self.loops.variables)
        bounds = bound_shapes(self.types, imported, branches)
        largest = _sharper(_others(bounds, known), refinements)
        self.bounded.update(dict.fromkeys(largest))
        self.assumed.update(largest)
        yield largest
        yield self.loops.refinements(imported, refinements, final=True)

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

    def _implied(self, imported: ImportedGraph) -> dict[str, Refinement]:
        """Shapes that readers demand: both values of a ``Select`` have that of its output."""
        found = {}
        for node in self.types.nodes_of({"Select"}):
            shape = imported.shapes[node.name][0]
            for name, number in map(split_tensor, node.input[1:3]):
                if is_known(shape) and not is_known(imported.shapes[name][number]):
                    found[name] = Refinement(ensured=((number, shape),))
        return found

    def _module_batches(self, imported: ImportedGraph) -> dict[str, Refinement]:
        """The leading dimensions that modules of XLA leave open: that of the inputs whose own the
        file leaves open too, where these agree."""
        found = {}
        for node in self.types.nodes_of({"XlaCallModule"}):
            batches = set()
            for tensor in data_inputs(node.input):
                name, number = split_tensor(tensor)
                stored, shape = self.stored.get(name, ()), imported.shape(tensor)
                stated = shape_of(stored[number]) if number < len(stored) else None
                if stated and stated[0] is None and shape:
                    batches.add(shape[0])
            batch = batches.pop() if len(batches) == 1 else None
            ensured = tuple(
                (number, (batch, *shape[1:]))
                for number, shape in enumerate(imported.shapes[node.name])
                if batch is not None and shape and shape[0] is None
            )
            if ensured:
                found[node.name] = Refinement(ensured=ensured)
        return found

    def _handed_on(self, imported: ImportedGraph) -> dict[str, Refinement]:
        """Small values that go into a branch, or come out of all, where any shape is unknown."""
        found: dict[str, Refinement] = {}
        if all(is_known(shape) for shapes in imported.shapes.values() for shape in shapes):
            return found
        for node in self.types.nodes_of({"Switch", "Merge"}):
            sources = data_inputs(node.input)[: 1 if node.op == "Switch" else None]
            values = {imported.value(source) for source in sources}
            value = values.pop() if len(values) == 1 else None
            if value is not None and node.name not in self.loops.variables:
                outputs = (0, 1) if node.op == "Switch" else (0,)
                known = imported.shape(sources[0]), value
                found[node.name] = Refinement(value=known, valued=outputs)
        return found


def _others(found: Mapping[str, Refinement], known: Container[str]) -> dict[str, Refinement]:
    return {name: value for name, value in found.items() if name not in known}


def _sharper(
    found: Mapping[str, Refinement], known: Mapping[str, Refinement]
) -> dict[str, Refinement]:
    """The ``known`` refinements of the ops in ``found`` with what that adds: a shape that is known
    in part keeps what is known of it.  Ops of which it says nothing new are left out."""
    news = {}
    for name, new in found.items():
        before = known.get(name, NOTHING)
        shapes = dict(before.ensured)
        for number, shape in new.ensured:
            shapes[number] = sharpen_shape(shapes.get(number), shape)
        ensured = tuple(sorted(shapes.items()))
        merged = replace(before, ensured=ensured, values=new.values or before.values)
        if dict(before.ensured) != shapes or merged.values != before.values:
            news[name] = merged
    return news


def stated_shapes(
    types: GraphTypes, stored: StoredShapes, inputs: Mapping[str, TensorState]
) -> dict[str, tuple[Shape, ...]]:
    """The shapes that a graph states itself, unknown where it does not."""
    found: dict[str, tuple[Shape, ...]] = {}
    for node in types.nodes:
        count = len(types.outputs[node.name])
        shapes: tuple[Shape, ...] = tuple(shape_of(proto) for proto in stored.get(node.name, ()))
        if node.name in inputs:
            shapes = (inputs[node.name].shape,)
        elif node.op == "Const":
            shapes = (shape_of(attribute(node.attr, "value").tensor.tensor_shape),)
        found[node.name] = (*shapes[:count], *[None] * (count - len(shapes)))
    return found


def settle_reserve_spaces(
    types: GraphTypes, shapes: Mapping[str, tuple[Shape, ...]]
) -> dict[str, tuple[Shape, ...]]:
    """``shapes`` with the reserve spaces of batch normalisation, and what copies them, known."""
    settled = dict(shapes)
    for node in types.nodes_of({"FusedBatchNormV3"} | _SAME_SHAPE):
        found = settled[node.name]
        if node.op == "FusedBatchNormV3" and found[RESERVE_OUTPUT] is None:
            settled[node.name] = (*found[:RESERVE_OUTPUT], ())
        elif node.op in _SAME_SHAPE and not is_known(found[0]):
            name, index = split_tensor(node.input[0])
            source = settled[name][index]
            if is_known(source):
                settled[node.name] = (source,)
    return settled
