"""Nodes between a GraphDef and a FunctionDef, as protobufs.

A GraphDef says ``node:1``; a FunctionDef says ``node:output_name:0`` and calls its arguments by
their bare names (``tensorflow/core/framework/function.proto``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from placer.errors import ModelError
from placer.extraction.graph_defs.op_definitions import OpDefinitions, argument_length
from placer.graph.tensor_names import is_control, split_tensor


class BodyReferences:
    """Spells tensors of a GraphDef (``a``, ``a:1``, ``^a``) as inputs of a function body."""

    def __init__(self, nodes: Iterable[Any], definitions: OpDefinitions) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._definitions = definitions
        self._outputs: dict[str, list[str]] = {}

    def __call__(self, tensor: str) -> str:
        """The body's spelling; :class:`ModelError` if the producer's op type is unknown."""
        if is_control(tensor):
            return tensor
        producer, index = split_tensor(tensor)
        if producer not in self._outputs:
            self._outputs[producer] = self._output_names(self._nodes[producer])
        return f"{producer}:{self._outputs[producer][index]}"

    def _output_names(self, node: Any) -> list[str]:
        definition = self._definitions.find(node.op)
        if definition is None:
            raise ModelError(
                f"op type {node.op} of {node.name} is neither known to this TensorFlow nor "
                f"described in the model; import the package that registers it first"
            )
        return [
            f"{argument.name}:{position}"
            for argument in definition.output_arg
            for position in range(argument_length(argument, node.attr))
        ]


def function_attributes(node: Any) -> list[Any]:
    """Every NameAttrList of the node's attributes, in place (renaming one renames the call)."""
    found = []
    for key in sorted(node.attr):
        value = node.attr[key]
        kind = value.WhichOneof("value")
        if kind == "func":
            found.append(value.func)
        elif kind == "list":
            found.extend(value.list.func)
    return found


def rename_calls(nodes: Iterable[Any], new_names: Mapping[str, str]) -> None:
    """Replaces function names in op types and attributes, in place."""
    for node in nodes:
        node.op = new_names.get(node.op, node.op)
        for function in function_attributes(node):
            function.name = new_names.get(function.name, function.name)


def rename_functions(graph_def: Any, new_names: Mapping[str, str]) -> None:
    """Renames library functions and every reference to them, in place."""
    library = graph_def.library
    for function in library.function:
        function.signature.name = new_names.get(function.signature.name, function.signature.name)
        rename_calls(function.node_def, new_names)
    for gradient in library.gradient:
        gradient.function_name = new_names.get(gradient.function_name, gradient.function_name)
        gradient.gradient_func = new_names.get(gradient.gradient_func, gradient.gradient_func)
    rename_calls(graph_def.node, new_names)
