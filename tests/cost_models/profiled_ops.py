"""Ops of every type whose flops TensorFlow's profiler counts, and the table that compares them.

python tests/cost_models/profiled_ops.py > docs/flops.md
"""

from __future__ import annotations

import sys
from pathlib import Path

import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow.python.profiler.internal import flops_registry  # noqa: F401

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1])]
from cost_models.op_info import OpInfo, TensorProperties  # noqa: E402
from cost_models.registry import op_cost  # noqa: E402

SHAPE = (4, 16, 16, 8)
ONES = [1, 1, 1, 1]
POOL = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}


def _placeholder(*shape, dtype=tf.float32):
    return tf.compat.v1.placeholder(dtype, shape)


def _elementwise():
    raw, x, y = tf.raw_ops, _placeholder(*SHAPE), _placeholder(8)
    for unary in (raw.Reciprocal, raw.Square, raw.Rsqrt, raw.Log, raw.Neg):
        yield unary(x=x)
    binary = "Add AddV2 Sub Mul RealDiv Maximum Minimum Pow SquaredDifference"
    for name in f"{binary} Greater GreaterEqual Less LessEqual Equal NotEqual".split():
        yield getattr(raw, name)(x=x, y=y)
    yield raw.RsqrtGrad(y=x, dy=x)
    yield raw.AddN(inputs=[x, x, x])
    yield raw.BiasAdd(value=x, bias=y)
    variable = tf.compat.v1.get_variable("v", SHAPE, use_resource=False)
    yield raw.AssignAdd(ref=variable._ref(), value=x)
    yield raw.AssignSub(ref=variable._ref(), value=x)


def _reductions():
    raw, x = tf.raw_ops, _placeholder(*SHAPE)
    yield raw.Sum(input=x, axis=[1, 2])
    yield raw.Mean(input=x, axis=[0, 3])
    yield raw.ArgMax(input=x, dimension=3)
    yield raw.ArgMin(input=x, dimension=1)
    yield raw.BiasAddGrad(out_backprop=x)
    yield raw.L2Loss(t=x)
    yield raw.Softmax(logits=_placeholder(10, 20))


def _products():
    raw = tf.raw_ops
    yield raw.MatMul(a=_placeholder(5, 7), b=_placeholder(7, 9))
    yield raw.MatMul(a=_placeholder(7, 5), b=_placeholder(9, 7), transpose_a=True, transpose_b=True)
    yield raw.BatchMatMul(x=_placeholder(3, 5, 7), y=_placeholder(3, 7, 9))
    yield raw.BatchMatMulV2(x=_placeholder(3, 5, 7), y=_placeholder(3, 7, 9))
    yield raw.BatchMatMulV2(x=_placeholder(3, 1, 5, 7), y=_placeholder(4, 9, 7), adj_y=True)
    yield raw.BatchMatMulV3(
        x=_placeholder(3, 5, 7, dtype=tf.int8), y=_placeholder(3, 7, 9, dtype=tf.int8),
        Tout=tf.int32,
    )  # fmt: skip


def _convolutions():
    raw, x, grad = tf.raw_ops, _placeholder(*SHAPE), _placeholder(4, 8, 8, 12)
    two = {"strides": [1, 2, 2, 1], "padding": "SAME"}
    yield raw.Conv2D(input=x, filter=_placeholder(3, 3, 8, 12), **two)
    yield raw.Conv2D(input=x, filter=_placeholder(3, 3, 4, 12), strides=ONES, padding="VALID")
    yield raw.Conv2D(
        input=x, filter=_placeholder(3, 5, 8, 12), strides=ONES, padding="EXPLICIT",
        explicit_paddings=[0, 0, 1, 2, 0, 3, 0, 0], dilations=[1, 2, 1, 1],
    )  # fmt: skip
    yield raw.Conv2D(
        input=_placeholder(4, 8, 16, 16), filter=_placeholder(3, 3, 8, 12), strides=ONES,
        padding="SAME", data_format="NCHW",
    )  # fmt: skip
    yield raw.Conv2DBackpropInput(
        input_sizes=SHAPE, filter=_placeholder(3, 3, 8, 12), out_backprop=grad, **two
    )
    yield raw.Conv2DBackpropFilter(input=x, filter_sizes=[3, 3, 8, 12], out_backprop=grad, **two)
    yield raw.DepthwiseConv2dNative(input=x, filter=_placeholder(3, 3, 8, 2), **two)
    yield raw.Conv3D(
        input=_placeholder(2, 8, 8, 8, 4), filter=_placeholder(3, 2, 1, 4, 6),
        strides=[1] * 5, padding="SAME",
    )  # fmt: skip
    yield raw.Dilation2D(
        input=x, filter=_placeholder(3, 3, 8), strides=ONES, rates=ONES, padding="SAME"
    )


def _poolings():
    raw, x = tf.raw_ops, _placeholder(*SHAPE)
    pooled = raw.MaxPool(input=x, **POOL)
    yield pooled
    yield raw.AvgPool(value=x, **POOL)
    yield raw.AvgPoolGrad(orig_input_shape=SHAPE, grad=pooled, **POOL)
    yield raw.MaxPoolGrad(orig_input=x, orig_output=pooled, grad=pooled, **POOL)


