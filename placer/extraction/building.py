"""The OpGraph of a flat program: plain types, without TensorFlow's protobufs."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from sys import intern
from typing import Any

from cost_models.op_info import OpInfo, TensorProperties
from placer.extraction.colocation import find_colocation_groups, find_colocation_hints
from placer.extraction.graph_defs.flat_nodes import ByContent
from placer.extraction.graph_defs.op_definitions import DEVICES_ATTRIBUTE, OpDefinitions, decoded
from placer.extraction.graph_defs.program import FlatProgram
from placer.extraction.graph_defs.protobufs import dtype_name, shape_of
from placer.extraction.graph_defs.tensor_states import TensorState
from placer.extraction.graph_defs.tensor_types import GraphTypes
from placer.extraction.shapes.shape_inference import BodyShapes, GraphShapes
from placer.graph.name_scopes import name_in_pieces, piece_of
from placer.graph.op_graph import Bodies, ColocationGroup, Op, OpGraph
from placer.graph.tensor_names import CONTROL, split_tensor
from placer.graph.walks import grouped

BodyName = tuple[str, tuple[TensorState, ...]]
_NO_BODIES: Bodies = {}

_DROPPED = frozenset({"_class", "_output_shapes", DEVICES_ATTRIBUTE})


class GraphBuilder:
    """Builds the OpGraph of a program and of the bodies in use, sharing equal values."""

    def __init__(self, definitions: OpDefinitions) -> None:
        self.definitions = definitions
        self.tensor = cache(TensorProperties)
        self.attributes: dict[tuple[object, ...], dict[str, object]] = {}
        self.attributes_of = ByContent(self._attributes)
        self.infos: dict[tuple[int, ...], OpInfo] = {}
        self.body_names: dict[BodyName, str] = {}
        self.functions: dict[str, OpGraph] = {}

    def build(self, program: FlatProgram, types: GraphTypes, shapes: GraphShapes) -> OpGraph:
        """The OpGraph of ``program`` with the given shapes."""
        ops = self._ops(program.graph_def.node, program.origins, shapes)
        groups = (*find_colocation_groups(program.graph_def, types), *_twins(ops))
        return OpGraph(
            ops=ops,
            feeds=(
                *(item.op for item in program.inputs),
                *program.captured_constants,
            ),
            fetches=tuple(dict.fromkeys(tensor for _, tensor in program.outputs)),
            targets=program.targets,
            functions=dict(self.functions),
            variables=program.variables,
            colocation_groups=groups,
            colocation_hints=find_colocation_hints(program.graph_def, groups, program.contents),
            stateful_types=frozenset(filter(self._is_stateful, types.of_type)),
            fingerprint=program.fingerprint,
        )

    def _is_stateful(self, op_type: str) -> bool:
        definition = self.definitions.find(op_type)
        if definition is None or definition.is_stateful:
            return True
        return any(argument.is_ref for argument in definition.input_arg)

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
        return OpGraph(
            ops=self._ops(body.graph_def.node, body.origins, shapes),
            feeds=body.arguments,
            fetches=body.outputs,
            targets=body.targets,
            colocation_groups=find_colocation_groups(body.graph_def, shapes.types),
        )

    def _ops(
        self, nodes: Sequence[Any], own_names: Iterable[str], shapes: GraphShapes
    ) -> dict[str, Op]:
        """The ops by name, in the order of ``nodes``; every name is one object, pickled once."""
        bodies: dict[str, Bodies] = {
            op: {key: tuple(map(self._body_name, analysed)) for key, analysed in found.items()}
            for op, found in shapes.bodies.items()
        }
        types, contents = shapes.types, shapes.types.contents
        names = {name: name for name in own_names}
        values = {**shapes.values, **dict(_neutral_values(contents.named(nodes), names))}
        tensors, outputs = _by_spelling(types.outputs), self._outputs(shapes, values)
        properties = {
            f"{op}:{index}": found
            for op, known in outputs.items()
            for index, found in enumerate(known)
        }
        devices = ByContent(_device)
        ops = {}
        for spelt, node in contents.named(nodes):
            name, given = names[spelt], contents.inputs_of(spelt, node)
            content = contents.get(name)
            read = tuple([tensors[text] for text in given if text[0] != CONTROL])
            waits = len(read) < len(given)
            known = tuple([properties[tensor] for tensor in read])
            ops[name] = Op(
                name=name,
                info=self._info(node, content, known, outputs[name]),
                inputs=read,
                control_inputs=tuple([names[text[1:]] for text in given if text[0] == CONTROL])
                if waits
                else (),
                device=devices.of(node, content),
                bodies=bodies.get(name, _NO_BODIES),
            )
        return ops

    def _outputs(
        self, shapes: GraphShapes, known_values: Mapping[str, tuple[int | float, ...]]
    ) -> dict[str, tuple[TensorProperties, ...]]:
        """The outputs of every op; those that are alike have one tuple."""
        values: dict[str, dict[int, tuple[int | float, ...]]] = {}
        for tensor, value in known_values.items():
            name, index = split_tensor(tensor)
            values.setdefault(name, {})[index] = value
        alike: dict[tuple[object, ...], tuple[TensorProperties, ...]] = {}
        found = {}
        for name, known in shapes.shapes.items():
            kinds, valued = shapes.types.outputs[name], values.get(name)
            key = kinds, known, tuple(valued.items()) if valued else None
            if key not in alike:
                alike[key] = tuple(
                    self.tensor(
                        dtype=kind.dtype, shape=shape, value=valued.get(index) if valued else None
                    )
                    for index, (kind, shape) in enumerate(zip(kinds, known, strict=True))
                )
            found[name] = alike[key]
        return found

    def _info(
        self,
        node: Any,
        content: bytes | None,
        inputs: tuple[TensorProperties, ...],
        outputs: tuple[TensorProperties, ...],
    ) -> OpInfo:
        """Returns a node as cost rules see it; ops that are alike in it share one object."""
        attributes = self.attributes_of.of(node, content)
        alike = id(attributes), id(outputs), *map(id, inputs)
        if alike not in self.infos:
            self.infos[alike] = OpInfo(
                op=node.op, inputs=inputs, outputs=outputs, attributes=attributes
            )
        return self.infos[alike]

    def _attributes(self, node: Any) -> dict[str, object]:
        """Attributes as plain values, those at their default included, tensors left out."""
        written = {key: value for key, value in node.attr.items() if key not in _DROPPED}
        alike = node.op, *((key, value.SerializeToString()) for key, value in written.items())
        if alike not in self.attributes:
            values = chain(self.definitions.defaults(node.op).items(), written.items())
            plain = ((key, plain_value(value)) for key, value in values)
            self.attributes[alike] = {
                intern(key): value for key, value in plain if value is not None
            }
        return self.attributes[alike]


def _by_spelling(outputs: Mapping[str, Sequence[object]]) -> dict[str, str]:
    """The full name of every tensor, one object each, by both its names: output 0 of an op may be
    called as the op is."""
    found: dict[str, str] = {}
    for op, given in outputs.items():
        for index in range(len(given)):
            tensor = f"{op}:{index}"
            found[tensor] = tensor
            if not index:
                found[op] = tensor
    return found


def _twins(ops: Mapping[str, Op]) -> Iterator[ColocationGroup]:
    """The copies of each op in the pieces of a batch: they share a device, unless they ask for
    different ones."""
    copies = (op for op in ops.values() if piece_of(op.name) is not None)
    found = grouped(((name_in_pieces(op.name), op.op_type, op.device), op.name) for op in copies)
    for alike in found.values():
        if len(alike) > 1:
            yield ColocationGroup(ops=tuple(alike), reasons=("pieces",))


def _device(node: Any) -> str:
    """The device string of a node, or the devices of which it asks for one, ``""`` for none."""
    if node.device or DEVICES_ATTRIBUTE not in node.attr:
        return str(node.device)
    return decoded(node.attr[DEVICES_ATTRIBUTE].s)


_PLAIN: Mapping[str, Callable[[Any], object]] = {
    "s": lambda value: value.s.decode(errors="replace"),
    "i": lambda value: value.i,
    "f": lambda value: value.f,
    "b": lambda value: value.b,
    "type": lambda value: dtype_name(value.type),
    "shape": lambda value: shape_of(value.shape),
    "func": lambda value: value.func.name,
    "list": lambda value: _plain_list(value.list),
}


_NEUTRAL = (0.0, 1.0)
"""Values of floating scalars that are kept: a sum or product with them is taken out."""


def _neutral_values(
    nodes: Iterable[tuple[str, Any]], names: Mapping[str, str]
) -> Iterator[tuple[str, tuple[float, ...]]]:
    """Yields the constants that are a floating scalar 0 or 1, by tensor."""
    from tensorflow.python.framework.tensor_util import MakeNdarray

    for spelt, node in nodes:
        if node.op != "Const":
            continue
        tensor = node.attr["value"].tensor
        if not tensor.tensor_shape.dim and "float" in dtype_name(tensor.dtype):
            value = float(MakeNdarray(tensor))
            if value in _NEUTRAL:
                yield f"{names[spelt]}:0", (value,)


def plain_value(value: Any) -> object | None:
    """An AttrValue as a plain value; ``None`` for tensors and placeholders of attributes."""
    convert = _PLAIN.get(value.WhichOneof("value") or "")
    return convert(value) if convert else None


def _plain_list(values: Any) -> tuple[object, ...]:
    for found, convert in (
        (values.s, lambda text: text.decode(errors="replace")),
        (values.type, dtype_name),
        (values.shape, shape_of),
        (values.func, lambda function: function.name),
    ):
        if found:
            return tuple(convert(item) for item in found)
    return tuple(values.i) or tuple(values.f) or tuple(values.b)
