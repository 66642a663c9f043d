"""Which ops give out a buffer they were given, and which may overwrite one.

``SHARED`` and the rules below it: the output is the input's buffer, seen again (``set_output``
of an input, ``Tensor::CopyFrom``, ``Tensor::Slice`` in ``tensorflow/core/kernels``).
``OVERWRITTEN``: the kernel calls ``forward_input_or_allocate_output`` for these inputs, so that
it writes into the first of them that nobody else holds (``OpKernelContext::forward_input`` in
``tensorflow/core/framework/op_kernel.cc``).
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from cost_models.op_info import OpInfo, ask_once
from cost_models.tensor_size import is_known, tensor_bytes
from placer.graph.op_graph import OpGraph

_SHARING = (
    "Identity GuaranteeConst Reshape Squeeze ExpandDims StopGradient PreventGradient "
    "CheckNumerics CheckNumericsV2 EnsureShape Bitcast PlaceholderWithDefault Print "
    "DebugIdentity Enter Exit NextIteration Switch LoopCond Merge "
    "RefIdentity RefEnter RefExit RefNextIteration RefSwitch RefMerge "
    "Assign AssignAdd AssignSub ScatterUpdate ScatterAdd ScatterSub ScatterMul ScatterDiv "
    "ScatterMin ScatterMax ScatterNdUpdate ScatterNdAdd ScatterNdSub CountUpTo "
    "ApplyAdaMax ApplyAdadelta ApplyAdagrad ApplyAdagradDA ApplyAdagradV2 ApplyAdam ApplyAddSign "
    "ApplyCenteredRMSProp ApplyFtrl ApplyFtrlV2 ApplyGradientDescent ApplyMomentum ApplyPowerSign "
    "ApplyProximalAdagrad ApplyProximalGradientDescent ApplyRMSProp "
    "SparseApplyAdadelta SparseApplyAdagrad SparseApplyAdagradDA SparseApplyAdagradV2 "
    "SparseApplyCenteredRMSProp SparseApplyFtrl SparseApplyFtrlV2 SparseApplyMomentum "
    "SparseApplyProximalAdagrad SparseApplyProximalGradientDescent SparseApplyRMSProp "
    "InplaceUpdate InplaceAdd InplaceSub DestroyTemporaryVariable "
    "TensorListSetItem TensorListGetItem TensorListPushBack TensorListPopBack TensorListResize"
)
SHARED = frozenset(_SHARING.split())
"""Every output is input 0 (of a ``Merge``: the input that is alive; of ref ops: the variable; an
element that is taken out of a list keeps the list)."""

_UNARY = (
    "Abs Acos Acosh Asin Asinh Atan Atanh BesselI0e BesselI1e Ceil Conj Cos Cosh Digamma Elu Erf "
    "Erfc Erfinv Exp Expm1 FakeQuantWithMinMaxArgs Floor Inv Invert LeakyRelu Lgamma Log Log1p "
    "LogSoftmax LogicalNot Ndtri Neg Reciprocal Relu Relu6 Rint Round Rsqrt Selu Sigmoid Sign Sin "
    "Sinh Snapshot Softmax Softplus Softsign Sqrt Square Tan Tanh "
    "BiasAdd BiasAddV1 ClipByValue FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3 "
    "MatrixBandPart BatchMatrixBandPart MatrixSetDiag MatrixSetDiagV2 MatrixSetDiagV3 "
    "TensorScatterAdd TensorScatterMax TensorScatterMin TensorScatterSub TensorScatterUpdate"
)
_BINARY = (
    "Add AddV2 Atan2 BitwiseAnd BitwiseOr BitwiseXor Div DivNoNan EluGrad Equal FloorDiv FloorMod "
    "Igamma IgammaGradA Igammac InvGrad LeakyReluGrad LeftShift LogicalAnd LogicalOr Maximum "
    "Minimum Mod Mul MulNoNan NextAfter NotEqual Polygamma Pow RealDiv ReciprocalGrad Relu6Grad "
    "ReluGrad RightShift RsqrtGrad SeluGrad SigmoidGrad SoftplusGrad SoftsignGrad SqrtGrad "
    "SquaredDifference Sub TanhGrad TruncateDiv TruncateMod Xdivy Xlog1py Xlogy Zeta"
)

OVERWRITTEN: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(_UNARY.split(), (0,)),
    **dict.fromkeys(_BINARY.split(), (0, 1)),
    "Select": (1, 2),
    "SelectV2": (1, 2),
}
"""Inputs that output 0 may be written into, in the order in which they are tried."""

_POSSIBLY_IDLE = "Tile Pad PadV2 MirrorPad BroadcastTo Sum Mean Prod Max Min Any All"

_LOSSES = frozenset({"SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits"})


class Sharing(NamedTuple):
    """For every output the input whose buffer it shares and those that it may overwrite: the
    answers of :func:`shared_input` and :func:`overwritten_inputs`."""

    shared: tuple[int | None, ...]
    overwritten: tuple[tuple[int, ...], ...]


def find_sharing(info: OpInfo) -> Sharing:
    """Returns the buffers that the outputs of one op share with its inputs."""
    numbers = range(len(info.outputs))
    return Sharing(
        shared=tuple([shared_input(info, output) for output in numbers]),
        overwritten=tuple([overwritten_inputs(info, output) for output in numbers]),
    )


def sharing_of(graph: OpGraph) -> list[Sharing]:
    """Returns the sharing of every op, in graph order (ask with :meth:`OpGraph.ask_once`)."""
    return ask_once(find_sharing, graph.infos)


def shared_input(info: OpInfo, output: int) -> int | None:
    """The input whose buffer output number ``output`` is, ``None`` if it has its own."""
    if info.op in SHARED:
        return 0 if info.inputs else None
    if info.op == "IdentityN":
        return output
    rule = _RULES.get(info.op)
    return rule(info, output) if rule else None


def overwritten_inputs(info: OpInfo, output: int) -> tuple[int, ...]:
    """The inputs that output number ``output`` may be written into, in order of preference.

    Only those of its dtype and size; that nobody else holds them is for the caller to see.
    """
    if info.op == "AddN":
        candidates: tuple[int, ...] = tuple(range(len(info.inputs)))
    elif info.op in _LOSSES:
        candidates = (0,) if output == 1 else ()
    else:
        candidates = OVERWRITTEN.get(info.op, ()) if output == 0 else ()
    wanted = info.outputs[output]
    return tuple(
        index
        for index in candidates
        if index < len(info.inputs)
        and info.inputs[index].dtype == wanted.dtype
        and tensor_bytes(info.inputs[index]) == tensor_bytes(wanted) is not None
    )


def find_variables(graph: OpGraph) -> dict[str, str]:
    """The op that each resource tensor comes from, however often the handle was passed on."""
    found: dict[str, str] = {}
    for op in graph.ops.values():
        for index, output in enumerate(op.info.outputs):
            if output.dtype == "resource":
                source = shared_input(op.info, index)
                handle = None if source is None else found.get(op.inputs[source])
                found[op.output_name(index)] = handle or op.name
    return found


def _same_type(info: OpInfo, output: int) -> int | None:
    """``CastOp``: nothing to convert."""
    return 0 if info.inputs[0].dtype == info.outputs[output].dtype else None


def _same_shape(info: OpInfo, output: int) -> int | None:
    """``TileOp``, ``PadOp``, ``BroadcastToOp``, ``ReductionOp``: nothing to do."""
    shape = info.inputs[0].shape
    return 0 if is_known(shape) and shape == info.outputs[output].shape else None


def _only_input(info: OpInfo, output: int) -> int | None:
    """``PackOp``: one tensor packed is that tensor."""
    return 0 if len(info.inputs) == 1 and output == 0 else None


def _kept_permutation(info: OpInfo, output: int) -> int | None:
    """``TransposeOp``: the axes stay where they are."""
    order = info.inputs[1].value if len(info.inputs) > 1 else None
    return output if order is not None and order == tuple(range(len(order))) else None


def _rows(info: OpInfo, source: int, output: int) -> int | None:
    """``source`` if the output is whole rows (slices of dimension 0) of it, aligned."""
    rows, part = info.inputs[source].shape, info.outputs[output].shape
    if not rows or part is None or None in rows or None in part or not rows[0]:
        return None
    size = tensor_bytes(info.inputs[source])
    whole_rows = part[1:] == rows[1:] or part == rows[1:]
    aligned = size is not None and size // rows[0] % 64 == 0  # ``EIGEN_MAX_ALIGN_BYTES``
    return source if whole_rows and aligned else None


def _split_rows(info: OpInfo, output: int) -> int | None:
    """``SplitOp`` and ``SplitVOp``: one part, or an aligned split of dimension 0."""
    source = 1 if info.op == "Split" else 0
    if len(info.outputs) == 1:
        return source
    return _rows(info, source, output)


def _sliced_rows(info: OpInfo, output: int) -> int | None:
    """``SliceOp``, ``StridedSliceOp``, ``UnpackOp``: everything, or aligned rows in order."""
    strides = info.inputs[3].value if info.op == "StridedSlice" and len(info.inputs) > 3 else ()
    if strides is None or any(stride != 1 for stride in strides):
        return None
    everything = _same_shape(info, output)
    return _rows(info, 0, output) if everything is None else everything


_RULES: Mapping[str, Callable[[OpInfo, int], int | None]] = {
    "Cast": _same_type,
    **dict.fromkeys(_POSSIBLY_IDLE.split(), _same_shape),
    "Pack": _only_input,
    "Transpose": _kept_permutation,
    **dict.fromkeys(("Split", "SplitV"), _split_rows),
    **dict.fromkeys(("Slice", "StridedSlice", "Unpack"), _sliced_rows),
}


_SPARSE_ACCESS = (
    "ResourceGather",
    "ResourceScatter",
    "ResourceSparseApply",
    "ResourceStridedSliceAssign",
)


def find_copied_variables(graph: OpGraph, variable_of: Mapping[str, str]) -> frozenset[str]:
    """The variables that are also accessed row by row, so that a read copies them."""
    return frozenset(
        variable_of[tensor]
        for op in graph.ops.values()
        if op.op_type.startswith(_SPARSE_ACCESS)
        for tensor in op.inputs
        if tensor in variable_of
    )
