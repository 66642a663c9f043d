"""Flat programs of live functions in a form that another process can read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from placer.extraction.graph_defs.op_definitions import OpDefinitions, attribute
from placer.extraction.graph_defs.program import FlatProgram
from placer.extraction.graph_defs.protobufs import all_nodes
from placer.extraction.graph_defs.scratch_graphs import LARGE_CONSTANT_ELEMENTS, constant_elements
from placer.extraction.graph_defs.tensor_states import TensorState


@dataclass(frozen=True, kw_only=True)
class PortableProgram:
    """A FlatProgram without live values: protobufs as bytes, large constants without content."""

    program: FlatProgram
    captures: Mapping[str, TensorState]
    graph_def: bytes
    stored_shapes: Mapping[str, tuple[bytes, ...]]
    op_definitions: tuple[bytes, ...]


def pack_program(program: FlatProgram, captures: Mapping[str, TensorState]) -> PortableProgram:
    """``program`` for another process; :func:`unpack_program` is its inverse.

    The content of large constants stays behind: it is no part of an extraction.
    """
    definitions = OpDefinitions(program.stripped_ops, program.graph_def.library.function)
    op_types = {node.op for node in all_nodes(program.graph_def)}
    found = (definitions.find(op_type) for op_type in sorted(op_types))
    return PortableProgram(
        program=replace(
            program,
            graph_def=None,
            contents={},
            captures={},
            stripped_ops=(),
            stored_shapes={},
            whole=None,
        ),
        captures=captures,
        graph_def=without_large_constants(program.graph_def).SerializeToString(),
        stored_shapes={
            name: tuple(proto.SerializeToString() for proto in protos)
            for name, protos in program.stored_shapes.items()
        },
        op_definitions=tuple(item.SerializeToString() for item in found if item is not None),
    )


def unpack_program(portable: PortableProgram) -> tuple[FlatProgram, Mapping[str, TensorState]]:
    """The program that was packed, and the states of its captures."""
    from tensorflow.core.framework import graph_pb2, op_def_pb2, tensor_shape_pb2

    program = replace(
        portable.program,
        graph_def=graph_pb2.GraphDef.FromString(portable.graph_def),
        stripped_ops=tuple(op_def_pb2.OpDef.FromString(d) for d in portable.op_definitions),
        stored_shapes={
            name: [tensor_shape_pb2.TensorShapeProto.FromString(proto) for proto in protos]
            for name, protos in portable.stored_shapes.items()
        },
    )
    return program, portable.captures


def without_large_constants(graph_def: Any) -> Any:
    """A copy of a GraphDef whose large constants have dtype and shape only."""
    from tensorflow.core.framework import graph_pb2

    copy = graph_pb2.GraphDef()
    copy.versions.CopyFrom(graph_def.versions)
    copy.library.CopyFrom(graph_def.library)
    for source in graph_def.node:
        node = copy.node.add()
        if source.op != "Const" or constant_elements(source) <= LARGE_CONSTANT_ELEMENTS:
            node.CopyFrom(source)
            continue
        node.name, node.op, node.device = source.name, source.op, source.device
        node.input.extend(source.input)
        tensor = attribute(source.attr, "value").tensor
        node.attr["dtype"].type = tensor.dtype
        node.attr["value"].tensor.dtype = tensor.dtype
        node.attr["value"].tensor.tensor_shape.CopyFrom(tensor.tensor_shape)
    return copy
