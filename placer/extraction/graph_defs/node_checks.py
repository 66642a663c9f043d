"""Are the ops of a graph what their op definitions say?

Everything behind the reader may then count on it: an op has all its inputs, of the right dtypes,
and every attribute is of the declared kind.  TensorFlow checks the same when it imports a graph
(``ValidateNodeDef`` in ``core/framework/node_def_util.cc``), but one op at a time, and it stops at
the first.  Ops that neither TensorFlow nor the file defines are left as they are.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from placer.errors import ModelError
from placer.extraction.graph_defs.flat_nodes import NO_CONTENTS, ByContent, Contents
from placer.extraction.graph_defs.op_definitions import (
    OpDefinitions,
    argument_length,
    output_number,
)
from placer.extraction.graph_defs.protobufs import NodeDef
from placer.extraction.graph_defs.tensor_types import GraphTypes
from placer.graph.tensor_names import CONTROL, split_tensor

_KINDS: Mapping[str, str] = {
    "int": "i",
    "float": "f",
    "bool": "b",
    "string": "s",
    "type": "type",
    "shape": "shape",
    "tensor": "tensor",
    "func": "func",
}
"""The field of an AttrValue by the kind that an ``OpDef.AttrDef`` declares; else ``list``."""

Declared = tuple[tuple[str, str, bool], ...]
"""(name, field of the AttrValue, whether it must be given) of every attribute of an op type."""


def check_nodes(
    nodes: Iterable[Any],
    definitions: OpDefinitions,
    contents: Contents = NO_CONTENTS,
) -> None:
    """Raises :class:`ModelError` unless every node has the attributes and the number of inputs that
    its type declares; it names the op and what is wrong with it.  Nodes with equal ``contents`` (by
    name) have equal attributes, which are looked at once."""
    wanted_inputs = ByContent(_Declarations(definitions).inputs_of)
    for name, node in contents.named(nodes):
        wanted = wanted_inputs.of(node, contents.get(name))
        if wanted is None:
            continue
        count = sum([reference[:1] != CONTROL for reference in contents.inputs_of(name, node)])
        if count != wanted:
            raise _malformed(node, f"has {count} inputs, its definition has {wanted}")


class _Declarations:
    """Declarations of the op types met so far: their attributes, and the inputs that are lists."""

    def __init__(self, definitions: OpDefinitions) -> None:
        self.definitions = definitions
        self.declared: dict[str, Declared] = {}
        self.lists: dict[str, list[Any]] = {}

    def inputs_of(self, node: Any) -> int | None:
        """How many inputs a node must have by its attributes, which are checked; ``None`` for an
        unknown op type."""
        op_type = node.op
        definition = self.definitions.find(op_type)
        if definition is None:
            return None
        if op_type not in self.declared:
            self._add(op_type, definition)
        attributes = node.attr
        for name, kind, required in self.declared[op_type]:
            if name in attributes:
                value = attributes[name]
                if value.WhichOneof("value") != kind or kind in ("type", "list"):
                    _check_attribute(node, name, value, kind)
            elif required:
                raise _malformed(node, f"lacks the attribute {name!r}")
        lists = self.lists[op_type]
        lengths = [argument_length(argument, attributes) for argument in lists]
        return len(definition.input_arg) - len(lists) + sum(lengths)

    def _add(self, op_type: str, definition: Any) -> None:
        self.declared[op_type] = tuple(
            (attr.name, _KINDS.get(attr.type, "list"), not attr.HasField("default_value"))
            for attr in definition.attr
        )
        arguments = definition.input_arg
        self.lists[op_type] = [a for a in arguments if a.number_attr or a.type_list_attr]


def check_references(nodes: Mapping[str, NodeDef], references: Mapping[str, Sequence[str]]) -> None:
    """Raises :class:`ModelError` unless every input in a main graph, whose ``nodes`` and
    ``references`` are given by name, is spelt ``op``, ``op:1`` or ``^op``."""
    for node_name, found in references.items():
        for reference in found:
            if reference in nodes:
                continue  # as most are
            name, colon, index = reference.removeprefix("^").partition(":")
            if colon:
                output_number(index, reference)
            if not name or (colon and reference.startswith("^")):
                raise _malformed(
                    nodes[node_name], f"has the input {reference!r}, which names no tensor"
                )


def check_dtypes(nodes: Iterable[Any], types: GraphTypes) -> None:
    """Raises :class:`ModelError`, naming the reader, unless every input of a flat graph exists and
    has the dtype that its reader declares."""
    dtypes = {name: kinds[0].dtype for name, kinds in types.outputs.items() if kinds}
    contents = types.contents
    for name, node in contents.named(nodes):
        expected = types.inputs[name]
        number = 0
        for reference in contents.inputs_of(name, node):
            found = dtypes.get(reference)
            if found is None:
                if reference[:1] == CONTROL:
                    continue
                found = dtypes[reference] = _dtype(node, reference, types)
            if expected is not None and found != expected[number].dtype:
                raise _malformed(
                    node,
                    f"reads {reference!r} of dtype {found} as input {number} of "
                    f"{expected[number].dtype}",
                )
            number += 1


def _dtype(node: Any, reference: str, types: GraphTypes) -> str:
    """The dtype of the tensor that ``node`` reads."""
    name, index = split_tensor(reference)
    outputs = types.outputs[name]
    if index >= len(outputs):
        raise _malformed(node, f"reads {reference!r}, but {name!r} has {len(outputs)}")
    return outputs[index].dtype


def check_tensors(references: Iterable[str], types: GraphTypes) -> None:
    """Raises :class:`ModelError` unless the flat graph has these tensors."""
    for reference in references:
        name, index = split_tensor(reference)
        count = len(types.outputs[name])
        if index >= count:
            raise ModelError(f"{reference!r} is asked for, but {name!r} has {count} outputs")


def _check_attribute(node: Any, name: str, value: Any, kind: str) -> None:
    found = value.WhichOneof("value")
    if found is not None and found != kind:
        raise _malformed(node, f"has {found!r} for the attribute {name!r}, not {kind!r}")
    if (kind == "type" and not value.type) or (found == "list" and 0 in value.list.type):
        raise _malformed(node, f"has no data type for the attribute {name!r}")


def _malformed(node: Any, what: str) -> ModelError:
    return ModelError(
        f"op {node.name!r} of type {node.op} {what}: the file is damaged, or written by a tool "
        "that does not follow TensorFlow's op definitions"
    )
