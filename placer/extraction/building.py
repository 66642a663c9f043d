"""The OpGraph of a flat program: plain types, without TensorFlow's protobufs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cost_models.op_info import OpInfo, Shape, TensorProperties
from placer.errors import ModelError
from placer.extraction.colocation import find_colocation_groups
from placer.extraction.op_definitions import (
    DEVICES_ATTRIBUTE,
    OpDefinitions,
    decoded,
)
from placer.extraction.program import FlatProgram
from placer.extraction.raw_program import dtype_name, shape_of
from placer.extraction.shapes import BodyShapes, GraphShapes
from placer.extraction.tensor_states import TensorState
from placer.graph.op_graph import ColocationGroup, Op, OpGraph

BodyName = tuple[str, tuple[TensorState, ...]]

_DROPPED = frozenset({"_class", "_output_shapes", DEVICES_ATTRIBUTE})

_NO_BODIES: Mapping[str, tuple[str, ...]] = {}


class GraphBuilder:
    """Builds the OpGraph of a program and of the bodies in use, sharing equal values."""

    def __init__(self, definitions: OpDefinitions) -> None:
        self.definitions = definitions
        self.properties: dict[tuple[str, Shape, Any], TensorProperties] = {}
        self.attributes: dict[tuple[str | bytes, ...], dict[str, object]] = {}
        self.alike: dict[bytes, tuple[dict[str, object], str]] = {}
        self.infos: dict[tuple[int, ...], OpInfo] = {}
        self.defaults: dict[str, dict[str, object]] = {}
        self.body_names: dict[BodyName, str] = {}
        self.functions: dict[str, OpGraph] = {}

    def build(
        self, program: FlatProgram, shapes: GraphShapes, groups: Iterable[ColocationGroup]
    ) -> OpGraph:
        """The OpGraph of ``program`` with the given shapes and colocation groups."""
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
        body = analysed.body
        return OpGraph(
            ops=self._ops(body.graph_def, analysed.shapes, body.origins),
            feeds=body.arguments,
            fetches=body.outputs,
            targets=body.targets,
            colocation_groups=find_colocation_groups(body.graph_def, analysed.shapes.types),
        )

    def _ops(
        self, graph_def: Any, shapes: GraphShapes, origins: Mapping[str, tuple[str, str]]
    ) -> dict[str, Op]:
        names = {name: name for name in origins}  # every name is one object: it is pickled once
        outputs = self._outputs(shapes)
        tensors = _Tensors(outputs)
        return {
            name: self._op(name, node, outputs[name], tensors, names, shapes, origins[name])
            for node in graph_def.node
            for name in (names[node.name],)
        }

    def _outputs(self, shapes: GraphShapes) -> dict[str, tuple[TensorProperties, ...]]:
        """The outputs of every op; those that are alike have one tuple."""
        values: dict[str, dict[int, tuple[int, ...]]] = {}
        for tensor, value in shapes.values.items():
            name, _, index = tensor.rpartition(":")
            values.setdefault(name, {})[int(index)] = value
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

    def _op(
        self,
        name: str,
        node: Any,
        outputs: tuple[TensorProperties, ...],
        tensors: _Tensors,
        names: Mapping[str, str],
        shapes: GraphShapes,
        origin: tuple[str, str],
    ) -> Op:
        references = tuple(node.input)
        controls: tuple[str, ...] = ()
        if references and references[-1].startswith("^"):  # control inputs come last
            data = tuple([text for text in references if not text.startswith("^")])
            controls = tuple([names[text[1:]] for text in references if text.startswith("^")])
            references = data
        try:
            inputs = tuple(map(tensors.names.__getitem__, references))
        except KeyError as error:
            raise ModelError(f"op {name!r} reads {error}, which is not there") from error
        properties = tuple(map(tensors.properties.__getitem__, inputs))
        bodies = shapes.bodies.get(name)
        attributes, device = self._attributes_and_device(node, shapes.types.contents.get(name))
        return Op(
            name=name,
            info=self._info(node, attributes, properties, outputs),
            inputs=inputs,
            control_inputs=controls,
            device=device,
            origin=origin,
            bodies={key: tuple(map(self._body_name, value)) for key, value in bodies.items()}
            if bodies
            else _NO_BODIES,
        )

    def _attributes_and_device(
        self, node: Any, content: bytes | None
    ) -> tuple[dict[str, object], str]:
        """The attributes, and the device that is asked for; found once for all that are alike."""
        found = self.alike.get(content) if content is not None else None
        if found is None:
            found = self._attributes(node), node.device or _asked_devices(node.attr)
            if content is not None:
                self.alike[content] = found
        return found

    def _info(
        self,
        node: Any,
        attributes: dict[str, object],
        inputs: tuple[TensorProperties, ...],
        outputs: tuple[TensorProperties, ...],
    ) -> OpInfo:
        """What cost rules see of a node; ops that are alike in all of it have one object."""
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
            definition = self.definitions.find(op_type)
            plain = {
                attr.name: plain_value(attr.default_value)
                for attr in (definition.attr if definition else ())
                if attr.HasField("default_value")
            }
            self.defaults[op_type] = {k: v for k, v in plain.items() if v is not None}
        return self.defaults[op_type]


class _Tensors:
    """The tensors of a graph: their names by what reads them (``op`` or ``op:0``), each one
    object, and their properties."""

    def __init__(self, outputs: Mapping[str, tuple[TensorProperties, ...]]) -> None:
        self.names: dict[str, str] = {}
        self.properties: dict[str, TensorProperties] = {}
        for name, given in outputs.items():
            for number, properties in enumerate(given):
                tensor = f"{name}:{number}"
                self.names[tensor] = tensor
                self.properties[tensor] = properties
                if not number:
                    self.names[name] = tensor


def _asked_devices(attributes: Any) -> str:
    """The devices of which an op asks for one, ``""`` for none."""
    if DEVICES_ATTRIBUTE not in attributes:
        return ""
    return decoded(attributes[DEVICES_ATTRIBUTE].s)


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
