"""The unharmed models that mutations start from: small graphs by hand, and small real files."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from graph_defs_by_hand import (
    Function,
    add_constant,
    add_counted_loop,
    add_function,
    add_node,
    add_splat,
)

LARGEST_FILE_BYTES = 60_000
"""Larger files of the test data are left out: harmed, they tell no more and take longer."""

VARIABLES_INDEX = base64.b64decode(
    "AAAGCAEaAggBAAEPYggBEgQSAggEKBA1uW9X2AABFncIARIIEgIICBICCAQgECiAATUm+zhsAAAAAAEAAAAAEvordAAAAAAB"
    "AAAAAMDyobAAAQJ4AD4AAAAAAQAAAABk4EJIQwhQDgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAFf7"
    "gIskdUfb"
)
"""What TensorFlow's SaveV2 wrote for ``w`` (float32, 8 x 4) and ``b`` (float32, 4)."""


def layers_graph() -> Any:
    """A dense layer with a reshape, a convolution and a reduction; unknown batch."""
    graph = _graph_def()
    node = graph.node
    add_node(node, "Placeholder", "x", dtype="float32", shape=(None, 8))
    add_splat(node, "w", (8, 12))
    add_splat(node, "b", (12,))
    add_node(node, "MatMul", "dense/MatMul", ["x", "w"], T="float32")
    add_node(node, "BiasAdd", "dense/BiasAdd", ["dense/MatMul", "b"], T="float32")
    add_node(node, "Relu", "dense/Relu", ["dense/BiasAdd"], T="float32")
    add_constant(node, "image/shape", [-1, 2, 2, 3])
    add_node(node, "Reshape", "image", ["dense/Relu", "image/shape"], T="float32", Tshape="int32")
    add_splat(node, "kernel", (2, 2, 3, 5))
    add_node(
        node,
        "Conv2D",
        "conv",
        ["image", "kernel"],
        T="float32",
        strides=[1, 1, 1, 1],
        padding=b"SAME",
        data_format=b"NHWC",
    )
    add_constant(node, "axes", [1, 2])
    add_node(node, "Mean", "mean", ["conv", "axes"], T="float32", Tidx="int32")
    add_node(node, "Split", "split", ["one", "mean"], T="float32", num_split=5)
    add_constant(node, "one", 1)
    add_node(node, "Shape", "shape", ["mean"], T="float32", out_type="int32")
    add_node(
        node,
        "ConcatV2",
        "y",
        ["split:1", "split:4", "one", "^shape"],
        N=2,
        T="float32",
        Tidx="int32",
    )
    return graph


def functions_graph() -> Any:
    """Calls in calls, a call by name, a While and an If."""
    graph = _graph_def()
    node, library = graph.node, graph.library
    inner = add_function(library, "inner", [("a", "float32")], [("r", "float32")])
    add_node(inner.node_def, "Square", "square", ["a"], T="float32")
    inner.ret["r"] = "square:y:0"
    outer = add_function(library, "outer", [("a", "float32")], [("r", "float32"), ("s", "float32")])
    add_node(
        outer.node_def,
        "PartitionedCall",
        "call",
        ["a"],
        Tin=["float32"],
        Tout=["float32"],
        f=Function("inner"),
    )
    add_node(outer.node_def, "inner", "by_name", ["call:output:0"])
    outer.ret["r"], outer.ret["s"] = "call:output:0", "by_name:r:0"
    add_counted_loop(library)

    add_node(node, "Placeholder", "x", dtype="float32", shape=(None, 8))
    add_constant(node, "zero", 0)
    add_node(
        node,
        "PartitionedCall",
        "outer",
        ["x"],
        Tin=["float32"],
        Tout=["float32", "float32"],
        f=Function("outer"),
    )
    add_node(
        node,
        "StatelessWhile",
        "while",
        ["zero", "outer:1"],
        T=["int32", "float32"],
        cond=Function("cond"),
        body=Function("body"),
        output_shapes=[(), (None, 8)],
        parallel_iterations=10,
    )
    add_node(node, "Placeholder", "flag", dtype="bool", shape=())
    add_node(
        node,
        "StatelessIf",
        "if",
        ["flag", "while:1"],
        Tcond="bool",
        Tin=["float32"],
        Tout=["float32"],
        then_branch=Function("inner"),
        else_branch=Function("inner"),
        output_shapes=[(None, 8)],
    )
    add_node(node, "Identity", "y", ["if"], T="float32")
    return graph


