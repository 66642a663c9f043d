"""Types of the inputs and outputs of a NodeDef, from its op definition."""

from collections.abc import Iterator, Set
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

from placer.extraction.graph_defs.flat_nodes import NO_CONTENTS, ByContent, Contents
from placer.extraction.graph_defs.op_definitions import OpDefinitions, argument_length, attribute
from placer.extraction.graph_defs.protobufs import dtype_name
from placer.graph.tensor_names import data_inputs, split_tensor

UNSIZED = frozenset({"string", "variant", "resource"})
"""Dtypes of tensors whose bytes follow from no shape."""


@dataclass(frozen=True, slots=True)
class TensorType:
    """Dtype of one tensor (TensorFlow's name without ``_ref``) and whether it is a reference."""

    dtype: str
    is_ref: bool = False


def output_types(node: Any, definitions: OpDefinitions) -> tuple[TensorType, ...] | None:
    """The types of all outputs; ``None`` for an op type that nobody knows."""
    definition = definitions.find(node.op)
    return definition and tuple(_types(definition.output_arg, node.attr, definition))


def input_types(node: Any, definitions: OpDefinitions) -> tuple[TensorType, ...] | None:
    """The types that a node expects of its data inputs; ``None`` for an unknown op type."""
    definition = definitions.find(node.op)
    return definition and tuple(_types(definition.input_arg, node.attr, definition))


def _types(arguments: Any, attributes: Any, definition: Any) -> Iterator[TensorType]:
    for argument in arguments:
        if argument.type_list_attr:
            for number in attribute(attributes, argument.type_list_attr).list.type:
                yield _type(number, argument.is_ref)
            continue
        number, name = argument.type, argument.type_attr
        if name and name in attributes:
            number = int(attributes[name].type)
        elif name:
            defaults = (int(a.default_value.type) for a in definition.attr if a.name == name)
            number = next(defaults, 0)
        count = argument_length(argument, attributes)
        yield from [_type(number, argument.is_ref)] * count


_REF_OFFSET = 100


@cache
def _type(number: int, is_ref: bool) -> TensorType:
    return TensorType(dtype_name(number), is_ref or number > _REF_OFFSET)


def _own_dtype(node: Any) -> str:
    """The only dtype among the attributes of an op; ``variant``, which has no size, otherwise."""
    found = {value.type for value in node.attr.values() if value.WhichOneof("value") == "type"}
    return dtype_name(found.pop()) if len(found) == 1 and 0 not in found else "variant"


class GraphTypes:
    """Types of every node of a graph: ``outputs``, guessed from the readers for unknown op types,
    and what the node expects as ``inputs``, ``None`` for those.

    ``of_type`` has the numbers of the nodes of each op type that there is, ``handle_readers`` are
    the nodes that may read a handle or a reference.  Nodes with equal ``contents`` (by name) are
    alike.
    """

    def __init__(
        self,
        nodes: Any,
        definitions: OpDefinitions,
        contents: Contents = NO_CONTENTS,
    ) -> None:
        self.definitions = definitions
        self.contents = contents
        self.nodes = nodes
        self.of_type: dict[str, list[int]] = {}
        self.inputs: dict[str, tuple[TensorType, ...] | None] = {}
        self.outputs: dict[str, tuple[TensorType, ...]] = {}
        self.unknown_ops: list[str] = []
        self.handle_readers: list[Any] = []
        signatures = ByContent(self._signature)
        for number, (name, node) in enumerate(contents.named(nodes)):
            signature = signatures.of(node, contents.get(name))
            op_type, self.inputs[name], outputs, reads_handles = signature
            self.of_type.setdefault(op_type, []).append(number)
            if reads_handles:
                self.handle_readers.append(node)
            if outputs is None:
                self.unknown_ops.append(name)
            else:
                self.outputs[name] = outputs
        if self.unknown_ops:
            self._guess(nodes)

    def _signature(
        self, node: Any
    ) -> tuple[str, tuple[TensorType, ...] | None, tuple[TensorType, ...] | None, bool]:
        """Op type, types of inputs and outputs, and whether an input may be a handle."""
        inputs = input_types(node, self.definitions)
        reads_handles = inputs is None or any(i.is_ref or i.dtype in UNSIZED for i in inputs)
        outputs = output_types(node, self.definitions)
        return node.op, inputs, outputs, reads_handles  # old ones are strings

    def _guess(self, nodes: Any) -> None:
        """The outputs of unknown op types: as many as are read, of the dtype that readers want."""
        unknown = set(self.unknown_ops)
        count = dict.fromkeys(unknown, 1)
        for node in nodes:
            for name, index in map(split_tensor, data_inputs(node.input)):
                if name in unknown:
                    count[name] = max(count[name], index + 1)
        guesses = {
            node.name: [TensorType(_own_dtype(node))] * count[node.name]
            for node in nodes
            if node.name in unknown
        }
        for node in nodes:
            expected = self.inputs[node.name] or ()
            for reference, kind in zip(data_inputs(node.input), expected, strict=False):
                name, index = split_tensor(reference)
                if name in unknown and kind.dtype:
                    guesses[name][index] = kind
        self.outputs.update({name: tuple(types) for name, types in guesses.items()})

    def nodes_of(self, op_types: Set[str]) -> list[Any]:
        """The nodes of these op types, in graph order."""
        found = [self.of_type[op_type] for op_type in self.of_type.keys() & op_types]
        return [self.nodes[number] for number in sorted(chain.from_iterable(found))]

    def of(self, reference: str) -> TensorType:
        """The type of the tensor that ``"op"`` or ``"op:1"`` names; dtype ``""`` if unknown."""
        name, index = split_tensor(reference)
        types = self.outputs.get(name, ())
        return types[index] if index < len(types) else TensorType("")
