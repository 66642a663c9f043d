"""Shapes of a flat graph and of the bodies of its control flow.

TensorFlow's shape functions run over a scratch copy of the graph.  Where control flow or
TensorLists stop them, the bodies are analysed with the shapes that reach them (loop variables to
a fixpoint), the findings are written into the next copy, and it is imported again until nothing
changes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from cost_models.op_info import Shape
from cost_models.tensor_size import is_known
from placer.errors import ShapeError, UsageError
from placer.extraction.flattening.body_graphs import body_functions, check_bodies, flatten_body
from placer.extraction.flattening.inlining import InlinedGraph
from placer.extraction.graph_defs.node_checks import check_dtypes, check_tensors
from placer.extraction.graph_defs.op_definitions import OpDefinitions
from placer.extraction.graph_defs.protobufs import StoredShapes
from placer.extraction.graph_defs.scratch_graphs import NOTHING, Refinement
from placer.extraction.graph_defs.tensor_states import TensorState, widen_states
from placer.extraction.graph_defs.tensor_types import GraphTypes
from placer.extraction.shapes.imported_shapes import ImportedGraph, import_shapes
from placer.extraction.shapes.ragged_sources import BoundSources
from placer.extraction.shapes.shape_fallbacks import Fallbacks
from placer.extraction.shapes.tensor_lists import LIST_TYPES, ListFlow
from placer.graph.op_types import BODY_ATTRIBUTES, LOOPS
from placer.graph.tensor_names import data_inputs, full_tensor, op_of

MOST_ROUNDS = 40
MOST_ITERATIONS = 10

States = tuple[TensorState, ...]

_REFINABLE = BODY_ATTRIBUTES.keys() | LIST_TYPES | {"VariableShape", "SparseReshape"}
"""The ops of which more is known than their shape function says."""

NOTHING_FORCED: Mapping[str, Mapping[str, Refinement]] = {}


@dataclass(frozen=True, kw_only=True)
class GraphShapes:
    """Shapes of every output by op, small integer values by tensor, and the bodies in use.

    ``bodies`` maps a control flow op to the analysed bodies of each function attribute.
    ``refused`` are ops that TensorFlow would not import, with the reason; ``data_dependent`` those
    whose outputs are taken at their largest.
    """

    shapes: Mapping[str, tuple[Shape, ...]]
    values: Mapping[str, tuple[int, ...]]
    types: GraphTypes
    bodies: Mapping[str, Mapping[str, tuple[BodyShapes, ...]]] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    data_dependent: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BodyShapes:
    """One function analysed for one set of arguments."""

    function: str
    arguments: States
    body: InlinedGraph
    shapes: GraphShapes
    outputs: States


class ShapeAnalysis:
    """Analyses flat graphs of one program; bodies are flattened and analysed once per use.

    ``forced`` says beforehand what some ops return, by function (``""``: the main graph) and op;
    ``lengths`` are those of parsed features and split texts of the main graph.
    """

    def __init__(
        self,
        library: Any,
        definitions: OpDefinitions,
        forced: Mapping[str, Mapping[str, Refinement]] = NOTHING_FORCED,
        lengths: BoundSources | None = None,
    ) -> None:
        self.library = library
        self.forced = forced
        self.lengths = lengths or {}
        self.definitions = definitions
        self.flat_bodies: dict[str, InlinedGraph] = {}
        self.results: dict[tuple[str, States], BodyShapes] = {}
        self.signatures = {f.signature.name: f.signature for f in library.function}

    def analyse(
        self,
        graph_def: Any,
        inputs: Mapping[str, TensorState],
        types: GraphTypes,
        stored_shapes: StoredShapes,
        function: str = "",
    ) -> tuple[GraphShapes, _Round]:
        """The shapes of a flat graph whose placeholders have the states ``inputs``, and the last
        round.

        ``stored_shapes`` (TensorShapeProtos by op) fill in what inference leaves open.  Raises
        :class:`ShapeError` if TensorFlow cannot import the graph.
        """
        fallbacks = Fallbacks(types, stored_shapes, {} if function else self.lengths)
        refinements = dict(self.forced.get(function, {}))
        for name in refinements.keys() - types.outputs.keys():
            raise UsageError(f"there is no op {function}/{name} to set a shape of")
        # import, learn from the result, import again, until nothing new is learnt
        one = None
        for number in range(MOST_ROUNDS):
            try:
                imported = import_shapes(
                    graph_def,
                    types=types,
                    inputs=inputs,
                    refinements=refinements,
                    before=one.imported.shapes if one and fallbacks.bounded else {},
                )
            except ShapeError:
                if one is None:
                    raise
                break  # what was known before the last refinements still holds
            before = refinements if number < MOST_ROUNDS - 1 else None
            one = _Round(self, imported, types, inputs, before)
            found = {**refinements, **one.refinements}
            if found == refinements:  # only then what is merely assumed
                found = fallbacks.add(imported, refinements, one.branches)
            if found == refinements:
                break
            refinements = found
        assert one is not None
        shapes = GraphShapes(
            shapes=one.imported.shapes,
            values=one.imported.values,
            types=types,
            bodies=one.bodies,
            refused=fallbacks.refused(one.imported),
            data_dependent=tuple(fallbacks.bounded),
        )
        return shapes, one

    def body(self, function: str, arguments: States) -> BodyShapes:
        """The shapes inside a library function called with ``arguments``."""
        key = function, arguments
        if key not in self.results:
            body = self._flat_body(function)
            inputs = dict(zip(body.arguments, arguments, strict=True))
            types = GraphTypes(body.graph_def.node, self.definitions, body.contents)
            check_dtypes(body.graph_def.node, types)
            shapes, last = self.analyse(body.graph_def, inputs, types, {}, function)
            check_tensors(body.outputs, shapes.types)
            outputs = tuple(map(last.state, body.outputs))
            self.results[key] = BodyShapes(
                function=function, arguments=arguments, body=body, shapes=shapes, outputs=outputs
            )
        return self.results[key]

    def _flat_body(self, function: str) -> InlinedGraph:
        if function not in self.flat_bodies:
            body = flatten_body(function, self.library, self.definitions)
            self.flat_bodies[function] = body
        return self.flat_bodies[function]

    def _forget_changing_values(self, function: str, arguments: States) -> States:
        """Loop variables without their values, where the body does not return them unchanged."""
        body = self._flat_body(function)
        nodes = {node.name: node for node in body.graph_def.node}
        kept = []
        for argument, output, state in zip(body.arguments, body.outputs, arguments, strict=True):
            name = op_of(output)
            while nodes[name].op == "Identity":
                name = op_of(nodes[name].input[0])
            kept.append(state if name == argument else replace(state, value=None))
        return tuple(kept)

    def loop(self, node: Any, arguments: States) -> tuple[States, dict[str, list[BodyShapes]]]:
        """The states of loop variables in every iteration, and the bodies analysed with them."""
        functions = body_functions(node)
        arguments = self._forget_changing_values(functions["body"][0], arguments)
        for _ in range(MOST_ITERATIONS):
            body = self.body(functions["body"][0], arguments)
            widened = _widened(arguments, body.outputs)
            if widened == arguments:
                break
            arguments = widened
        bodies = {"body": [body]}
        if "cond" in functions:
            bodies["cond"] = [self.body(functions["cond"][0], arguments)]
        return arguments, bodies

    def branches(self, node: Any, arguments: States) -> tuple[States, dict[str, list[BodyShapes]]]:
        """The states that cover the outputs of all branches, and the branches analysed."""
        bodies = {
            key: [self.body(name, arguments) for name in names]
            for key, names in body_functions(node).items()
        }
        outputs = [branch.outputs for analysed in bodies.values() for branch in analysed]
        return reduce(_widened, outputs) if outputs else (), bodies


def _widened(first: States, second: States) -> States:
    return tuple(widen_states(a, b) for a, b in zip(first, second, strict=True))


class _Round:
    """One walk over an imported graph: lists are followed, bodies analysed.

    ``before`` are the refinements that the import had; ``None`` says that no round will follow.
    """

    def __init__(
        self,
        analysis: ShapeAnalysis,
        imported: ImportedGraph,
        types: GraphTypes,
        inputs: Mapping[str, TensorState],
        before: Mapping[str, Refinement] | None,
    ) -> None:
        self.before = before
        self.has_news = False
        self.analysis = analysis
        self.imported = imported
        self.types = types
        self.handles = dict(imported.handles)
        self.flow = ListFlow(imported, types, inputs)
        self.refinements: dict[str, Refinement] = {}
        self.bodies: dict[str, dict[str, tuple[BodyShapes, ...]]] = {}
        self.branches: dict[str, list[list[Shape]]] = {}
        for node in types.nodes_of(_REFINABLE):
            if body_functions(node):
                self.visit_control_flow(node)
            elif node.name not in inputs:
                self.flow.visit(node)
                refinement = self.flow.refinement(node) or self.known_value(node)
                if refinement is not None:
                    self.refine(node.name, refinement)

    def refine(self, name: str, refinement: Refinement) -> None:
        known = (self.before or {}).get(name, NOTHING)
        self.refinements[name] = replace(refinement, ensured=known.ensured)
        self.has_news = self.has_news or self.refinements[name] != known

    def visit_control_flow(self, node: Any) -> None:
        data = data_inputs(node.input)
        outputs_of_node = len(self.types.outputs[node.name])
        check_bodies(node, len(data), outputs_of_node, self.analysis.signatures)
        states = tuple(self.state(name) for name in data)
        another_round = self.has_news and self.before is not None
        if another_round and not all(is_known(state.shape) for state in states):
            return  # in which the inputs may be known
        if node.op in LOOPS:
            outputs, bodies = self.analysis.loop(node, states)
        elif node.op == "For":
            outputs, bodies = self.analysis.loop(node, (states[0], *states[3:]))
            outputs = outputs[1:]
        else:
            outputs, bodies = self.analysis.branches(node, states[1:])
            given = [branch.outputs for analysed in bodies.values() for branch in analysed]
            self.branches[node.name] = [
                [state.shape for state in output] for output in zip(*given, strict=True)
            ]
        self.bodies[node.name] = {key: tuple(analysed) for key, analysed in bodies.items()}
        for index, state in enumerate(outputs):
            if state.element is not None and state.dtype == "variant":
                self.flow.lists[f"{node.name}:{index}"] = state.element
            elif state.dtype == "resource" and node.op in LOOPS:
                handle = states[index].element  # a loop passes its handles through
                if handle is not None:
                    self.handles[f"{node.name}:{index}"] = handle
        shapes = tuple(state.shape for state in outputs)
        if shapes != self.imported.shapes[node.name]:
            self.refine(node.name, Refinement(output_shapes=shapes))

    def known_value(self, node: Any) -> Refinement | None:
        """Returns what follows about the last output although TensorFlow does not conclude it.

        ``SparseReshape`` returns the new shape, which depends on no indices, ``VariableShape`` that
        of the variable.
        """
        if node.op == "VariableShape":
            variable = self.handles.get(full_tensor(node.input[0]))
            if variable is None or not is_known(variable.shape):
                return None
            return Refinement(value=((len(variable.shape),), variable.shape))
        if node.op != "SparseReshape":
            return None
        old, new = map(self.imported.value, node.input[1:3])
        if old is None or new is None:
            return None
        if -1 in new:
            rest = math.prod(size for size in new if size != -1)
            new = tuple(math.prod(old) // max(rest, 1) if size == -1 else size for size in new)
        return Refinement(value=((len(new),), new))

    def state(self, reference: str) -> TensorState:
        dtype = self.types.of(reference).dtype
        elements = self.flow.lists if dtype == "variant" else self.handles
        return TensorState(
            dtype,
            self.imported.shape(reference),
            elements.get(full_tensor(reference)),
            self.imported.value(reference),
        )
