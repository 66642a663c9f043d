"""Shapes and small values, read from a scratch graph that TensorFlow imported."""

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import cache
from typing import Any

from cost_models.op_info import Shape
from placer.errors import ShapeError
from placer.extraction.graph_defs.protobufs import (
    PRODUCER_WITH_SCALAR_PLACEHOLDERS,
    dtype_name,
    shape_of,
)
from placer.extraction.graph_defs.scratch_graphs import Refinement, ScratchGraph
from placer.extraction.graph_defs.tensor_states import ElementState, TensorState
from placer.extraction.graph_defs.tensor_types import GraphTypes, TensorType
from placer.graph.tensor_names import full_tensor, split_tensor

SMALL = 16
"""Integer tensors with at most so many elements are evaluated and kept."""
INTEGERS = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"})

_TOO_OLD = "is not available in GraphDef version"
"""TensorFlow's words for an op that was removed before that version."""

_REFUSED_NODE = (
    re.compile(r"\{\{(?:colocation_|function_)?node ([^}]+)\}\}"),
    re.compile(r"[Nn]ode '([^']+)'"),
    re.compile(r"[Nn]ode name '([^']+)'"),
    re.compile(r"[Ii]nput \d+ of node ([^\s,]+)"),
)


@dataclass(frozen=True, kw_only=True)
class ImportedGraph:
    """The answers of TensorFlow's shape functions.

    ``shapes`` has one shape per output by op, ``values`` the elements of small integer tensors by
    tensor name, ``handles`` the contents of resource handles by tensor name.  ``refused`` maps ops
    that TensorFlow would not import to its reason; their outputs are unknown.
    """

    shapes: Mapping[str, tuple[Shape, ...]]
    values: Mapping[str, tuple[int, ...]]
    handles: Mapping[str, ElementState]
    refused: Mapping[str, str]

    def shape(self, reference: str) -> Shape:
        """The shape of a tensor, ``"op"`` or ``"op:1"``."""
        name, number = split_tensor(reference)
        return self.shapes[name][number]

    def value(self, reference: str) -> tuple[int, ...] | None:
        """The elements of a tensor, if they are known."""
        return self.values.get(full_tensor(reference))


