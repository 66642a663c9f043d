"""What the rules count, as formulas."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_models import registry
from cost_models.op_info import OpInfo, TensorProperties
from cost_models.registry import op_cost

MIB = 1 << 20


def tensor(*shape, dtype="float32", value=None):
    return TensorProperties(dtype=dtype, shape=shape, value=value)


def unknown(dtype="float32"):
    return TensorProperties(dtype=dtype, shape=None)


def cost(op_type, inputs, outputs, **attributes):
    return op_cost(
        OpInfo(op=op_type, inputs=tuple(inputs), outputs=tuple(outputs), attributes=attributes)
    )


RESOURCE = tensor(dtype="resource")
M, K, N, B = 5, 7, 9, 3


@pytest.mark.parametrize(
    ("op_type", "inputs", "outputs", "attributes", "flops"),
    [
        ("MatMul", [tensor(M, K), tensor(K, N)], [tensor(M, N)], {}, 2 * M * K * N),
        ("MatMul", [unknown(), tensor(K, N)], [tensor(M, N)], {}, 2 * M * K * N),
        (
            "BatchMatMulV2",
            [tensor(B, K, M), tensor(B, K, N)],
            [tensor(B, M, N)],
            {"adj_x": True},
            2 * B * M * K * N,
        ),
        (
            "_FusedMatMul",
            [tensor(M, K), tensor(K, N), tensor(N)],
            [tensor(M, N)],
            {"fused_ops": ("BiasAdd", "Relu")},
            (2 * K + 2) * M * N,
        ),
        (
            "SparseTensorDenseMatMul",
            [tensor(20, 2, dtype="int64"), tensor(20), tensor(2, dtype="int64"), tensor(K, N)],
            [tensor(M, N)],
            {},
            2 * 20 * N,
        ),
        (
            "Einsum",
            [tensor(2, M, 4, K), tensor(2, N, 4, K)],
            [tensor(2, 4, M, N)],
            {"equation": "BTNH,BSNH->BNTS"},
            2 * (2 * 4 * M * N * K),
        ),
        (
            "Einsum",
            [tensor(B, M, K), tensor(K, N)],
            [tensor(B, M, N)],
            {"equation": "...ij,jk->...ik"},
            2 * B * M * N * K,
        ),
        (
            "Einsum",
            [tensor(M, K), tensor(K, N)],
            [tensor(M, N)],
            {"equation": "ij,jk"},
            2 * M * K * N,
        ),
        ("Einsum", [tensor(M, K)], [tensor(M)], {"equation": "ij->i"}, M * K),
        (
            "_FusedConv2D",
            [tensor(2, 8, 8, 3), tensor(3, 3, 3, 4), tensor(4)],
            [tensor(2, 8, 8, 4)],
            {"fused_ops": ("BiasAdd",), "data_format": "NHWC"},
            (2 * 3 * 3 * 3 + 1) * (2 * 8 * 8 * 4),
        ),
        (
            "DepthwiseConv2dNativeBackpropFilter",
            [tensor(2, 8, 8, 3), tensor(4, dtype="int32"), tensor(2, 8, 8, 6)],
            [tensor(5, 5, 3, 2)],
            {},
            2 * (5 * 5) * (2 * 8 * 8 * 6),
        ),
        (
            "Conv3DBackpropInputV2",
            [tensor(5, dtype="int32"), tensor(3, 3, 3, 4, 6), tensor(2, 8, 8, 8, 6)],
            [tensor(2, 8, 8, 8, 4)],
            {},
            2 * (3 * 3 * 3 * 4) * (2 * 8 * 8 * 8 * 6),
        ),
        ("Sigmoid", [tensor(10)], [tensor(10)], {}, 3 * 10),
        ("Mul", [tensor(8, 1), tensor(5)], [tensor(8, 5)], {}, 8 * 5),
        ("AddN", [tensor(10)] * 4, [tensor(10)], {}, 3 * 10),
        ("Sum", [tensor(4, 6), tensor(1, dtype="int32", value=(1,))], [tensor(4)], {}, 24 - 4),
        (
            "FusedBatchNormV3",
            [tensor(2, 4, 4, 3)],
            [tensor(2, 4, 4, 3)],
            {"is_training": False},
            2 * (2 * 4 * 4 * 3),
        ),
        ("TopKV2", [tensor(10, 100), tensor()], [tensor(10, 8), tensor(10, 8)], {}, 1000 * 3),
        (
            "NonMaxSuppressionV3",
            [tensor(64, 4), tensor(64), tensor(dtype="int32", value=(10,)), tensor(), tensor()],
            [TensorProperties(dtype="int32", shape=(None,))],
            {},
            64 * 6 + 15 * 64 * 10,
        ),
        (
            "LSTMBlockCell",
            [tensor(B, K), tensor(B, M), tensor(B, M), tensor(K + M, 4 * M)],
            [tensor(B, M)] * 7,
            {},
            2 * B * (K + M) * 4 * M + 25 * B * M,
        ),
        ("FFT", [tensor(4, 64)], [tensor(4, 64)], {}, 5 * (4 * 64) * 6),
        ("MatrixInverse", [tensor(B, 6, 6)], [tensor(B, 6, 6)], {}, 2 * 6**3 * B),
        ("ResizeBilinear", [tensor(1, 4, 4, 3), tensor(2)], [tensor(1, 8, 8, 3)], {}, 9 * 192),
    ],
)
def test_flops(op_type, inputs, outputs, attributes, flops):
    """The flops of an op are those of its formula."""
    assert cost(op_type, inputs, outputs, **attributes).flops == flops


INDICES = tensor(20, dtype="int32")


@pytest.mark.parametrize(
    ("op_type", "inputs", "outputs", "accessed"),
    [
        ("Transpose", [tensor(3, 5), tensor(2, dtype="int32")], [tensor(5, 3)], 2 * 60 + 8),
        ("ResourceGather", [RESOURCE, INDICES], [tensor(20, 16)], 2 * 1280 + 80),
        ("GatherV2", [tensor(10**6, 16), INDICES, tensor()], [tensor(20, 16)], 2 * 1280 + 80),
        ("ResourceScatterAdd", [RESOURCE, INDICES, tensor(20, 16)], [], 3 * 1280 + 80),
        ("ScatterNdUpdate", [tensor(10**6, 16), INDICES, tensor(20, 16)], [], 2 * 1280 + 80),
        ("StridedSlice", [tensor(10**6), tensor(1), tensor(1), tensor(1)], [tensor(10)], 2 * 40),
        ("Fill", [tensor(2, dtype="int32"), tensor()], [tensor(10, 10)], 400),
        (
            "SparseSegmentSum",
            [tensor(10**6, 16), INDICES, tensor(20, dtype="int32")],
            [tensor(4, 16)],
            20 * 64 + 2 * 80 + 4 * 64,
        ),
        ("ResourceApplyAdam", [RESOURCE] * 3 + [tensor()] * 6 + [tensor(100)], [], 7 * 400),
        ("ResourceApplyGradientDescent", [RESOURCE, tensor(), tensor(100)], [], 3 * 400),
        (
            "ResourceSparseApplyAdagrad",
            [RESOURCE, RESOURCE, tensor(), tensor(20, 16), INDICES],
            [],
            5 * 1280 + 80,
        ),
        ("AssignAddVariableOp", [RESOURCE, tensor(100)], [], 3 * 400),
        ("TensorListStack", [tensor(dtype="variant"), tensor(1)], [tensor(7, 5)], 2 * 140),
    ],
)
def test_traffic(op_type, inputs, outputs, accessed):
    """Bytes are those that are touched: rows by index, not tables; states of an optimizer."""
    assert cost(op_type, inputs, outputs).bytes_accessed == accessed


def test_the_filter_gradient_unfolds_as_many_images_as_fill_the_working_set():
    """The temporary is the shard of unfolded images, whatever the batch."""
    positions, patch, channels = 16 * 16, 3 * 3 * 8, 12
    work_unit = positions * patch + positions * channels + patch * channels
    images = -(-30 * MIB // 4 // work_unit)
    for batch in (1, 64):
        gradient = cost(
            "Conv2DBackpropFilter",
            [tensor(batch, 16, 16, 8), tensor(4, dtype="int32"), tensor(batch, 16, 16, 12)],
            [tensor(3, 3, 8, 12)],
        )
        assert gradient.temporary_bytes == images * positions * patch * 4


def test_the_layout_does_not_change_the_cost():
    """NCHW has the flops and temporaries of NHWC."""
    rows = {
        "NHWC": [(4, 16, 16, 8), (4, 16, 16, 12)],
        "NCHW": [(4, 8, 16, 16), (4, 12, 16, 16)],
    }
    costs = [
        cost(
            "Conv2DBackpropFilter",
            [tensor(*image), tensor(4, dtype="int32"), tensor(*gradient)],
            [tensor(3, 3, 8, 12)],
            data_format=layout,
        )
        for layout, (image, gradient) in rows.items()
    ]
    assert costs[0] == costs[1]


def test_the_reserved_output_of_a_batch_norm_is_a_scalar():
    """The output whose shape inference always leaves open has the size that the kernel gives it."""
    outputs = [tensor(2, 4, 4, 3)] + [tensor(3)] * 4 + [unknown()]
    found = cost("FusedBatchNormV3", [tensor(2, 4, 4, 3)] + [tensor(3)] * 4, outputs)
    assert found.output_bytes == (384, 12, 12, 12, 12, 4)
    assert not found.inaccurate


def test_an_unknown_batch_counts_one_and_is_flagged():
    """An open dimension is taken as 1, and the cost says that it is inaccurate."""
    rows = TensorProperties(dtype="float32", shape=(None, K))
    out = TensorProperties(dtype="float32", shape=(None, N))
    found = cost("MatMul", [rows, tensor(K, N)], [out])
    assert found.flops == 2 * K * N
    assert found.output_bytes == (None,)
    assert found.inaccurate


ARGUMENTS = {
    "Conv2DBackpropInput": {1: "filter", 2: "out_backprop"},
    "Conv2DBackpropFilter": {0: "input", 2: "out_backprop"},
    "MaxPoolGrad": {1: "orig_output"},
    "MaxPoolGradV2": {3: "ksize"},
    "MaxPoolV2": {1: "ksize"},
    "AvgPoolGrad": {1: "grad"},
    "NonMaxSuppressionV3": {0: "boxes", 2: "max_output_size"},
    "CombinedNonMaxSuppression": {1: "scores", 2: "max_output_size_per_class"},
    "CudnnRNN": {0: "input", 3: "params"},
    "LSTMBlockCell": {0: "x", 3: "w"},
    "BlockLSTM": {1: "x", 4: "w"},
    "BlockLSTMGrad": {1: "x", 4: "w"},
    "GRUBlockCell": {1: "h_prev", 2: "w_ru", 3: "w_c"},
    "StridedSliceAssign": {4: "value"},
    "ResourceStridedSliceAssign": {4: "value"},
    "TensorStridedSliceUpdate": {4: "value"},
    "TensorArrayScatterV3": {2: "value"},
    "TensorArraySplitV3": {1: "value"},
    "TensorArrayUnpack": {1: "value"},
    "TensorListScatterIntoExistingList": {1: "tensor"},
    "TensorListPushBackBatch": {1: "tensor"},
    "SparseTensorDenseMatMul": {1: "a_values"},
    "SparseSegmentSumGrad": {0: "grad", 1: "indices"},
    "ScatterNd": {1: "updates"},
    "ResourceScatterNdAdd": {1: "indices", 2: "updates"},
    "TensorScatterAdd": {1: "indices", 2: "updates"},
    "SparseSoftmax": {1: "sp_values"},
    "LowerBound": {0: "sorted_inputs", 1: "values"},
}
"""The arguments that rules take by number."""


def test_rules_take_the_arguments_they_mean():
    """The input numbers in the rules are those of the op definitions: gradients of optimizers,
    filters, updates, weights."""
    pytest.importorskip("tensorflow")
    from benchmarks.inputs.kernel_snapshot import op_definitions
    from cost_models.rules.optimizers import _PREFIXES, UPDATES

    definitions = op_definitions()
    for op_type, arguments in ARGUMENTS.items():
        for number, name in arguments.items():
            assert definitions[op_type].input_arg[number].name == name, op_type
    checked = 0
    for prefix in _PREFIXES:
        for rule, update in UPDATES.items():
            definition = definitions.get(prefix + rule)
            if definition is None:
                continue
            names = [argument.name for argument in definition.input_arg]
            assert names[update.gradient] in ("grad", "delta"), definition.name
            assert "Sparse" not in prefix or names[update.gradient + 1] == "indices"
            checked += 1
    assert checked > 50


DIMENSIONS = st.one_of(st.none(), st.integers(0, 4))
SHAPES = st.one_of(st.none(), st.lists(DIMENSIONS, max_size=5).map(tuple))
TENSORS = st.builds(
    TensorProperties,
    dtype=st.sampled_from(["float32", "int32", "string", "resource", "variant"]),
    shape=SHAPES,
)


@settings(max_examples=25, deadline=None)
@given(st.lists(TENSORS, min_size=14, max_size=14))
def test_no_rule_stumbles_over_shapes(tensors):
    """Every rule answers for any ranks and unknown dimensions, and never with a negative."""
    op_cost(OpInfo(op="NoOp"))
    for op_type in registry._RULES:
        found = op_cost(OpInfo(op=op_type, inputs=tuple(tensors), outputs=tuple(reversed(tensors))))
        assert min(found.flops, found.bytes_accessed, found.temporary_bytes) >= 0, op_type
        assert len(found.output_bytes) == len(tensors)


def test_a_cpu_runs_the_groups_of_a_convolution_one_after_another():
    """Eight groups are eight pieces; an ordinary convolution is one, and so is a depthwise op."""
    image, result = tensor(1, 6, 6, 16), tensor(1, 6, 6, 32)
    assert cost("Conv2D", [image, tensor(3, 3, 2, 32)], [result]).pieces == 8
    assert cost("Conv2D", [image, tensor(3, 3, 16, 32)], [result]).pieces == 1
    depthwise = cost("DepthwiseConv2dNative", [image, tensor(3, 3, 16, 2)], [result])
    assert (depthwise.pieces, depthwise.packed_bytes, depthwise.family) == (1, 0, "depthwise")


def test_a_cpu_unfolds_images_and_packs_the_filter_for_every_product():
    """Im2col has a row per output pixel; the input's gradient multiplies image by image where one
    image is work enough, and packs the filter each time."""
    batch, size, channels, out = 8, 4, 256, 512
    image, filters = tensor(batch, size, size, channels), tensor(3, 3, channels, out)
    result = tensor(batch, size, size, out)
    unfolded = 4 * batch * size * size * 9 * channels
    assert cost("Conv2D", [image, filters], [result]).packed_bytes == unfolded
    gradient = cost("Conv2DBackpropInput", [tensor(4, dtype="int32"), filters, result], [image])
    cache_line = 64
    assert gradient.packed_bytes == 2 * unfolded + batch * cache_line * 9 * channels * out
