"""Matrix products: 2 m k n flops (``_calc_mat_mul_flops`` in TensorFlow's flops registry)."""

from cost_models.op_info import OpInfo
from cost_models.registry import FMA_FLOPS, Work, cost_rule
from cost_models.tensor_size import counted_shape, element_count


@cost_rule("""
    MatMul SparseMatMul QuantizedMatMul BatchMatMul BatchMatMulV2 BatchMatMulV3 _FusedMatMul
""")
def matmul_work(info: OpInfo) -> Work:
    """``2 * k`` per element of the output, k being the contracted dimension of the first input, and
    one flop for each fused op (bias, activation)."""
    fused = info.attributes.get("fused_ops", ())
    steps = len(fused) if isinstance(fused, tuple | list) else 0
    count = element_count(info.outputs[0])
    return Work(flops=(FMA_FLOPS * _contracted(info) + steps) * count)


@cost_rule("SparseTensorDenseMatMul")
def sparse_dense_matmul_work(info: OpInfo) -> Work:
    """``2 * nnz * n``: every stored value meets one row (or column, if adjoint) of the matrix."""
    values = element_count(info.inputs[1])
    columns = counted_shape(info.outputs[0].shape)[-1:] or (1,)
    return Work(flops=FMA_FLOPS * values * columns[0])


def _contracted(info: OpInfo) -> int:
    """The dimension that is summed over, read off the second input where the first hides it."""
    first_flipped = any(info.attributes.get(key) for key in ("transpose_a", "adj_x"))
    second_flipped = any(info.attributes.get(key) for key in ("transpose_b", "adj_y"))
    for tensor, from_end in (
        (info.inputs[0], 2 if first_flipped else 1),
        (info.inputs[1], 1 if second_flipped else 2),
    ):
        shape = tensor.shape
        if shape is not None and len(shape) >= from_end:
            size = shape[-from_end]
            if size is not None:
                return size
    return 1
