"""Factorisations, solvers and Fourier transforms: the leading terms of the textbook counts.

Golub and Van Loan, "Matrix Computations", 4th edition, 2013; for the transforms Cooley and Tukey,
https://doi.org/10.1090/S0025-5718-1965-0178586-1.
"""

from collections.abc import Mapping
from math import log2, prod

from cost_models.op_info import OpInfo, TensorProperties
from cost_models.registry import Work, cost_rule
from cost_models.tensor_size import counted_shape, element_count

_CUBIC: Mapping[str, float] = {
    "Cholesky": 1 / 3,
    "CholeskyGrad": 2,
    "Lu": 2 / 3,
    "MatrixDeterminant": 2 / 3,
    "LogMatrixDeterminant": 2 / 3,
    "MatrixInverse": 2,
    "MatrixExponential": 20,
    "MatrixLogarithm": 30,
    "MatrixSquareRoot": 30,
    "SelfAdjointEig": 9,
    "SelfAdjointEigV2": 9,
    "Eig": 25,
}
"""Flops of an n by n matrix in units of n**3."""


@cost_rule(*_CUBIC)
def factorisation_work(info: OpInfo) -> Work:
    """So many n**3 for every matrix of the batch."""
    batch, _, size = _matrices(info.inputs[0])
    return Work(flops=round(_CUBIC[info.op] * size**3) * batch)


@cost_rule("Qr Svd")
def rectangular_factorisation_work(info: OpInfo) -> Work:
    """``2 m n**2`` and as much again for the factor; a singular value decomposition takes about
    five times that."""
    batch, rows, columns = _matrices(info.inputs[0])
    small, large = sorted((rows, columns))
    return Work(flops=batch * (20 if info.op == "Svd" else 4) * large * small**2)


@cost_rule("MatrixSolve MatrixSolveLs MatrixTriangularSolve BandedTriangularSolve")
def solve_work(info: OpInfo) -> Work:
    """A factorisation where one is needed, and ``n**2`` multiply-adds per right-hand side."""
    batch, rows, size = _matrices(info.inputs[0])
    _, _, sides = _matrices(info.inputs[1])
    factor = {"MatrixSolve": 2 * size**3 // 3, "MatrixSolveLs": 2 * rows * size**2}
    triangles = 1 if "Triangular" in info.op else 2
    return Work(flops=batch * (factor.get(info.op, 0) + triangles * rows * size * sides))


_PER_OUTPUT: Mapping[str, int] = {
    "TridiagonalSolve": 8,  # about so many per row and right-hand side
    "TridiagonalMatMul": 8,
    "Cross": 3,  # two products and a subtraction
}


@cost_rule(*_PER_OUTPUT)
def per_output_work(info: OpInfo) -> Work:
    """So many flops per element of the output."""
    return Work(flops=_PER_OUTPUT[info.op] * element_count(info.outputs[0]))


_FOURIER_RANK = {"": 1, "2D": 2, "3D": 3}


@cost_rule(
    *[f"{kind}{rank}" for kind in ("FFT", "IFFT", "RFFT", "IRFFT") for rank in _FOURIER_RANK]
)
def fourier_work(info: OpInfo) -> Work:
    """``5 n log2(n)`` for each transform of n points; half of that for real ones."""
    signal = info.outputs[0] if info.op.startswith("IRFFT") else info.inputs[0]
    rank = _FOURIER_RANK[info.op.partition("FFT")[2]]
    shape = counted_shape(signal.shape)
    points = prod(shape[-rank:])
    flops = round(5 * element_count(signal) * log2(max(2, points)))
    return Work(flops=flops // 2 if "R" in info.op else flops)


def _matrices(tensor: TensorProperties) -> tuple[int, int, int]:
    """Batch, rows and columns of a tensor whose last two dimensions are matrices."""
    shape = (1, 1, *counted_shape(tensor.shape))
    return prod(shape[:-2]), shape[-2], shape[-1]
