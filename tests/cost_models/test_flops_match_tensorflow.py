"""Our flops beside those of TensorFlow's profiler, op by op."""

import pytest

from cost_models.registry import op_cost

tf = pytest.importorskip("tensorflow")

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


FAMILIES = [_elementwise, _reductions, _products, _convolutions, _poolings]


def _profiled_flops(graph, op):
    from tensorflow.python.framework import ops

    return ops.get_stats_for_node_def(graph, op.node_def, "flops").value


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__.strip("_"))
def test_flops_equal_those_of_the_profiler(family, op_info_of):
    """Every op type that the profiler knows, and that means the same there, has equal flops."""
    with tf.Graph().as_default() as graph:
        for tensor in family():
            op = tensor.op
            assert op_cost(op_info_of(op)).flops == _profiled_flops(graph, op), op.type


def test_where_the_profiler_errs(op_info_of):
    """Three differences: the profiler looks for transpose_a on a batch product whose attribute is
    adj_x; it divides a gradient's flops by the strides although the output was rounded up; and it
    does not know NCHW."""
    raw = tf.raw_ops
    with tf.Graph().as_default() as graph:
        product = raw.BatchMatMulV2(x=_placeholder(3, 7, 5), y=_placeholder(3, 7, 9), adj_x=True)
        assert op_cost(op_info_of(product.op)).flops == 2 * 3 * 5 * 7 * 9
        assert _profiled_flops(graph, product.op) == 2 * 3 * 5 * 5 * 9
        gradient = raw.Conv2DBackpropInput(
            input_sizes=[1, 5, 5, 8], filter=_placeholder(3, 3, 8, 12),
            out_backprop=_placeholder(1, 3, 3, 12), strides=[1, 2, 2, 1], padding="SAME",
        )  # fmt: skip
        assert op_cost(op_info_of(gradient.op)).flops == 2 * (3 * 3 * 12) * (3 * 3 * 8)
        assert _profiled_flops(graph, gradient.op) == 2 * (5 * 5 / 4 * 12) * (3 * 3 * 8)
        flipped = raw.Conv2D(
            input=_placeholder(4, 8, 16, 16), filter=_placeholder(3, 3, 8, 12), strides=ONES,
            padding="SAME", data_format="NCHW",
        )  # fmt: skip
        assert op_cost(op_info_of(flipped.op)).flops == 2 * (4 * 12 * 16 * 16) * (3 * 3 * 8)


def test_the_profiler_knows_no_op_that_we_leave_out():
    """Every op type with a flops rule in TensorFlow has one here."""
    from tensorflow.python.framework import ops
    from tensorflow.python.profiler.internal import flops_registry  # noqa: F401

    from cost_models.registry import has_rule

    profiled = {key.partition(",")[0] for key in ops._stats_registry.list() if "flops" in key}
    assert len(profiled) > 40
    assert sorted(op_type for op_type in profiled if not has_rule(op_type)) == []
