"""Bodies of functional control flow as flat graphs of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from placer.errors import ModelError
from placer.extraction.flattening.inlining import inline_calls
from placer.extraction.graph_defs.node_checks import check_nodes
from placer.extraction.graph_defs.op_definitions import (
    OpDefinitions,
    called_functions,
    output_number,
)
from placer.extraction.graph_defs.protobufs import OpDef
from placer.graph.op_types import BODY_ATTRIBUTES, READS
from placer.graph.tensor_names import is_control


def body_functions(node: Any) -> dict[str, tuple[str, ...]]:
    """The function names of a control flow op by attribute; empty for any other op."""
    attributes = BODY_ATTRIBUTES.get(node.op)
    if attributes is None:
        return {}
    return {
        key: tuple(found.name for attribute, found in called_functions(node) if attribute == key)
        for key in attributes
    }


def check_bodies(
    node: Any, input_count: int, output_count: int, signatures: Mapping[str, OpDef]
) -> None:
    """Raises :class:`ModelError` unless the functions of a control flow op take and give as many
    tensors as it does.

    ``signatures`` are the OpDefs of the library by function name.
    """
    for key, names in body_functions(node).items():
        if not names:
            raise ModelError(f"op {node.name!r} of type {node.op} has no function for {key!r}")
        for name in names:
            if name not in signatures:
                raise ModelError(f"op {node.name!r} calls function {name!r}, which is not there")
            found = len(signatures[name].input_arg), len(signatures[name].output_arg)
            wanted = {
                "cond": (input_count, 1),
                "body": (input_count, output_count),
            }.get(key, (input_count - 1, output_count))
            if node.op == "For":
                wanted = input_count - 2, output_count
            if found != wanted:
                raise ModelError(
                    f"op {node.name!r} of type {node.op} gives {wanted[0]} tensors and wants "
                    f"{wanted[1]}, but function {name!r} takes {found[0]} and gives {found[1]}"
                )


@dataclass(frozen=True, kw_only=True)
class BodyGraph:
    """A function as a flat GraphDef: its arguments are placeholders, in order.

    ``arguments`` are op names, ``outputs`` tensor names, ``targets`` ops that run for their side
    effects; ``origins`` is (function, node) by flat name, ``contents`` as of a
    :class:`~placer.extraction.graph_defs.program.FlatProgram`.
    """

    graph_def: Any
    contents: Mapping[str, bytes | None]
    arguments: tuple[str, ...]
    outputs: tuple[str, ...]
    targets: tuple[str, ...]
    origins: Mapping[str, tuple[str, str]]


def flatten_body(name: str, library: Any, definitions: OpDefinitions) -> BodyGraph:
    """The body of the library function ``name``, nested calls inlined.

    Raises :class:`ModelError` if the library has no such function.
    """
    function = next((f for f in library.function if f.signature.name == name), None)
    if function is None:
        raise ModelError(f"control flow calls function {name!r}, which is not in the file")
    source = _FunctionSource(function, definitions)
    graph_def = source.as_graph()
    graph_def.library.CopyFrom(library)
    outputs = source.outputs()
    inlined = inline_calls(
        graph_def,
        outputs=[*outputs, *(f"{argument}:0" for argument in source.arguments)],
        targets=source.effects(),
        definitions=definitions,
    )
    check_nodes(inlined.graph_def.node, definitions)
    return BodyGraph(
        graph_def=inlined.graph_def,
        contents=inlined.contents,
        arguments=source.arguments,
        outputs=inlined.outputs[: len(outputs)],
        targets=inlined.targets,
        origins={flat: (owner or name, node) for flat, (owner, node) in inlined.origins.items()},
    )


class _FunctionSource:
    """A FunctionDef read in the syntax of a main graph."""

    def __init__(self, function: Any, definitions: OpDefinitions) -> None:
        self.function = function
        self.definitions = definitions
        self.nodes = {node.name: node for node in function.node_def}
        self.arguments = tuple(argument.name for argument in function.signature.input_arg)

    def as_graph(self) -> Any:
        from tensorflow.core.framework import graph_pb2

        graph_def = graph_pb2.GraphDef()
        for argument in self.function.signature.input_arg:
            node = graph_def.node.add(name=argument.name, op="Placeholder")
            node.attr["dtype"].type = argument.type
        for source in self.function.node_def:
            node = graph_def.node.add()
            node.CopyFrom(source)
            node.input[:] = [self.reference(name) for name in source.input]
        return graph_def

    def outputs(self) -> list[str]:
        names = [argument.name for argument in self.function.signature.output_arg]
        return [self.reference(self.function.ret[name]) for name in names]

    def effects(self) -> list[str]:
        names = dict.fromkeys(sorted(self.function.control_ret.values()))
        return [n for n in names if n in self.nodes and self.nodes[n].op not in READS]

    def reference(self, reference: str) -> str:
        """``node:output_name:i`` as ``node:i``."""
        if is_control(reference) or ":" not in reference:
            return reference
        name, output, *rest = reference.split(":")
        if name not in self.nodes:
            return name
        offset = self.definitions.output_offset(self.nodes[name], output)
        return f"{name}:{offset + (output_number(rest[0], reference) if rest else 0)}"
