"""GraphDefs of any size: layers of real ops, with function calls and a While loop."""

from __future__ import annotations

from typing import Any

from graph_defs_by_hand import (
    Function,
    add_constant,
    add_counted_loop,
    add_function,
    add_node,
    add_splat,
)

WIDTH = 64
LAYERS_PER_CALL = 10
"""Every so many layers the activation is a function call instead of one op."""


def layered_graph(op_count: int) -> Any:
    """A GraphDef whose flat graph has about ``op_count`` ops (a layer is the unit).

    A layer normalises, multiplies with a variable, adds another, activates, and adds what it was
    given: 24 ops, 11 of them in a row.  In the middle a While loop runs over the activations.
    """
    from tensorflow.core.framework import graph_pb2

    graph = graph_pb2.GraphDef()
    graph.versions.producer = 2000
    _add_library(graph.library)
    node = graph.node
    add_node(node, "Placeholder", "x", dtype="float32", shape=(None, WIDTH))
    add_constant(node, "zero", 0)
    value, count, layer = "x", 2, 0
    looped = False
    while count < op_count - 2:
        if not looped and count >= op_count // 2:
            looped, count = True, count + 1
            value = _add_loop(node, value)
        value, added = _add_layer(node, f"layer_{layer}", value, layer % LAYERS_PER_CALL == 0)
        count, layer = count + added, layer + 1
    add_node(node, "Identity", "y", [value], T="float32")
    return graph


def _add_layer(node: Any, name: str, value: str, calls: bool) -> tuple[str, int]:
    """The output of a layer, and how many ops it has in the flat graph."""
    before = len(node)
    add_constant(node, f"{name}/axis", [-1])
    add_node(node, "Mean", f"{name}/mean", [value, f"{name}/axis"], keep_dims=True, **_MEAN)
    add_node(node, "SquaredDifference", f"{name}/sq", [value, f"{name}/mean"], T="float32")
    add_node(node, "Mean", f"{name}/var", [f"{name}/sq", f"{name}/axis"], keep_dims=True, **_MEAN)
    add_splat(node, f"{name}/epsilon", (), 1e-5)
    add_node(node, "AddV2", f"{name}/add", [f"{name}/var", f"{name}/epsilon"], T="float32")
    add_node(node, "Rsqrt", f"{name}/rsqrt", [f"{name}/add"], T="float32")
    add_node(node, "Sub", f"{name}/sub", [value, f"{name}/mean"], T="float32")
    add_node(node, "Mul", f"{name}/norm", [f"{name}/sub", f"{name}/rsqrt"], T="float32")
    for variable, shape in (("gamma", (WIDTH,)), ("kernel", (WIDTH, WIDTH)), ("bias", (WIDTH,))):
        full = f"{name}/{variable}"
        add_node(node, "VarHandleOp", full, dtype="float32", shape=shape, shared_name=full.encode())
        add_node(node, "ReadVariableOp", f"{full}/Read", [full], dtype="float32")
    add_node(node, "Mul", f"{name}/scale", [f"{name}/norm", f"{name}/gamma/Read"], T="float32")
    add_node(node, "MatMul", f"{name}/dot", [f"{name}/scale", f"{name}/kernel/Read"], T="float32")
    add_node(node, "BiasAdd", f"{name}/biased", [f"{name}/dot", f"{name}/bias/Read"], T="float32")
    if calls:
        add_node(
            node, "PartitionedCall", f"{name}/act", [f"{name}/biased"], Tin=["float32"],
            Tout=["float32"], f=Function("swish"),
        )  # fmt: skip
    else:
        add_node(node, "Relu", f"{name}/act", [f"{name}/biased"], T="float32")
    add_splat(node, f"{name}/half", ())
    add_node(node, "Mul", f"{name}/damped", [f"{name}/act", f"{name}/half"], T="float32")
    add_node(node, "AddV2", f"{name}/y", [value, f"{name}/damped"], T="float32")
    add_node(node, "Identity", f"{name}/out", [f"{name}/y"], T="float32")
    return f"{name}/out", len(node) - before + (1 if calls else 0)


_MEAN = {"T": "float32", "Tidx": "int32"}


def _add_loop(node: Any, value: str) -> str:
    add_node(
        node, "StatelessWhile", "while", ["zero", value], T=["int32", "float32"],
        cond=Function("cond"), body=Function("body"), output_shapes=[(), (None, WIDTH)],
        parallel_iterations=10,
    )  # fmt: skip
    return "while:1"


def _add_library(library: Any) -> None:
    swish = add_function(library, "swish", [("a", "float32")], [("r", "float32")])
    add_node(swish.node_def, "Sigmoid", "sigmoid", ["a"], T="float32")
    add_node(swish.node_def, "Mul", "mul", ["a", "sigmoid:y:0"], T="float32")
    swish.ret["r"] = "mul:z:0"
    add_counted_loop(library)
