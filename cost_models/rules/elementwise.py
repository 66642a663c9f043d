"""Elementwise ops: so many flops per element.

An arithmetic operation, a comparison or an elementary function (exp, log, tanh) counts one, as in
TensorFlow's ``flops_registry.py``; composed functions count their steps.
"""

from collections.abc import Mapping

from cost_models.op_info import OpInfo
from cost_models.registry import Work, cost_rule
from cost_models.tensor_size import element_count

_UNARY_FLOPS: Mapping[int, str] = {
    1: """
        Abs Neg Sign Floor Ceil Rint Round Exp Log Sqrt Square Reciprocal Inv Relu Tanh Sin Cos Tan
        Sinh Cosh Asin Acos Atan Asinh Acosh Atanh Erf Erfc Erfinv Ndtri Lgamma Digamma Conj Angle
        IsFinite IsInf IsNan LogicalNot Invert PopulationCount CheckNumerics CheckNumericsV2 ToBool
        BesselI0 BesselI1 BesselI0e BesselI1e BesselJ0 BesselJ1 BesselK0 BesselK1 BesselK0e
        BesselK1e BesselY0 BesselY1 Dawsn Expint FresnelCos FresnelSin Spence BiasAdd BiasAddV1
    """,
    2: "Rsqrt Log1p Expm1 Relu6 LeakyRelu Elu Selu",
    3: "Sigmoid Softplus Softsign ComplexAbs Dequantize QuantizeV2 Requantize RequantizePerChannel",
    4: """
        QuantizeAndDequantize QuantizeAndDequantizeV2 QuantizeAndDequantizeV3
        QuantizeAndDequantizeV4 FakeQuantWithMinMaxArgs FakeQuantWithMinMaxVars
        FakeQuantWithMinMaxVarsPerChannel UniformQuantize UniformDequantize UniformRequantize
    """,
}
"""Per element of the first input."""

_BROADCAST_FLOPS: Mapping[int, str] = {
    1: """
        Add AddV2 Sub Mul Div RealDiv FloorDiv TruncateDiv DivNoNan MulNoNan Mod FloorMod
        TruncateMod Maximum Minimum Pow Atan2 NextAfter Equal NotEqual Less LessEqual Greater
        GreaterEqual LogicalAnd LogicalOr BitwiseAnd BitwiseOr BitwiseXor LeftShift RightShift
        Select SelectV2 Igamma Igammac IgammaGradA Zeta Polygamma Betainc RandomGammaGrad
        SparseDenseCwiseAdd SparseDenseCwiseMul SparseDenseCwiseDiv SparseTensorDenseAdd
        ReluGrad LeakyReluGrad FakeQuantWithMinMaxArgsGradient QuantizeAndDequantizeV4Grad
    """,
    2: """
        SquaredDifference Xdivy Xlogy ClipByValue Relu6Grad EluGrad SeluGrad SqrtGrad
        FakeQuantWithMinMaxVarsGradient FakeQuantWithMinMaxVarsPerChannelGradient
    """,
    3: """
        ApproximateEqual Xlog1py SigmoidGrad TanhGrad SoftplusGrad ReciprocalGrad InvGrad
    """,
    4: "RsqrtGrad SoftsignGrad",
}
"""Per element of the output, to which the inputs are broadcast."""


def _listed(table: Mapping[int, str]) -> dict[str, int]:
    return {op_type: flops for flops, listed in table.items() for op_type in listed.split()}


_PER_INPUT = _listed(_UNARY_FLOPS)
_PER_OUTPUT = _listed(_BROADCAST_FLOPS)


@cost_rule(*_PER_INPUT)
def unary_work(info: OpInfo) -> Work:
    """So many flops per element of the input."""
    return Work(flops=_PER_INPUT[info.op] * element_count(info.inputs[0]))


@cost_rule(*_PER_OUTPUT)
def broadcast_work(info: OpInfo) -> Work:
    """So many flops per element of the output."""
    return Work(flops=_PER_OUTPUT[info.op] * element_count(info.outputs[0]))


@cost_rule("AddN AccumulateNV2")
def sum_of_tensors_work(info: OpInfo) -> Work:
    """One addition less than there are inputs, per element."""
    return Work(flops=max(0, len(info.inputs) - 1) * element_count(info.outputs[0]))


@cost_rule("_UnaryOpsComposition")
def composition_work(info: OpInfo) -> Work:
    """The flops of the ops that Grappler has fused, per element."""
    names = info.attributes.get("op_names", ())
    fused = names if isinstance(names, tuple | list) else ()
    per_element = sum(_PER_INPUT.get(str(name), 1) for name in fused)
    return Work(flops=per_element * element_count(info.inputs[0]))