def import_shapes(
    graph_def: Any,
    *,
    types: GraphTypes,
    inputs: Mapping[str, TensorState],
    refinements: Mapping[str, Refinement],
    before: Mapping[str, tuple[Shape, ...]],
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
        scratch = ScratchGraph(graph_def, types, inputs, known)
        scratch.graph_def.versions.producer = producer
        try:
            graph, operations = _import(scratch.graph_def)
            break
        except ValueError as error:
            if _TOO_OLD in str(error) and producer != graph_def.versions.producer:
                producer = graph_def.versions.producer
                continue
            name = _refused_op(str(error), scratch)
            # so many ops may be replaced by stubs
            if name is None or name in refused or len(refused) >= 40:
                raise ShapeError(f"TensorFlow cannot import the graph: {error}") from error
            refused[name] = str(error).split("\n")[0]
            stub = before.get(name, (None,) * len(types.outputs[name]))
            known[name] = Refinement(outputs=stub)
    return _read(graph, operations, scratch, refused, inputs.keys() | known.keys())


def _import(scratch: Any) -> tuple[Any, dict[str, Any]]:
    """A ``tf.Graph`` of the scratch copy and its operations by name, their shapes inferred.

    It does what ``import_graph_def`` does, without the devices, colocations and gradients that it
    asks every new op for, which take four fifths of its time, and without its modules.  The
    operations know their name and their outputs, the outputs their shape.  Raises ``ValueError``.
    """
    from tensorflow.python.client import pywrap_tf_session
    from tensorflow.python.framework import c_api_util, errors, ops

    graph = ops.Graph()
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
    except errors.OpError as error:
        raise ValueError(error.message) from error
    finally:
        pywrap_tf_session.TF_DeleteBuffer(content)

    def tensor(operation: Any, index: int, dtype: int) -> Any:
        return pywrap_tf_session.PyTensor(operation, index, dtype, 0)

    operations = {}
    for new in graph.new_operations():
        operation = pywrap_tf_session.PyOperation(new, tensor)
        operation.graph = graph
        operation._init_outputs()
        operations[operation.name] = operation
    return graph, operations


def _refused_op(message: str, scratch: ScratchGraph) -> str | None:
    for pattern in _REFUSED_NODE:
        for found in pattern.findall(message):
            name = scratch.names.get(found, found)
            if name in scratch.types.outputs:
                return str(name)
    return None


def _read(
    graph: Any,
    operations: Mapping[str, Any],
    scratch: ScratchGraph,
    refused: Mapping[str, str],
    replaced: Set[str],
) -> ImportedGraph:
    """Reads the answers off the imported graph; stubs stand for ops that are ``replaced``."""
    types = scratch.types
    outputs = {name: operations[scratch.renamed.get(name, name)].outputs for name in types.outputs}
    shapes = {name: tuple(map(_shape, tensors)) for name, tensors in outputs.items()}
    for name, ensured in scratch.ensured.items():
        _set_shape(shapes, name, _shape(operations[ensured].outputs[0]))
    values: dict[str, tuple[int, ...]] = {}
    for name, (shape, value) in scratch.known_values.items():
        _set_shape(shapes, name, shape)
        if len(value) <= SMALL:
            values[name] = value
    handles: dict[str, ElementState] = {}
    evaluate = _Constants(types, replaced).value
    with graph._c_graph.get() as c_graph:
        for name, kinds in types.outputs.items():
            for index in _informative(kinds):
                tensor = f"{name}:{index}"
                if kinds[index].dtype == "resource":
                    element = _element(c_graph, outputs[name][index])
                    if element is not None:
                        handles[tensor] = element
                elif tensor not in values and _may_be_small(shapes[name][index]):
                    array = evaluate(c_graph, name, outputs[name][index])
                    if array is not None:
                        values[tensor] = tuple(map(int, array.reshape(-1)))
                        _set_shape(shapes, tensor, tuple(array.shape))
    return ImportedGraph(shapes=shapes, values=values, handles=handles, refused=refused)


class _Constants:
    """The values of small tensors; most are those of constants, of which those that are not
    ``replaced`` are mostly alike."""

    def __init__(self, types: GraphTypes, replaced: Set[str]) -> None:
        names = {node.name for node in types.nodes_of({"Const"})} - replaced
        self.contents = {name: types.contents.get(name) for name in names}
        self.known: dict[bytes, Any] = {}

    def value(self, c_graph: Any, name: str, tensor: Any) -> Any | None:
        """As :func:`_small_value`, of an output of the op ``name``."""
        content = self.contents.get(name)
        if content is None:
            return _small_value(c_graph, tensor)
        if content not in self.known:
            self.known[content] = _small_value(c_graph, tensor)
        return self.known[content]


@cache
def _informative(kinds: tuple[TensorType, ...]) -> tuple[int, ...]:
    """The outputs that may have a value or be a handle."""
    return tuple(
        index
        for index, kind in enumerate(kinds)
        if kind.dtype == "resource" or kind.dtype in INTEGERS
    )


def _shape(tensor: Any) -> Shape:
    """The shape that was inferred for the output of an operation."""
    sizes, is_unknown = tensor._shape
    return None if is_unknown else tuple(sizes)


def _set_shape(shapes: dict[str, tuple[Shape, ...]], tensor: str, shape: Shape) -> None:
    """Replaces one of the shapes of an op."""
    name, number = split_tensor(tensor)
    shapes[name] = (*shapes[name][:number], shape, *shapes[name][number + 1 :])


def _may_be_small(shape: Shape) -> bool:
    """Whether a tensor is a scalar or a vector without more elements than are kept."""
    return shape is None or shape == () or (len(shape) == 1 and (shape[0] or 0) <= SMALL)


def _small_value(c_graph: Any, tensor: Any) -> Any | None:
    """The value of a tensor that can be computed without running the model, if it is small."""
    from tensorflow.python.client import pywrap_tf_session
    from tensorflow.python.framework import errors

    try:
        value = pywrap_tf_session.TF_TryEvaluateConstant_wrapper(c_graph, tensor._as_tf_output())
    except errors.OpError:
        return None
    if value is None or isinstance(value, bytes):  # a string where the op's dtype says integer
        return None
    return value if value.dtype.kind in "iu" and value.size <= SMALL else None


def _element(c_graph: Any, handle: Any) -> ElementState | None:
    """Returns the element that a resource handle stands for."""
    from tensorflow.python.client import pywrap_tf_session
    from tensorflow.python.framework import cpp_shape_inference_pb2

    content = pywrap_tf_session.GetHandleShapeAndType(c_graph, handle._as_tf_output())
    data = cpp_shape_inference_pb2.CppShapeInferenceResult.HandleData.FromString(content)
    if not data.is_set or not data.shape_and_type:
        return None
    entry = data.shape_and_type[0]
    return ElementState(dtype_name(entry.dtype), shape_of(entry.shape))