def _products_that_differ():
    raw = tf.raw_ops
    yield raw.BatchMatMulV2(x=_placeholder(3, 7, 5), y=_placeholder(3, 7, 9), adj_x=True)


def _convolutions_that_differ():
    raw = tf.raw_ops
    yield raw.Conv2DBackpropInput(
        input_sizes=[1, 5, 5, 8], filter=_placeholder(3, 3, 8, 12),
        out_backprop=_placeholder(1, 3, 3, 12), strides=[1, 2, 2, 1], padding="SAME",
    )  # fmt: skip
    yield raw.Conv2DBackpropFilter(
        input=_placeholder(1, 5, 5, 8), filter_sizes=[3, 3, 8, 12],
        out_backprop=_placeholder(1, 3, 3, 12), strides=[1, 2, 2, 1], padding="SAME",
    )  # fmt: skip


EQUAL = (_elementwise, _reductions, _products, _convolutions, _poolings)
DIFFERENT = (_products_that_differ, _convolutions_that_differ)

FORMULAS = {
    "BatchMatMulV2": (
        "2 x batch x m x n x k, with k read off as if x were not transposed: it looks for "
        "transpose_a, and the attribute is adj_x",
        "2 x batch x m x n x k",
    ),
    "Conv2DBackpropInput": (
        "2 x (gradient to the input) x filter positions x output channels / (strides): exact only "
        "where the strides divide the input",
        "2 x (gradient of the output) x filter positions x input channels",
    ),
    "Conv2DBackpropFilter": (
        "2 x image x filter positions x output channels / (strides): exact only where the strides "
        "divide the image",
        "2 x (gradient of the output) x filter positions x input channels",
    ),
}
"""Where TensorFlow's count is wrong: its formula, and ours."""


def profiled_types() -> set[str]:
    """The op types whose flops TensorFlow's profiler counts."""
    return {key.partition(",")[0] for key in ops._stats_registry.list() if "flops" in key}


def profiled_flops(op: tf.Operation) -> float | None:
    """TensorFlow's count, ``None`` where it fails on the op."""
    try:
        return ops.get_stats_for_node_def(op.graph, op.node_def, "flops").value
    except (ValueError, TypeError):
        return None


def our_flops(op: tf.Operation) -> int:
    """The count of our cost rules."""

    def properties(tensor: tf.Tensor) -> TensorProperties:
        value = tf.get_static_value(tensor) if tensor.dtype.is_integer else None
        return TensorProperties(
            dtype=tensor.dtype.base_dtype.name,
            shape=None if tensor.shape.rank is None else tuple(tensor.shape.as_list()),
            value=None if value is None else tuple(value.ravel().tolist()),
        )

    def attribute(value: object) -> object:
        if isinstance(value, bytes):
            return value.decode()
        return tuple(map(attribute, value)) if isinstance(value, list) else value

    names = [name for name in op.node_def.attr if name != "value"]
    info = OpInfo(
        op=op.type,
        inputs=tuple(map(properties, op.inputs)),
        outputs=tuple(map(properties, op.outputs)),
        attributes={name: attribute(op.get_attr(name)) for name in names},
    )
    return op_cost(info).flops


def table() -> str:
    """``docs/flops.md``: every type that the profiler counts, on examples."""
    with tf.Graph().as_default():
        equal = [tensor.op for family in EQUAL for tensor in family()]
        different = [tensor.op for family in DIFFERENT for tensor in family()]
        rows = [_row(op) for op in sorted(equal, key=lambda op: op.type)]
        others = [_row(op) + f" {' | '.join(FORMULAS[op.type])} |" for op in different]
    lines = [
        "# Flops beside TensorFlow's profiler",
        "",
        "TensorFlow's profiler has a flop count for the op types below (those registered with",
        '`ops.RegisterStatistics(..., "flops")`).  A test builds an op of every one of them, so a',
        "type that is added there fails it, and holds this page against what it finds; the page is",
        "written by `python tests/cost_models/profiled_ops.py > docs/flops.md`.",
        "",
        "| op type | inputs | output | TensorFlow | placer |",
        "|---|---|---|---:|---:|",
        *rows,
        "",
        "Where TensorFlow's count is wrong, ours differs:",
        "",
        "| op type | inputs | output | TensorFlow | placer | TensorFlow's formula | placer's |",
        "|---|---|---|---:|---:|---|---|",
        *others,
    ]
    return "\n".join(lines) + "\n"


def _row(op: tf.Operation) -> str:
    inputs = ", ".join(str(tensor.shape) for tensor in op.inputs)
    theirs = profiled_flops(op)
    return (
        f"| {op.type} | {inputs} | {op.outputs[0].shape} "
        f"| {'fails' if theirs is None else f'{theirs:,.0f}'} | {our_flops(op):,} |"
    )


if __name__ == "__main__":
    sys.stdout.write(table())
