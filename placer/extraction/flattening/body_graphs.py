"""Bodies of functional control flow as flat graphs of their own."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from placer.errors import ModelError
from placer.extraction.flattening.inlining import InlinedGraph, inline_calls
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


def flatten_body(name: str, library: Any, definitions: OpDefinitions) -> InlinedGraph:
    """The body of the library function ``name``, nested calls inlined; its arguments are
    placeholders.

    Raises :class:`ModelError` if the library has no such function.
    """
    from tensorflow.core.framework import graph_pb2

    function = next((f for f in library.function if f.signature.name == name), None)
    if function is None:
        raise ModelError(f"control flow calls function {name!r}, which is not in the file")
    nodes = {node.name: node for node in function.node_def}

    def flat_reference(reference: str) -> str:
        """``node:output_name:i`` as ``node:i``."""
        if is_control(reference) or ":" not in reference:
            return reference
        name, output, *rest = reference.split(":")
        if name not in nodes:
            return name
        offset = definitions.output_offset(nodes[name], output)
        return f"{name}:{offset + (output_number(rest[0], reference) if rest else 0)}"

    # the function in the syntax of a main graph
    graph_def = graph_pb2.GraphDef(library=library)
    for argument in function.signature.input_arg:
        node = graph_def.node.add(name=argument.name, op="Placeholder")
        node.attr["dtype"].type = argument.type
    for source in function.node_def:
        node = graph_def.node.add()
        node.CopyFrom(source)
        node.input[:] = [flat_reference(name) for name in source.input]
    # what it takes, gives and does
    arguments = tuple(argument.name for argument in function.signature.input_arg)
    returned = [function.ret[argument.name] for argument in function.signature.output_arg]
    effects = dict.fromkeys(sorted(function.control_ret.values()))
    inlined = inline_calls(
        graph_def,
        outputs=[*map(flat_reference, returned), *(f"{argument}:0" for argument in arguments)],
        targets=[n for n in effects if n in nodes and nodes[n].op not in READS],
        definitions=definitions,
        lowers=False,
    )
    check_nodes(inlined.graph_def.node, definitions)
    return replace(
        inlined,
        arguments=arguments,
        outputs=inlined.outputs[: len(returned)],
        origins={flat: (owner or name, node) for flat, (owner, node) in inlined.origins.items()},
    )
