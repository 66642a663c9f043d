"""Which ops treat the examples of a batch apart, and along which axis their results hold them.

A rule sees one op twice, as it is with two sizes of the batch, and what is known of its inputs.
Where a dimension of a result grows with the batch, the shapes say so; the rule says whether row
``i`` of the result depends on example ``i`` alone.  An op type without a rule is taken to mix them.
"""

import math
from collections.abc import Callable, Sequence
from functools import reduce

from placer.extraction.divisibility.batch_op import (
    SIZE,
    BatchOp,
    Examples,
    MixesExamples,
    State,
    Undecided,
    join_states,
)

Rule = Callable[[BatchOp], list[State]]
_RULES: dict[str, Rule] = {}


def _rule(op_types: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        _RULES.update(dict.fromkeys(op_types.split(), rule))
        return rule

    return register


_ALIGNED = """
    Abs Neg Sign Floor Ceil Rint Round Exp Log Sqrt Square Reciprocal Inv Relu Tanh Sin Cos Tan
    Sinh Cosh Asin Acos Atan Asinh Acosh Atanh Erf Erfc Erfinv Ndtri Lgamma Digamma Conj Angle Real
    Imag ComplexAbs Complex IsFinite IsInf IsNan LogicalNot Invert CheckNumerics CheckNumericsV2
    Rsqrt Log1p Expm1 Relu6 LeakyRelu Elu Selu Sigmoid Softplus Softsign
    FakeQuantWithMinMaxArgs FakeQuantWithMinMaxVars FakeQuantWithMinMaxVarsPerChannel
    QuantizeAndDequantizeV2 QuantizeAndDequantizeV4 Bucketize
    Add AddV2 Sub Mul Div RealDiv FloorDiv TruncateDiv DivNoNan MulNoNan Mod FloorMod TruncateMod
    Maximum Minimum Pow Atan2 Equal NotEqual Less LessEqual Greater GreaterEqual LogicalAnd
    LogicalOr BitwiseAnd BitwiseOr BitwiseXor LeftShift RightShift SelectV2 SquaredDifference Xdivy
    Xlogy ClipByValue ApproximateEqual Xlog1py AddN AccumulateNV2 Cast StopGradient
    PreventGradient Snapshot PlaceholderWithDefault EnsureShape ZerosLike OnesLike Print PrintV2
    StringLower StringUpper StringStrip StringLength StringJoin StringToNumber AsString Substr
    RegexReplace StaticRegexReplace RegexFullMatch StaticRegexFullMatch StringToHashBucket
    StringToHashBucketFast StringToHashBucketStrong EncodeBase64 DecodeBase64
"""

_ROWS = """
    Conv2D DepthwiseConv2dNative Conv3D Dilation2D MaxPool MaxPoolV2 AvgPool MaxPool3D AvgPool3D LRN
    ResizeBilinear ResizeNearestNeighbor ResizeBicubic ResizeArea DepthToSpace SpaceToDepth
    ExtractImagePatches AdjustContrastv2 AdjustHue AdjustSaturation RGBToHSV HSVToRGB
    SparseSoftmaxCrossEntropyWithLogits SoftmaxCrossEntropyWithLogits L2Normalize
    LSTMBlockCell GRUBlockCell _FusedConv2D ImageProjectiveTransformV2 ImageProjectiveTransformV3
"""

_SHAPES = """
    StridedSlice Slice Pack Unpack Concat ConcatV2 Mul Add AddV2 Sub FloorDiv FloorMod Maximum
    Minimum Prod Sum Max Min Cast Gather GatherV2 Squeeze ExpandDims Reshape Identity Equal NotEqual
    Less LessEqual Greater GreaterEqual LogicalAnd LogicalOr LogicalNot All Any Split SplitV
    ConcatOffset BroadcastArgs Select SelectV2 StopGradient EnsureShape Neg Size Shape Rank
"""
"""Op types whose result is a shape where their inputs are shapes."""

_SHAPE_ARGUMENTS = """
    Reshape Fill BroadcastTo Tile StridedSlice Slice Pad PadV2 TensorListGetItem TensorListSetItem
    TensorListStack TensorListReserve TensorListFromTensor EmptyTensorList Conv2DBackpropInput
    Conv2DBackpropInputV2 Conv3DBackpropInputV2
"""
"""Types that may take a size in addition to the examples."""


def apply_rule(op: BatchOp) -> list[State]:
    """The states of the results of ``op``, one of whose inputs depends on the batch.

    A result that has the same known value with both sizes does not.  Raises
    :class:`MixesExamples` if examples are, or may be, mixed.
    """
    results = zip(op.small.info.outputs, op.large.info.outputs, strict=True)
    same = [small.value is not None and small.value == large.value for small, large in results]
    if same and all(same):
        return [None] * len(same)
    return [None if known else state for known, state in zip(same, _found(op), strict=True)]


def _found(op: BatchOp) -> list[State]:
    op_type = op.small.op_type
    sized = any(state == SIZE for state in op.states)
    if op_type in ("Identity", "IdentityN"):
        return list(op.states)
    if op_type == "Switch":
        if op.states[1] is not None:
            raise MixesExamples("takes a branch for the whole batch")
        return [op.states[0]] * 2
    if op_type == "Merge":
        return [reduce(join_states, op.states), None]
    if op_type in ("Assert", "NoOp"):
        return [None] * len(op.small.info.outputs)
    if op_type in ("Shape", "ShapeN", "Size", "Rank"):
        return [SIZE] * len(op.small.info.outputs)
    if sized and not op.batched:
        return _of_sizes(op)
    if sized and op_type not in _SHAPE_ARGUMENTS.split():
        raise Undecided("computes with the number of examples")
    rule = _RULES.get(op_type)
    if rule is None:
        drawn = "Random" in op_type or op_type.startswith("Stateless")
        raise Undecided(
            "draws random numbers, which would differ in the parts"
            if drawn
            else "is not known to treat the examples apart"
        )
    return rule(op)


def _of_sizes(op: BatchOp) -> list[State]:
    """Results of sizes alone: sizes again, or a tensor of that many equal rows."""
    outputs = op.small.info.outputs
    if op.small.op_type in ("Fill", "BroadcastTo", "Tile"):
        return [op.grown()]
    if op.small.op_type in ("TensorListReserve", "EmptyTensorList"):
        if op.states[1] is not None:
            raise Undecided("goes through the examples one by one")
        return [None]
    if op.small.op_type == "Reshape" and op.states[0] is None:
        return [op.grown()]
    whole = all(output.dtype in ("int32", "int64", "bool") for output in outputs)
    if op.small.op_type not in _SHAPES.split() or not whole:
        raise Undecided("computes with the number of examples")
    if any(op.grown(number) for number in range(len(outputs))):
        raise Undecided("counts the examples through")
    return [SIZE] * len(outputs)


@_rule(_ALIGNED)
def _aligned(op: BatchOp) -> list[State]:
    """Elementwise, with broadcasting: axes count from the right."""
    found = op.held()
    shape = op.small.info.outputs[0].shape or ()
    from_right = len(shape) - found.axis
    if any(op.rank(n) - state.axis != from_right for n, state in op.batched):
        raise MixesExamples("combines the examples: its inputs hold them along different axes")
    return [found] * len(op.small.info.outputs)


@_rule("Select")
def _select(op: BatchOp) -> list[State]:
    """A vector of conditions chooses rows."""
    if {state.axis for _, state in op.batched} != {0}:
        return _aligned(op)
    return [op.held()]


@_rule("BiasAdd BiasAddV1 OneHot")
def _first_only(op: BatchOp) -> list[State]:
    op.only(0)
    return [op.keeps_rows(0)]


@_rule(_ROWS)
def _rows(op: BatchOp) -> list[State]:
    """Examples in front, weights apart from them."""
    if any(state.axis for _, state in op.batched) or op.states[0] is None:
        raise Undecided("does not have the examples along its first axis")
    # those that read two tensors of examples
    if not any(part in op.small.op_type for part in ("CrossEntropy", "BlockCell", "Transform")):
        op.only(0)
    found = [op.held(number) for number in range(len(op.small.info.outputs))]
    if any(state.axis for state in found):
        raise MixesExamples("does not keep the examples along the first axis")
    return list(found)


@_rule("Conv2DBackpropInput Conv2DBackpropInputV2 Conv3DBackpropInputV2")
def _transposed_convolution(op: BatchOp) -> list[State]:
    """The sizes, the filter, the examples."""
    op.only(0, 2)
    if op.examples(2).axis:
        raise Undecided("does not have the examples along its first axis")
    return [op.keeps_rows(2)]


@_rule("FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3")
def _normalised(op: BatchOp) -> list[State]:
    if op.small.info.attributes.get("is_training", True):
        raise MixesExamples("computes the statistics of the batch")
    op.only(0)
    return [op.keeps_rows(0), *[None] * (len(op.small.info.outputs) - 1)]


@_rule("Softmax LogSoftmax TopK TopKV2 InTopK InTopKV2 FFT IFFT RFFT IRFFT")
def _along_last(op: BatchOp) -> list[State]:
    op.only(0)
    _refuse_axes(op, [-1])
    return [op.keeps_rows(0, number) for number in range(len(op.small.info.outputs))]


@_rule("""
    Mean Sum Max Min Prod All Any EuclideanNorm ArgMax ArgMin Cumsum Cumprod CumulativeLogsumexp
    ReverseV2 Roll ReduceJoin
""")
def _along_axes(op: BatchOp) -> list[State]:
    """The axes are the second input, of ``Roll`` the third."""
    op.only(0)
    _refuse_axes(op, op.value(2 if op.small.op_type == "Roll" else 1))
    return [op.keeps_rows(0)]


def _refuse_axes(op: BatchOp, axes: Sequence[int]) -> None:
    """Raises :class:`MixesExamples` if ``axes`` include that of the first input's examples."""
    state, rank = op.examples(0), op.rank(0)
    if state.axis in {axis % rank for axis in axes}:
        raise MixesExamples("combines the examples: it works along the batch")


@_rule("MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3")
def _product(op: BatchOp) -> list[State]:
    attributes, found = op.small.info.attributes, op.held()
    flipped = [
        attributes.get("transpose_a", attributes.get("adj_x", False)),
        attributes.get("transpose_b", attributes.get("adj_y", False)),
    ]
    from_right = []
    for number, state in op.batched:
        place = op.rank(number) - state.axis
        contracted = 1 if bool(flipped[number]) == bool(number) else 2
        if place == contracted:
            raise MixesExamples("combines the examples: it sums over the batch")
        from_right.append(place)
    if len(op.batched) == 2 and (min(from_right) < 3 or len(set(from_right)) > 1):
        raise MixesExamples("combines every example with every other")
    return [found]


@_rule("Einsum")
def _einsum(op: BatchOp) -> list[State]:
    terms, _, result = str(op.small.info.attributes["equation"]).replace(" ", "").partition("->")
    labels = set()
    for number, state in op.batched:
        term = _spelt(terms.split(",")[number], op.rank(number))
        labels.add(term[state.axis])
    output = _spelt(result, len(op.small.info.outputs[0].shape or ()))
    found = op.held()
    if len(labels) != 1 or output[found.axis] not in labels:
        raise MixesExamples("combines the examples: it sums over the batch")
    return [found]


def _spelt(term: str, rank: int) -> str:
    """A term of an equation with a letter for every axis; ellipses count from the right."""
    count = rank - len(term.replace("...", ""))
    return term.replace("...", "ZYXWVUTS"[:count][::-1])


@_rule("Transpose")
def _transpose(op: BatchOp) -> list[State]:
    state = op.examples(0)
    op.only(0)
    return [Examples(op.value(1).index(state.axis))]


@_rule("Reshape ExpandDims Squeeze Bitcast")
def _reshape(op: BatchOp) -> list[State]:
    """The rows of an example stay together if what is before them in memory is as much as was."""
    state, found = op.examples(0), op.held()
    before = (op.small.info.inputs[0].shape or ())[: state.axis]
    after = (op.small.info.outputs[0].shape or ())[: found.axis]
    if math.prod(size or 0 for size in before) != math.prod(size or 0 for size in after):
        raise Undecided("interleaves the examples")
    return [found]


@_rule("Pack")
def _pack(op: BatchOp) -> list[State]:
    if len({state.axis for _, state in op.batched}) > 1:
        raise MixesExamples("combines the examples: its inputs hold them along different axes")
    return [op.held()]


@_rule("Concat ConcatV2")
def _concat(op: BatchOp) -> list[State]:
    first = op.small.op_type == "Concat"
    axis = op.value(0 if first else len(op.states) - 1)[0]
    data = op.batched
    if len(data) < len(op.states) - 1 or len({state.axis for _, state in data}) > 1:
        raise Undecided("joins the examples with something else")
    if axis % op.rank(data[0][0]) == data[0][1].axis:
        raise Undecided("combines the examples: it joins them along the batch")
    return [op.keeps_rows(data[0][0])]


@_rule("Split SplitV Unpack")
def _split(op: BatchOp) -> list[State]:
    number = 1 if op.small.op_type == "Split" else 0
    state = op.examples(number)
    op.only(number)
    if op.small.op_type == "Unpack":
        axis = int(str(op.small.info.attributes.get("axis", 0)))
    else:
        axis = op.value(0 if op.small.op_type == "Split" else 2)[0]
    if axis % op.rank(number) == state.axis:
        raise Undecided("takes the batch apart")
    return [op.keeps_rows(number, output) for output in range(len(op.small.info.outputs))]


@_rule("StridedSlice Slice")
def _slice(op: BatchOp) -> list[State]:
    """All rows, in their order: as many as there were, and no step backwards."""
    if op.small.op_type == "StridedSlice" and min(op.value(3), default=1) < 0:
        raise MixesExamples("takes rows in another order")
    return [op.keeps_rows(0)]


@_rule("Tile BroadcastTo Pad PadV2 MirrorPad")
def _repeat(op: BatchOp) -> list[State]:
    state, found = op.examples(0), op.keeps_rows(0)
    shape = op.small.info.outputs[0].shape or ()
    if op.rank(0) - state.axis != len(shape) - found.axis:
        raise MixesExamples("moves the batch to another axis")
    return [found]


@_rule("Gather GatherV2 ResourceGather GatherNd ResourceGatherNd")
def _gather(op: BatchOp) -> list[State]:
    """Rows of a table by examples of indices, or columns of examples."""
    if op.states[0] is None:
        if "Nd" in op.small.op_type and op.examples(1) == Examples(op.rank(1) - 1):
            raise MixesExamples("has the examples in one index")
        return [op.held()]
    params, indices = op.examples(0), op.states[1]
    if op.small.op_type != "GatherV2":
        raise Undecided("gathers examples")
    axis = op.value(2)[0] % op.rank(0)
    shared = int(str(op.small.info.attributes.get("batch_dims", 0)))
    if params.axis == axis or (indices is not None and params != indices):
        raise Undecided("gathers examples")
    if indices is not None and params.axis >= shared:
        raise MixesExamples("gathers examples by others")
    return [op.keeps_rows(0)]


@_rule("LookupTableFind LookupTableFindV2")
def _lookup(op: BatchOp) -> list[State]:
    op.only(1)
    return [op.held()]


@_rule("TensorListFromTensor")
def _list_of(op: BatchOp) -> list[State]:
    state = op.states[0]
    if not isinstance(state, Examples) or state.axis == 0:
        raise Undecided("goes through the examples one by one")
    return [Examples(state.axis - 1, in_list=True)]


@_rule("TensorListGetItem TensorListStack")
def _list_item(op: BatchOp) -> list[State]:
    state = op.states[0]
    if not isinstance(state, Examples):
        return [op.grown()]
    return [Examples(state.axis + (op.small.op_type == "TensorListStack"))]


@_rule("TensorListSetItem")
def _list_write(op: BatchOp) -> list[State]:
    known, item = op.states[0], op.states[2]
    if isinstance(op.states[1], Examples):
        raise Undecided("goes through the examples one by one")
    written = Examples(item.axis, in_list=True) if isinstance(item, Examples) else item
    return [join_states(known, written)]


@_rule("TensorListLength TensorListElementShape")
def _list_size(op: BatchOp) -> list[State]:
    return [None if op.small.op_type == "TensorListLength" else SIZE]
