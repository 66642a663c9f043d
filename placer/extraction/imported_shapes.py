"""Shapes and small values, read from a scratch graph that TensorFlow imported."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cost_models.op_info import Shape
from placer.errors import ShapeError
from placer.extraction.op_definitions import OpDefinitions
from placer.extraction.raw_program import dtype_name, shape_of
from placer.extraction.scratch_graphs import Refinement, ScratchGraph
from placer.extraction.tensor_states import ElementState, TensorState
from placer.extraction.tensor_types import GraphTypes

SMALL = 16
"""Integer tensors with at most so many elements are evaluated and kept."""
INTEGERS = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"})
MOST_REFUSALS = 40
"""How many ops may be replaced by stubs before the import is given up."""

PRODUCER_WITH_SCALAR_PLACEHOLDERS = 24
"""The first GraphDef version in which a placeholder of shape ``[]`` is a scalar."""

_TOO_OLD = "is not available in GraphDef version"
"""What TensorFlow says of an op that was removed before that version."""

_REFUSED_NODE = (
    re.compile(r"\{\{(?:colocation_|function_)?node ([^}]+)\}\}"),
    re.compile(r"[Nn]ode '([^']+)'"),
    re.compile(r"[Nn]ode name '([^']+)'"),
    re.compile(r"[Ii]nput \d+ of node ([^\s,]+)"),
)


_NOTHING_BEFORE: Mapping[str, tuple[Shape, ...]] = {}


@dataclass(frozen=True, kw_only=True)
class ImportedGraph:
    """What TensorFlow's shape functions say.

    ``shapes`` has one shape per output by op, ``values`` the elements of small integer tensors by
    tensor name, ``handles`` the contents of resource handles by tensor name.  ``refused`` maps ops
    that TensorFlow would not import to its reason; their outputs are unknown.
    """

    shapes: Mapping[str, tuple[Shape, ...]]
    values: Mapping[str, tuple[int, ...]]
    handles: Mapping[str, ElementState]
    refused: Mapping[str, str]


def import_shapes(
    graph_def: Any,
    *,
    types: GraphTypes,
    definitions: OpDefinitions,
    inputs: Mapping[str, TensorState],
    refinements: Mapping[str, Refinement],
    before: Mapping[str, tuple[Shape, ...]] = _NOTHING_BEFORE,
) -> ImportedGraph:
    """The shapes of a flat graph whose placeholders ``inputs`` have the given states.

    An op that TensorFlow refuses is replaced by a stub with the outputs it had ``before`` (else
    unknown ones), and the import is tried again.  Raises :class:`ShapeError` if it cannot be
    imported even so.
    """
    refused: dict[str, str] = {}
    known = dict(refinements)
    producer = max(graph_def.versions.producer, PRODUCER_WITH_SCALAR_PLACEHOLDERS)
    while True:
        scratch = ScratchGraph(graph_def, types, definitions, inputs, known)
        scratch.graph_def.versions.producer = producer
        try:
            graph = _import(scratch.graph_def)
            break
        except ValueError as error:
            if _TOO_OLD in str(error) and producer != graph_def.versions.producer:
                producer = graph_def.versions.producer
                continue
            name = _refused_op(str(error), scratch)
            if name is None or name in refused or len(refused) >= MOST_REFUSALS:
                raise ShapeError(f"TensorFlow cannot import the graph: {error}") from error
            refused[name] = str(error).split("\n")[0]
            stub = before.get(name, (None,) * len(types.outputs[name]))
            known[name] = Refinement(outputs=stub)
    return _read(graph, graph_def, scratch, types, refused)


def _import(scratch: Any) -> Any:
    """A ``tf.Graph`` of the scratch copy, its shapes inferred.  Raises ``ValueError``."""
    from tensorflow.python.framework import errors, ops

    graph = ops.Graph()
    try:
        _import_bare(graph, scratch)
    except errors.OpError as error:
        raise ValueError(error.message) from error
    return graph


def _import_bare(graph: Any, scratch: Any) -> None:
    """Does what ``import_graph_def`` does, without the devices, colocations and gradients that it
    asks every new op for, which take four fifths of its time, and without its modules."""
    from tensorflow.python.client import pywrap_tf_session
    from tensorflow.python.framework import c_api_util, ops

    scoped = c_api_util.ScopedTFImportGraphDefOptions()
    pywrap_tf_session.TF_ImportGraphDefOptionsSetPrefix(scoped.options, "")
    pywrap_tf_session.TF_ImportGraphDefOptionsSetUniquifyNames(scoped.options, True)
    pywrap_tf_session.TF_ImportGraphDefOptionsSetValidateColocationConstraints(scoped.options, True)
    content = pywrap_tf_session.TF_NewBufferFromString(scratch.SerializeToString())
    try:
        with graph._c_graph.get() as c_graph:
            c_api_util.ScopedTFImportGraphDefResults(
                pywrap_tf_session.TF_GraphImportGraphDefWithResults(
                    c_graph, content, scoped.options
                )
            )
    finally:
        pywrap_tf_session.TF_DeleteBuffer(content)
    for new in graph.new_operations():
        ops.Operation._from_c_op(new, graph)


def _refused_op(message: str, scratch: ScratchGraph) -> str | None:
    for pattern in _REFUSED_NODE:
        for found in pattern.findall(message):
            name = scratch.names.get(found, found)
            if name in scratch.types.outputs:
                return str(name)
    return None


def _read(
    graph: Any, graph_def: Any, scratch: ScratchGraph, types: GraphTypes, refused: dict[str, str]
) -> ImportedGraph:
    shapes: dict[str, tuple[Shape, ...]] = {}
    values: dict[str, tuple[int, ...]] = {}
    handles: dict[str, ElementState] = {}
    operations = {operation.name: operation for operation in graph.get_operations()}
    ensured, known_values = scratch.ensured, scratch.known_values
    for node in graph_def.node:
        node_name = node.name
        outputs = operations[scratch.renamed.get(node_name, node_name)].outputs
        shapes[node_name] = tuple([shape_tuple(tensor.shape) for tensor in outputs])
        for index, tensor in enumerate(outputs):
            name = f"{node_name}:{index}"
            if name in ensured:
                known = shape_tuple(operations[ensured[name]].outputs[0].shape)
                shapes[node_name] = with_shape(shapes[node_name], index, known)
            if name in known_values:
                known, values[name] = known_values[name]
                shapes[node_name] = with_shape(shapes[node_name], index, known)
            kind = types.outputs[node_name][index].dtype
            if kind == "resource":
                element = _handle(tensor)
                if element is not None:
                    handles[name] = element
            elif name not in values and kind in INTEGERS and may_be_small(shapes[node_name][index]):
                value = small_value(tensor)
                if value is not None:
                    values[name] = tuple(map(int, value.reshape(-1)))
                    shapes[node_name] = with_shape(shapes[node_name], index, tuple(value.shape))
    return ImportedGraph(shapes=shapes, values=values, handles=handles, refused=refused)


def shape_tuple(shape: Any) -> Shape:
    """A ``tf.TensorShape`` as a tuple."""
    return None if shape.rank is None else tuple(shape.as_list())


def may_be_small(shape: Shape) -> bool:
    """Whether a tensor is a scalar or a vector without more elements than are kept."""
    return shape is None or shape == () or (len(shape) == 1 and (shape[0] or 0) <= SMALL)


def with_shape(shapes: tuple[Shape, ...], index: int, shape: Shape) -> tuple[Shape, ...]:
    """``shapes`` with one of them replaced."""
    return (*shapes[:index], shape, *shapes[index + 1 :])


def small_value(tensor: Any) -> Any | None:
    """The value of a tensor that can be computed without running the model, if it is small."""
    from tensorflow.python.framework import errors, tensor_util

    try:
        value = tensor_util.try_evaluate_constant(tensor)
    except errors.OpError:
        return None
    if value is None or isinstance(value, bytes):  # a string where the op's dtype says integer
        return None
    return value if value.dtype.kind in "iu" and value.size <= SMALL else None


def _handle(tensor: Any) -> ElementState | None:
    from tensorflow.python.ops import handle_data_util

    data = handle_data_util.get_resource_handle_data(tensor)
    if not data.is_set or not data.shape_and_type:
        return None
    entry = data.shape_and_type[0]
    return ElementState(dtype_name(entry.dtype), shape_of(entry.shape))
