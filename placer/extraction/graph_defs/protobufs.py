"""TensorFlow's protobufs: names for signatures, plain values to and from, GraphDefs as a whole.

mypy knows none of TensorFlow's types, so the names of types here are ``Any``: they say what is
meant.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any, TypeVar

from cost_models.op_info import Shape
from placer.errors import ModelError

AttrValue = Any
NodeDef = Any
FunctionDef = Any
OpDef = Any
TensorInfo = Any
TensorShapeProto = Any
Tensor = Any
"""A live tensor, or the live handle of a variable or table."""

StoredShapes = Mapping[str, Sequence[TensorShapeProto]]
"""The shapes that a file states in ``_output_shapes``, by op."""

PRODUCER_WITH_SCALAR_PLACEHOLDERS = 24
"""The first GraphDef version in which a placeholder of shape ``[]`` is a scalar."""

Captures = Mapping[str, Tensor]
"""Values that a live function captures, by the placeholder that stands for each."""

Message = TypeVar("Message")


def copied(message: Message) -> Message:
    """A copy of a protobuf message."""
    copy: Any = type(message)()
    copy.CopyFrom(message)
    found: Message = copy
    return found


def without_nodes(graph_def: Any) -> Any:
    """A GraphDef with the versions and the library of another, and no nodes yet."""
    return type(graph_def)(versions=graph_def.versions, library=graph_def.library)


def all_nodes(graph_def: Any) -> Iterator[NodeDef]:
    """The nodes of a GraphDef, then those of its functions."""
    return chain(graph_def.node, *(function.node_def for function in graph_def.library.function))


def live_graph_def(graph: Any, *, add_shapes: bool = False) -> Any:
    """The GraphDef of a ``tf.Graph``.

    Raises :class:`ModelError` for one of more than 2 GB, which no protobuf can hold.
    """
    from google.protobuf import message

    try:
        return graph.as_graph_def(add_shapes=add_shapes)
    except (message.DecodeError, message.EncodeError, ValueError) as error:
        constants = [op for op in graph.get_operations() if op.type == "Const"]
        size = sum(_constant_bytes(op) for op in constants)
        if size < _MOST_GRAPH_BYTES:
            raise
        raise ModelError(
            f"the {len(constants):,} constants of the graph are {size / 1e9:.1f} GB, and a "
            "GraphDef holds at most 2 GB: make variables of the large ones (tf.Variable, "
            "tf.compat.v1.get_variable), whose values are not in the graph"
        ) from error


_MOST_GRAPH_BYTES = 1 << 31


def _constant_bytes(op: Any) -> int:
    """The bytes of a live constant with a known size."""
    tensor = op.outputs[0]
    count = tensor.shape.num_elements() or 0
    return int(count) * int(getattr(tensor.dtype, "size", 0) or 0)


def functions_by_name(graph_def: Any) -> dict[str, FunctionDef]:
    """The functions in the library of a GraphDef."""
    return {function.signature.name: function for function in graph_def.library.function}


def shape_of(proto: TensorShapeProto) -> Shape:
    """The shape in a TensorShapeProto; ``None`` for unknown rank."""
    if proto.unknown_rank:
        return None
    return tuple(dim.size if dim.size >= 0 else None for dim in proto.dim)


def fill_shape(proto: TensorShapeProto, shape: Shape) -> None:
    """Writes ``shape`` into an empty TensorShapeProto."""
    proto.Clear()
    if shape is None:
        proto.unknown_rank = True
        return
    proto.SetInParent()
    for dim in shape:
        proto.dim.add(size=-1 if dim is None else dim)


@cache
def dtype_name(number: int) -> str:
    """TensorFlow's lower-case name of a dtype number, without ``_ref``; ``""`` for none (0).

    Raises :class:`ModelError` for a number that this TensorFlow does not know.
    """
    from tensorflow.python.framework import dtypes

    if not number:
        return ""
    try:
        return str(dtypes.as_dtype(number).base_dtype.name)
    except TypeError as error:
        raise ModelError(
            f"the model names data type number {number}, which this TensorFlow does not know"
        ) from error


def dtype_number(dtype: str) -> int:
    """The DataType number of a dtype name; ``float32`` where the dtype is unknown."""
    from tensorflow.python.framework import dtypes

    return int(dtypes.as_dtype(dtype or "float32").as_datatype_enum)


def fill_constant(node: NodeDef, value: Any, dtype: str | int = "int32", shape: Any = None) -> None:
    """Makes ``node`` a ``Const`` with this value."""
    from tensorflow.python.framework import dtypes, tensor_util

    proto = tensor_util.make_tensor_proto(value, dtypes.as_dtype(dtype), shape)
    node.op = "Const"
    node.attr["dtype"].type = proto.dtype
    node.attr["value"].tensor.CopyFrom(proto)


def file_content(message: Any, *, text: bool) -> bytes:
    """A message as a file holds it."""
    from google.protobuf import text_format

    found = text_format.MessageToString(message) if text else message.SerializeToString()
    return found.encode() if isinstance(found, str) else bytes(found)
