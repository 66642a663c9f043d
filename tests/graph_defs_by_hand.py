"""GraphDefs written node by node, without TensorFlow's own graph builders.

``add_node(graph_def.node, "MatMul", "y", ["x", "w"], T="float32", transpose_a=False)`` writes one
node; an attribute is a dtype name, a bool, an int, a float, bytes, a shape (tuple, ``None`` for an
unknown dimension), a function (:class:`Function`) or a list of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

DTYPES = {"float32": 1, "int32": 3, "string": 7, "int64": 9, "bool": 10, "resource": 20}
DTYPES |= {"variant": 21, "float32_ref": 101}


@dataclass(frozen=True)
class Function:
    """A function-valued attribute."""

    name: str


def add_node(nodes: Any, op: str, name: str, inputs: Sequence[str] = (), **attributes: Any) -> Any:
    """The new node at the end of ``nodes`` (of a GraphDef or a FunctionDef)."""
    node = nodes.add(name=name, op=op)
    node.input.extend(inputs)
    for key, value in attributes.items():
        _fill(node.attr[key], value)
    return node


def add_constant(nodes: Any, name: str, values: Sequence[int] | int, dtype: str = "int32") -> Any:
    """A ``Const`` with all its elements: a scalar, or a vector from a sequence."""
    node = add_node(nodes, "Const", name, dtype=dtype)
    tensor = node.attr["value"].tensor
    tensor.dtype = DTYPES[dtype]
    content = [values] if isinstance(values, int) else values
    {"int32": tensor.int_val, "int64": tensor.int64_val, "float32": tensor.float_val}[dtype].extend(
        content
    )
    if not isinstance(values, int):
        tensor.tensor_shape.dim.add(size=len(content))
    return node


def add_splat(nodes: Any, name: str, shape: Sequence[int], value: float = 0.5) -> Any:
    """A float32 ``Const`` of one value many times, which takes a few bytes in the file."""
    node = add_node(nodes, "Const", name, dtype="float32")
    tensor = node.attr["value"].tensor
    tensor.dtype = DTYPES["float32"]
    tensor.float_val.append(value)
    for size in shape:
        tensor.tensor_shape.dim.add(size=size)
    return node


def add_function(
    library: Any, name: str, inputs: Sequence[tuple[str, str]], outputs: Sequence[tuple[str, str]]
) -> Any:
    """A FunctionDef without nodes: (argument, dtype) pairs in, (result, dtype) pairs out."""
    function = library.function.add()
    function.signature.name = name
    for key, dtype in inputs:
        function.signature.input_arg.add(name=key, type=DTYPES[dtype])
    for key, dtype in outputs:
        function.signature.output_arg.add(name=key, type=DTYPES[dtype])
    return function


def add_counted_loop(library: Any) -> None:
    """The functions ``cond`` and ``body`` of a loop that takes tanh(v) until i is ten."""
    counted = [("i", "int32"), ("v", "float32")]
    cond = add_function(library, "cond", counted, [("go", "bool")])
    add_constant(cond.node_def, "ten", 10)
    add_node(cond.node_def, "Less", "less", ["i", "ten:output:0"], T="int32")
    cond.ret["go"] = "less:z:0"
    body = add_function(library, "body", counted, [("j", "int32"), ("u", "float32")])
    add_constant(body.node_def, "one", 1)
    add_node(body.node_def, "AddV2", "next", ["i", "one:output:0"], T="int32")
    add_node(body.node_def, "Tanh", "tanh", ["v"], T="float32")
    body.ret["j"], body.ret["u"] = "next:z:0", "tanh:y:0"


def _fill(attribute: Any, value: Any) -> None:
    """Writes ``value`` into an AttrValue; the order of the cases matters (bool is an int)."""
    if isinstance(value, str):
        attribute.type = DTYPES[value]
    elif isinstance(value, bool):
        attribute.b = value
    elif isinstance(value, int):
        attribute.i = value
    elif isinstance(value, float):
        attribute.f = value
    elif isinstance(value, bytes):
        attribute.s = value
    elif isinstance(value, tuple):
        _fill_shape(attribute.shape, value)
    elif isinstance(value, Function):
        attribute.func.name = value.name
    else:
        _fill_list(attribute.list, value)


def _fill_list(values: Any, items: Sequence[Any]) -> None:
    values.SetInParent()
    for item in items:
        if isinstance(item, str):
            values.type.append(DTYPES[item])
        elif isinstance(item, int):
            values.i.append(item)
        elif isinstance(item, bytes):
            values.s.append(item)
        elif isinstance(item, tuple):
            _fill_shape(values.shape.add(), item)
        else:
            values.func.add(name=item.name)


def _fill_shape(shape: Any, sizes: Sequence[int | None]) -> None:
    shape.SetInParent()
    for size in sizes:
        shape.dim.add(size=-1 if size is None else size)
