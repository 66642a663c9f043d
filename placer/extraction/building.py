"""The OpGraph of a flat program: plain types, without TensorFlow's protobufs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cost_models.op_info import OpInfo, Shape, TensorProperties
from placer.errors import ModelError
from placer.extraction.colocation import find_colocation_groups
from placer.extraction.op_definitions import (
    DEVICES_ATTRIBUTE,
    OpDefinitions,
    attribute,
    decoded,
)
from placer.extraction.program import FlatProgram
from placer.extraction.raw_program import dtype_name, shape_of
from placer.extraction.shapes import BodyShapes, GraphShapes
from placer.extraction.tensor_states import TensorState
from placer.graph.op_graph import ColocationGroup, Op, OpGraph

BodyName = tuple[str, tuple[TensorState, ...]]

_DROPPED = frozenset({"_class", "_output_shapes", DEVICES_ATTRIBUTE})


class GraphBuilder:
    """Builds the OpGraph of a program and of the bodies in use, sharing equal values."""

    def __init__(self, definitions: OpDefinitions) -> None:
        self.definitions = definitions
        self.properties: dict[tuple[str, Shape, Any], TensorProperties] = {}
        self.defaults: dict[str, dict[str, object]] = {}
        self.body_names: dict[BodyName, str] = {}
        self.functions: dict[str, OpGraph] = {}

    def build(self, program: FlatProgram, shapes: GraphShapes) -> OpGraph:
        """The OpGraph of ``program`` with the given shapes."""
        ops = self._ops(program.graph_def, shapes, program.origins)
        return OpGraph(
            ops=ops,
            feeds=(
                *(item.tensor.partition(":")[0] for item in program.inputs),
                *program.captured_constants,
            ),
            fetches=tuple(dict.fromkeys(tensor for _, tensor in program.outputs)),
            targets=program.targets,
            functions=dict(self.functions),
            variables=program.variables,
            colocation_groups=(
                *find_colocation_groups(program.graph_def, shapes.types, self.definitions),
                *(ColocationGroup(ops=ops, reasons=("pieces",)) for ops in program.twins),
            ),
            fingerprint=program.fingerprint,
        )

    def _body_name(self, analysed: BodyShapes) -> str:
        """The key of a body in ``OpGraph.functions``; a second set of shapes adds ``#2``."""
        key = analysed.function, analysed.arguments
        if key not in self.body_names:
            count = sum(function == analysed.function for function, _ in self.body_names)
            name = analysed.function + (f"#{count + 1}" if count else "")
            self.body_names[key] = name
            self.functions[name] = self._build_body(analysed)
        return self.body_names[key]

    def _build_body(self, analysed: BodyShapes) -> OpGraph:
        """The OpGraph of one body; its arguments are its feeds."""
        body = analysed.body
        return OpGraph(
            ops=self._ops(body.graph_def, analysed.shapes, body.origins),
            feeds=body.arguments,
            fetches=body.outputs,
            targets=body.targets,
            colocation_groups=find_colocation_groups(
                body.graph_def, analysed.shapes.types, self.definitions
            ),
        )

    def _ops(
        self, graph_def: Any, shapes: GraphShapes, origins: Mapping[str, tuple[str, str]]
    ) -> dict[str, Op]:
        outputs = {node.name: self._outputs(node.name, shapes) for node in graph_def.node}
        return {
            node.name: self._op(node, outputs, shapes, origins[node.name])
            for node in graph_def.node
        }

    def _outputs(self, name: str, shapes: GraphShapes) -> tuple[TensorProperties, ...]:
        return tuple(
            self._tensor(kind.dtype, shape, shapes.values.get(f"{name}:{index}"))
            for index, (kind, shape) in enumerate(
                zip(shapes.types.outputs[name], shapes.shapes[name], strict=True)
            )
        )

    def _tensor(self, dtype: str, shape: Shape, value: Any) -> TensorProperties:
        key = dtype, shape, value
        if key not in self.properties:
            self.properties[key] = TensorProperties(dtype=dtype, shape=shape, value=value)
        return self.properties[key]

    def _op(
        self,
        node: Any,
        outputs: Mapping[str, tuple[TensorProperties, ...]],
        shapes: GraphShapes,
        origin: tuple[str, str],
    ) -> Op:
        inputs, properties = [], []
        for reference in node.input:
            if reference.startswith("^"):
                continue
            name, _, index = reference.partition(":")
            number = int(index or 0)
            if number >= len(outputs[name]):
                raise ModelError(
                    f"op {node.name!r} reads output {number} of {name!r}, which has "
                    f"{len(outputs[name])}"
                )
            inputs.append(f"{name}:{number}")
            properties.append(outputs[name][number])
        bodies = shapes.bodies.get(node.name, {})
        return Op(
            name=node.name,
            info=OpInfo(
                op=node.op,
                inputs=tuple(properties),
                outputs=outputs[node.name],
                attributes=self._attributes(node),
            ),
            inputs=tuple(inputs),
            control_inputs=tuple(n[1:] for n in node.input if n.startswith("^")),
            device=node.device or decoded(attribute(node.attr, DEVICES_ATTRIBUTE).s),
            origin=origin,
            bodies={key: tuple(map(self._body_name, value)) for key, value in bodies.items()},
        )

    def _attributes(self, node: Any) -> dict[str, object]:
        """Attributes as plain values, those at their default included, tensors left out."""
        result = dict(self._default_attributes(node.op))
        for key, value in node.attr.items():
            plain = None if key in _DROPPED else plain_value(value)
            if plain is not None:
                result[key] = plain
        return result

    def _default_attributes(self, op_type: str) -> dict[str, object]:
        if op_type not in self.defaults:
            definition = self.definitions.find(op_type)
            plain = {
                attr.name: plain_value(attr.default_value)
                for attr in (definition.attr if definition else ())
                if attr.HasField("default_value")
            }
            self.defaults[op_type] = {k: v for k, v in plain.items() if v is not None}
        return self.defaults[op_type]


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


_PLAIN: Mapping[str, Callable[[Any], object]] = {
    "s": lambda value: _text(value.s),
    "i": lambda value: value.i,
    "f": lambda value: value.f,
    "b": lambda value: value.b,
    "type": lambda value: dtype_name(value.type),
    "shape": lambda value: shape_of(value.shape),
    "func": lambda value: value.func.name,
    "list": lambda value: _plain_list(value.list),
}


def plain_value(value: Any) -> object | None:
    """An AttrValue as a plain value; ``None`` for tensors and placeholders of attributes."""
    convert = _PLAIN.get(value.WhichOneof("value") or "")
    return convert(value) if convert else None


def _plain_list(values: Any) -> tuple[object, ...]:
    for found, convert in (
        (values.s, _text),
        (values.type, dtype_name),
        (values.shape, shape_of),
        (values.func, lambda function: function.name),
    ):
        if found:
            return tuple(convert(item) for item in found)
    return tuple(values.i) or tuple(values.f) or tuple(values.b)
