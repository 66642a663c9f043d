"""The OpGraph of a flat program: plain types, without TensorFlow's protobufs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cost_models.op_info import OpInfo, Shape, TensorProperties
from placer.extraction.colocation import find_colocation_groups
from placer.extraction.graph_defs.flat_nodes import Alike
from placer.extraction.graph_defs.op_definitions import DEVICES_ATTRIBUTE, OpDefinitions
from placer.extraction.graph_defs.program import FlatProgram
from placer.extraction.graph_defs.protobufs import dtype_name, shape_of
from placer.extraction.graph_defs.tensor_states import TensorState
from placer.extraction.op_columns import Bodies, ClosedOps, Parcel, find_structure, open_ops
from placer.extraction.shapes.shape_inference import BodyShapes, GraphShapes
from placer.graph.op_graph import ColocationGroup, OpGraph
from placer.graph.tensor_names import split_tensor

BodyName = tuple[str, tuple[TensorState, ...]]

_DROPPED = frozenset({"_class", "_output_shapes", DEVICES_ATTRIBUTE})


class GraphBuilder:
    """Builds the OpGraph of a program and of the bodies in use, sharing equal values."""

    def __init__(self, definitions: OpDefinitions) -> None:
        self.definitions = definitions
        self.properties: dict[tuple[str, Shape, Any], TensorProperties] = {}
        self.attributes: dict[tuple[str | bytes, ...], dict[str, object]] = {}
        self.attributes_of = Alike(self._attributes)
        self.infos: dict[tuple[int, ...], OpInfo] = {}
        self.defaults: dict[str, dict[str, object]] = {}
        self.body_names: dict[BodyName, str] = {}
        self.functions: dict[str, OpGraph] = {}

    def build(
        self,
        program: FlatProgram,
        shapes: GraphShapes,
        structure: Parcel,
        groups: Iterable[ColocationGroup],
    ) -> OpGraph:
        """The OpGraph of ``program`` with the given shapes, structure and colocation groups."""
        bodies = self._bodies(shapes)
        infos = self._infos(program.graph_def.node, shapes)
        make_ops = ClosedOps if structure.is_closed else open_ops
        return OpGraph(
            ops=make_ops(structure, infos, bodies),
            feeds=(
                *(item.op for item in program.inputs),
                *program.captured_constants,
            ),
            fetches=tuple(dict.fromkeys(tensor for _, tensor in program.outputs)),
            targets=program.targets,
            functions=dict(self.functions),
            variables=program.variables,
            colocation_groups=(
                *groups,
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
        body, shapes = analysed.body, analysed.shapes
        nodes = body.graph_def.node
        structure = find_structure(nodes, shapes.types.contents, body.origins)
        bodies = self._bodies(shapes)
        return OpGraph(
            ops=structure.ops(self._infos(nodes, shapes), bodies),
            feeds=body.arguments,
            fetches=body.outputs,
            targets=body.targets,
            colocation_groups=find_colocation_groups(body.graph_def, shapes.types),
        )

    def _infos(self, nodes: Iterable[Any], shapes: GraphShapes) -> list[OpInfo]:
        """What cost rules see of the nodes."""
        outputs = self._outputs(shapes)
        read: dict[str, TensorProperties] = {}
        for name, given in outputs.items():
            for number, properties in enumerate(given):
                read[f"{name}:{number}"] = properties
            if given:
                read[name] = given[0]
        contents = shapes.types.contents
        found = []
        for node in nodes:
            name = node.name
            inputs = tuple([read[text] for text in node.input if text[0] != "^"])
            found.append(self._info(node, contents.get(name), inputs, outputs[name]))
        return found

    def _bodies(self, shapes: GraphShapes) -> dict[str, Bodies]:
        """The names of the bodies by op."""
        return {
            op: {key: tuple(map(self._body_name, analysed)) for key, analysed in bodies.items()}
            for op, bodies in shapes.bodies.items()
        }

    def _outputs(self, shapes: GraphShapes) -> dict[str, tuple[TensorProperties, ...]]:
        """The outputs of every op; those that are alike have one tuple."""
        values: dict[str, dict[int, tuple[int, ...]]] = {}
        for tensor, value in shapes.values.items():
            name, index = split_tensor(tensor)
            values.setdefault(name, {})[index] = value
        alike: dict[tuple[object, ...], tuple[TensorProperties, ...]] = {}
        found = {}
        for name, known in shapes.shapes.items():
            kinds, valued = shapes.types.outputs[name], values.get(name)
            key = kinds, known, tuple(valued.items()) if valued else None
            if key not in alike:
                alike[key] = tuple(
                    self._tensor(kind.dtype, shape, valued.get(index) if valued else None)
                    for index, (kind, shape) in enumerate(zip(kinds, known, strict=True))
                )
            found[name] = alike[key]
        return found

    def _tensor(self, dtype: str, shape: Shape, value: Any) -> TensorProperties:
        key = dtype, shape, value
        if key not in self.properties:
            self.properties[key] = TensorProperties(dtype=dtype, shape=shape, value=value)
        return self.properties[key]

    def _info(
        self,
        node: Any,
        content: bytes | None,
        inputs: tuple[TensorProperties, ...],
        outputs: tuple[TensorProperties, ...],
    ) -> OpInfo:
        """What cost rules see of a node; ops that are alike in all of it have one object."""
        attributes = self.attributes_of.of(node, content)
        alike = id(attributes), id(outputs), *map(id, inputs)
        if alike not in self.infos:
            self.infos[alike] = OpInfo(
                op=node.op, inputs=inputs, outputs=outputs, attributes=attributes
            )
        return self.infos[alike]

    def _attributes(self, node: Any) -> dict[str, object]:
        """Attributes as plain values, those at their default included, tensors left out."""
        content: list[str | bytes] = [node.op]
        for key, value in node.attr.items():
            if key not in _DROPPED:
                content += (key, value.SerializeToString())
        alike = tuple(content)
        if alike not in self.attributes:
            self.attributes[alike] = self._plain_attributes(node)
        return self.attributes[alike]

    def _plain_attributes(self, node: Any) -> dict[str, object]:
        result = dict(self._default_attributes(node.op))
        for key, value in node.attr.items():
            plain = None if key in _DROPPED else plain_value(value)
            if plain is not None:
                result[key] = plain
        return result

    def _default_attributes(self, op_type: str) -> dict[str, object]:
        if op_type not in self.defaults:
            defaults = self.definitions.defaults(op_type)
            plain = {key: plain_value(value) for key, value in defaults.items()}
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
