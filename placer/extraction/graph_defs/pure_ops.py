"""The ops that may be computed while a model is read.

TensorFlow computes constant parts of a graph when it imports it or optimises it, to know shapes: it
runs the kernel of every op that is not stateful and whose inputs are constants.  ``ReadFile`` is
one, and there are more that read files, load descriptions or run functions.  Only what is listed
here is left to it.  An op of any other type keeps its shape function but has no kernel, so that its
value stays unknown.
"""

from typing import Any

from placer.extraction.graph_defs.op_definitions import OpDefinitions
from placer.graph.op_types import CALLS, CONTROL_FLOW

_PURE_TABLE = """
Abs Acos Acosh Add AddN AddV2 All Any ApproximateEqual ArgMax ArgMin AsString Asin Asinh Atan Atan2
Atanh AvgPool AvgPool3D AvgPool3DGrad AvgPoolGrad BatchMatMul BatchMatMulV2 BatchMatMulV3
BatchToSpace BatchToSpaceND BiasAdd BiasAddGrad BiasAddV1 Bincount Bitcast BitwiseAnd BitwiseOr
BitwiseXor BroadcastArgs BroadcastGradientArgs BroadcastTo Bucketize Cast Ceil ClipByValue Concat
ConcatOffset ConcatV2 ConjugateTranspose Const ControlTrigger Conv2D Conv2DBackpropFilter
Conv2DBackpropInput Conv3D Conv3DBackpropFilterV2 Conv3DBackpropInputV2 Cos Cosh Cross Cumprod
Cumsum DataFormatDimMap DataFormatVecPermute DenseBincount DepthToSpace DepthwiseConv2dNative
DepthwiseConv2dNativeBackpropFilter DepthwiseConv2dNativeBackpropInput Diag DiagPart Div DivNoNan
DynamicPartition DynamicStitch Elu EluGrad EmptyTensorList EnsureShape Enter Equal Erf Erfc Erfinv
EuclideanNorm Exit Exp ExpandDims Expm1 Fill Floor FloorDiv FloorMod FusedBatchNorm
FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3 FusedBatchNormV2 FusedBatchNormV3
Gather GatherNd GatherV2 Greater GreaterEqual Identity IdentityN InTopK InTopKV2 Inv InvGrad Invert
InvertPermutation IsFinite IsInf IsNan L2Loss LRN LRNGrad LeakyRelu LeakyReluGrad LeftShift Less
LessEqual LinSpace ListDiff Log Log1p LogSoftmax LogicalAnd LogicalNot LogicalOr LoopCond LowerBound
MatMul MatrixBandPart MatrixDiag MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3 MatrixDiagV2
MatrixDiagV3 MatrixSetDiag MatrixSetDiagV2 MatrixSetDiagV3 Max MaxPool MaxPool3D MaxPool3DGrad
MaxPoolGrad MaxPoolGradV2 MaxPoolV2 MaxPoolWithArgmax Maximum Mean Merge Min Minimum MirrorPad
MirrorPadGrad Mod Mul MulNoNan Neg NextIteration NoOp NotEqual OneHot OnesLike Pack Pad PadV2
ParallelDynamicStitch Placeholder PlaceholderV2 PlaceholderWithDefault Pow PreventGradient Prod
RaggedRange Range Rank RealDiv Reciprocal ReciprocalGrad RefEnter RefExit RefMerge RefNextIteration
RefSwitch Relu Relu6 Relu6Grad ReluGrad Reshape Reverse ReverseSequence ReverseV2 RightShift Rint
Roll Round Rsqrt RsqrtGrad ScatterNd SegmentMax SegmentMean SegmentMin SegmentProd SegmentSum Select
SelectV2 Selu SeluGrad Shape ShapeN Sigmoid SigmoidGrad Sign Sin Sinh Size Slice Snapshot Softmax
SoftmaxCrossEntropyWithLogits Softplus SoftplusGrad Softsign SoftsignGrad SpaceToBatch
SpaceToBatchND SpaceToDepth SparseReshape SparseSoftmaxCrossEntropyWithLogits SparseToDense Split
SplitV Sqrt SqrtGrad Square SquaredDifference Squeeze StopGradient StridedSlice StridedSliceGrad
StringJoin StringLength StringLower StringSplit StringSplitV2 StringStrip StringToNumber StringUpper
Sub Substr Sum Switch Tan Tanh TanhGrad TensorListConcatLists TensorListElementShape
TensorListFromTensor TensorListGather TensorListGetItem TensorListLength TensorListPopBack
TensorListPushBack TensorListReserve TensorListScatter TensorListScatterV2 TensorListSetItem
TensorListStack TensorScatterAdd TensorScatterMax TensorScatterMin TensorScatterSub
TensorScatterUpdate Tile TopK TopKV2 Transpose TruncateDiv TruncateMod Unique UniqueV2
UniqueWithCounts UniqueWithCountsV2 Unpack UnravelIndex UnsortedSegmentMax UnsortedSegmentMin
UnsortedSegmentProd UnsortedSegmentSum UpperBound Where ZerosLike
"""
PURE_OPS = frozenset(_PURE_TABLE.split())
"""Op types that compute their outputs from their inputs and from nothing else (no file, clock,
random number, network, function or Python code), or pass them on."""


def may_run(op_type: str, definitions: OpDefinitions) -> bool:
    """Whether ops of a type may run while a model is read.

    TensorFlow runs nothing stateful then, nor functions
    (``common_runtime/eval_const_tensor.cc``, ``grappler/optimizers/constant_folding.cc``).
    """
    if op_type in PURE_OPS or op_type in CALLS or op_type in CONTROL_FLOW:
        return True
    definition = definitions.registered(op_type)
    return definition is not None and bool(definition.is_stateful)


def withhold_kernel(node: Any) -> None:
    """Makes TensorFlow find no kernel for a node, in place: it cannot run."""
    # a label that no kernel of the op type has (``core/framework/kernel_def_builder.h``)
    node.attr["_kernel"].s = b"placer.never"
