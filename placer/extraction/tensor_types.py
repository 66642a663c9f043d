"""Types of the inputs and outputs of a NodeDef, from its op definition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from placer.extraction.op_definitions import OpDefinitions, argument_length, attribute
from placer.extraction.raw_program import dtype_name

UNSIZED = frozenset({"string", "variant", "resource"})
"""Dtypes of tensors whose bytes no shape tells."""


@dataclass(frozen=True, slots=True)
class TensorType:
    """Dtype of one tensor (TensorFlow's name without ``_ref``) and whether it is a reference."""

    dtype: str
    is_ref: bool = False


def output_types(node: Any, definitions: OpDefinitions) -> tuple[TensorType, ...] | None:
    """The types of all outputs; ``None`` for an op type that nobody knows."""
    definition = definitions.find(node.op)
    if definition is None:
        return None
    return tuple(_types(definition.output_arg, node.attr, definition))


def input_types(node: Any, definitions: OpDefinitions) -> tuple[TensorType, ...] | None:
    """The types that a node expects of its data inputs; ``None`` for an unknown op type."""
    definition = definitions.find(node.op)
    if definition is None:
        return None
    return tuple(_types(definition.input_arg, node.attr, definition))


def _types(arguments: Any, attributes: Any, definition: Any) -> Iterator[TensorType]:
    for argument in arguments:
        if argument.type_list_attr:
            for number in attribute(attributes, argument.type_list_attr).list.type:
                yield _type(number, argument.is_ref)
            continue
        number = argument.type
        if argument.type_attr:
            number = _attribute_or_default(argument.type_attr, attributes, definition)
        count = argument_length(argument, attributes)
        yield from [_type(number, argument.is_ref)] * count


def _attribute_or_default(name: str, attributes: Any, definition: Any) -> int:
    if name in attributes:
        return int(attributes[name].type)
    return next((int(a.default_value.type) for a in definition.attr if a.name == name), 0)


_REF_OFFSET = 100


@cache
def _type(number: int, is_ref: bool) -> TensorType:
    return TensorType(dtype_name(number), is_ref or number > _REF_OFFSET)


def referenced_outputs(nodes: Any) -> Mapping[str, int]:
    """How many outputs of each op are read, as far as its readers tell."""
    count: dict[str, int] = {}
    for node in nodes:
        for reference in node.input:
            if not reference.startswith("^"):
                name, _, index = reference.partition(":")
                count[name] = max(count.get(name, 0), int(index or 0) + 1)
    return count


def _own_dtype(node: Any) -> str:
    """The only dtype among the attributes of an op; ``variant``, which has no size, otherwise."""
    found = {value.type for value in node.attr.values() if value.WhichOneof("value") == "type"}
    return dtype_name(found.pop()) if len(found) == 1 and 0 not in found else "variant"


class GraphTypes:
    """Output types of every node of a graph, guessed from the readers for unknown op types."""

    def __init__(self, nodes: Any, definitions: OpDefinitions) -> None:
        self.outputs: dict[str, tuple[TensorType, ...]] = {}
        self.unknown_ops: list[str] = []
        for node in nodes:
            types = output_types(node, definitions)
            if types is None:
                self.unknown_ops.append(node.name)
            else:
                self.outputs[node.name] = types
        if self.unknown_ops:
            self._guess(nodes, definitions)

    def _guess(self, nodes: Any, definitions: OpDefinitions) -> None:
        unknown = set(self.unknown_ops)
        count = referenced_outputs(nodes)
        guesses = {
            node.name: [TensorType(_own_dtype(node))] * count.get(node.name, 1)
            for node in nodes
            if node.name in unknown
        }
        for node in nodes:
            expected = input_types(node, definitions) or ()
            data = [reference for reference in node.input if not reference.startswith("^")]
            for reference, kind in zip(data, expected, strict=False):
                name, _, index = reference.partition(":")
                if name in unknown and kind.dtype:
                    guesses[name][int(index or 0)] = kind
        self.outputs.update({name: tuple(types) for name, types in guesses.items()})

    def of(self, reference: str) -> TensorType:
        """The type of the tensor that ``"op"`` or ``"op:1"`` names; dtype ``""`` if unknown."""
        name, _, index = reference.partition(":")
        types = self.outputs.get(name, ())
        number = int(index or 0)
        return types[number] if number < len(types) else TensorType("")