def state_graph() -> Any:
    """Variables of both kinds, a table and a TensorList."""
    graph = _graph_def()
    node = graph.node
    add_node(
        node, "VarHandleOp", "w", dtype="float32", shape=(8, 4), shared_name=b"w", container=b""
    )
    add_node(node, "VarHandleOp", "b", dtype="float32", shape=(4,), shared_name=b"b", container=b"")
    add_node(node, "ReadVariableOp", "w/Read", ["w"], dtype="float32")
    add_node(node, "ReadVariableOp", "b/Read", ["b"], dtype="float32")
    add_node(node, "Placeholder", "x", dtype="float32", shape=(None, 8))
    add_node(node, "MatMul", "MatMul", ["x", "w/Read"], T="float32")
    add_node(node, "AddV2", "y", ["MatMul", "b/Read"], T="float32")
    add_splat(node, "rate", ())
    add_node(node, "AssignAddVariableOp", "update", ["b", "b/Read"], dtype="float32")
    add_node(node, "VariableV2", "old", dtype="float32", shape=(4,), shared_name=b"")
    add_node(node, "Assign", "old/Assign", ["old", "b/Read"], T="float32", _class=[b"loc:@old"])
    add_node(
        node, "HashTableV2", "table", key_dtype="string", value_dtype="int64", shared_name=b"t"
    )
    add_node(node, "Placeholder", "keys", dtype="string", shape=(None,))
    add_constant(node, "missing", -1, "int64")
    add_node(
        node, "LookupTableFindV2", "find", ["table", "keys", "missing"], Tin="string", Tout="int64"
    )
    add_constant(node, "element_shape", [-1, 4])
    add_node(
        node,
        "TensorListFromTensor",
        "list",
        ["y", "row"],
        element_dtype="float32",
        shape_type="int32",
    )
    add_constant(node, "row", [4])
    add_node(
        node,
        "TensorListStack",
        "stacked",
        ["list", "row"],
        element_dtype="float32",
        num_elements=-1,
    )
    return graph


def loop_graph() -> Any:
    """A loop in the frames of TensorFlow 1."""
    graph = _graph_def()
    node = graph.node
    add_constant(node, "start", 0)
    add_node(
        node,
        "Enter",
        "enter",
        ["start"],
        T="int32",
        frame_name=b"loop",
        is_constant=False,
        parallel_iterations=10,
    )
    add_node(node, "Merge", "merge", ["enter", "next"], T="int32", N=2)
    add_constant(node, "ten", 10).input.append("^merge")
    add_node(node, "Less", "less", ["merge", "ten"], T="int32")
    add_node(node, "LoopCond", "go", ["less"])
    add_node(node, "Switch", "switch", ["merge", "go"], T="int32")
    add_constant(node, "one", 1).input.append("^switch")
    add_node(node, "Add", "add", ["switch:1", "one"], T="int32")
    add_node(node, "NextIteration", "next", ["add"], T="int32")
    add_node(node, "Exit", "y", ["switch"], T="int32")
    return graph


def saved_model() -> Any:
    """A SavedModel of :func:`functions_graph` and :func:`state_graph` with two signatures."""
    from tensorflow.core.protobuf import saved_model_pb2

    message = saved_model_pb2.SavedModel(saved_model_schema_version=1)
    meta = message.meta_graphs.add()
    fill_meta_graph(meta, state_graph())
    meta.graph_def.MergeFrom(_renamed(functions_graph(), "f_"))
    signature = meta.signature_def["functions"]
    signature.inputs["x"].name, signature.inputs["x"].dtype = "f_x:0", 1
    signature.outputs["y"].name, signature.outputs["y"].dtype = "f_y:0", 1
    for child, name, shape in ((1, "w", (8, 4)), (2, "b", (4,))):
        if child == 1:
            root = meta.object_graph_def.nodes.add()
            root.user_object.identifier = "_generic_user_object"
        root.children.add(node_id=child, local_name=name)
        variable = meta.object_graph_def.nodes.add().variable
        variable.name, variable.dtype = name, 1
        for size in shape:
            variable.shape.dim.add(size=size)
    return message


def meta_graph() -> Any:
    """A MetaGraphDef of :func:`state_graph`."""
    from tensorflow.core.protobuf import meta_graph_pb2

    message = meta_graph_pb2.MetaGraphDef()
    fill_meta_graph(message, state_graph())
    message.collection_def["train_op"].node_list.value.append("update")
    return message


def fill_meta_graph(meta: Any, graph_def: Any) -> None:
    """Writes a graph with ``x`` and ``y`` into a MetaGraphDef, tagged and signed."""
    meta.meta_info_def.tags.append("serve")
    meta.meta_info_def.tensorflow_version = "2.21.0"
    meta.graph_def.CopyFrom(graph_def)
    signature = meta.signature_def["serving_default"]
    signature.method_name = "tensorflow/serving/predict"
    signature.inputs["x"].name, signature.inputs["x"].dtype = "x:0", 1
    for size in (-1, 8):
        signature.inputs["x"].tensor_shape.dim.add(size=size)
    signature.outputs["y"].name, signature.outputs["y"].dtype = "y:0", 1


def small_files(folder: Path | None, *patterns: str) -> list[Path]:
    """The small files of the test data that match a pattern, in a stable order."""
    graphs = folder / "graphs" if folder else None
    found = {path for pattern in patterns for path in (graphs.rglob(pattern) if graphs else ())}
    return sorted(path for path in found if path.stat().st_size <= LARGEST_FILE_BYTES)


def _graph_def() -> Any:
    from tensorflow.core.framework import graph_pb2

    graph = graph_pb2.GraphDef()
    graph.versions.producer = 2000
    return graph


def _renamed(graph: Any, prefix: str) -> Any:
    for node in graph.node:
        node.name = prefix + node.name
        node.input[:] = [prefix + name for name in node.input]
    return graph
