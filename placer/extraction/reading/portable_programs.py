"""Flat programs of live functions in a form that another process can read."""

import pickle
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from placer.extraction.graph_defs.flat_nodes import NO_CONTENTS
from placer.extraction.graph_defs.op_definitions import attribute
from placer.extraction.graph_defs.program import FlatProgram
from placer.extraction.graph_defs.protobufs import all_nodes
from placer.extraction.graph_defs.scratch_graphs import LARGE_CONSTANT_ELEMENTS, constant_elements
from placer.extraction.graph_defs.tensor_states import TensorState


def pack_program(program: FlatProgram, captures: Mapping[str, TensorState]) -> bytes:
    """``program`` and the states of its captures for another process; :func:`unpack_program` is
    the inverse.

    Live values and the content of large constants stay behind: they are no part of an extraction.
    """
    definitions = program.definitions
    op_types = {node.op for node in all_nodes(program.graph_def)}
    found = (definitions.find(op_type) for op_type in sorted(op_types))
    packed = replace(
        program,
        graph_def=_without_large_constants(program.graph_def),
        contents=NO_CONTENTS,
        captures={},
        stripped_ops=tuple(item for item in found if item is not None),
        stored_shapes={name: list(protos) for name, protos in program.stored_shapes.items()},
        original=None,
        find_stored=None,
        find_unwritten=None,
    )
    return pickle.dumps((packed, captures))


def unpack_program(packed: bytes) -> tuple[FlatProgram, Mapping[str, TensorState]]:
    """The program that was packed, and the states of its captures."""
    program, captures = pickle.loads(packed)
    return program, captures


def _without_large_constants(graph_def: Any) -> Any:
    """A copy of a GraphDef whose large constants have dtype and shape only."""
    from tensorflow.core.framework import graph_pb2

    copy = graph_pb2.GraphDef(versions=graph_def.versions, library=graph_def.library)
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
