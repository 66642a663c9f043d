"""Which images have their channels first on GPUs, where a program has them last.

The graph optimizer turns the ops that have a layout, and what lies between them::

    x --> Conv2D --> Relu --> Conv2D --> Mean        all but x and what Mean gives

What it turns on the way in or out is copied (:mod:`cost_models.gpu_convolutions`).  Small tensors,
and weights, are left out: their copies are not what fills a card.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from cost_models.gpu_convolutions import DATA_INPUTS, gives_images
from cost_models.op_cost import OpCost
from placer.graph.op_graph import Op, OpGraph

_SMALL_BYTES = 64 << 10

_AGNOSTIC = frozenset(
    """
    Abs Acos Add AddN AddV2 Angle Atan Atan2 Cast Ceil CheckNumerics Complex Concat ConcatV2 Cos
    Cosh Div Elu EluGrad Enter Equal Erf Erfc Exit Exp Expm1 Fill Floor FloorDiv Greater
    GreaterEqual Identity IdentityN Inv InvGrad IsFinite IsInf IsNan LeakyRelu LeakyReluGrad Less
    LessEqual Log Log1p Max Maximum Mean Merge Min Minimum MirrorPad MirrorPadGrad Mod Mul Neg
    NextIteration NotEqual OnesLike Pad PadV2 Pow PreventGradient Prod Real RealDiv Reciprocal
    ReciprocalGrad Relu Relu6 Relu6Grad ReluGrad Rint Round Rsqrt RsqrtGrad Select SelectV2 Selu
    SeluGrad Sigmoid SigmoidGrad Sign Sin Sinh Slice Snapshot Softplus SoftplusGrad Split SplitV
    Sqrt SqrtGrad Square SquaredDifference Squeeze StopGradient StridedSlice StridedSliceGrad Sub
    Sum Switch Tan Tanh TanhGrad Tile TruncateDiv ZerosLike
    """.split()  # noqa: SIM905 (a hundred lines else)
)
"""``GetDefaultLayoutAgnosticOps`` of ``generic_layout_optimizer_transposer.cc`` and the others that
it knows: ops that work in any order."""


_EITHER = frozenset({"Fill", "RandomUniform", "StatelessRandomUniformV2"})
"""Ops that give images which nothing says the order of: the optimizer moves or folds them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageOrder:
    """The ``values`` that have their channels first, and, by op, the inputs of an op that it reads
    in the other order than they are produced (``turned``)."""

    values: frozenset[int] = frozenset()
    turned: dict[int, tuple[int, ...]] = field(default_factory=dict)


def find_image_order(
    graph: OpGraph, costs: Sequence[OpCost], on_gpu: Sequence[bool], sizes: Sequence[int]
) -> ImageOrder:
    """The order of the images of a step; ``costs`` and ``on_gpu`` are by op, ``sizes`` by value."""
    if not any(cost.channels_first and gpu for cost, gpu in zip(costs, on_gpu, strict=True)):
        return ImageOrder()
    first: set[int] = set()
    last: set[int] = set()
    turned: dict[int, tuple[int, ...]] = {}
    images = frozenset(v for v in graph.ask_once(_image_values) if sizes[v] >= _SMALL_BYTES)
    end = 0
    rows = zip(graph.ops.values(), graph.input_numbers, costs, on_gpu, strict=True)
    for number, (op, inputs, cost, gpu) in enumerate(rows):
        start, end = end, end + len(op.info.outputs)
        read = [slot for slot, value in enumerate(inputs) if value in images]
        of_first = [slot for slot in read if inputs[slot] in first]
        of_last = [slot for slot in read if inputs[slot] in last]
        made = [value for value in range(start, end) if value in images]
        if gpu and cost.channels_first:
            wanted = [slot for slot in of_last if slot in DATA_INPUTS[op.op_type]]
            first.update(made if gives_images(op.op_type) else ())
        elif gpu and of_first and _works_in_any_order(op):
            wanted = of_last
            first.update(made)
        else:
            large = any(sizes[value] >= _SMALL_BYTES for value in range(start, end))
            wanted = of_first if large else []
            if op.op_type not in _EITHER and (of_last or not _works_in_any_order(op)):
                last.update(made)
        if wanted:
            turned[number] = tuple(wanted)
    return ImageOrder(values=frozenset(first), turned=turned)


def _works_in_any_order(op: Op) -> bool:
    """Whether the op turns with its images: a Reshape if it changes nothing."""
    if op.op_type == "Reshape":
        return op.info.inputs[0].shape == op.info.outputs[0].shape
    return op.op_type in _AGNOSTIC


def _image_values(graph: OpGraph) -> tuple[int, ...]:
    """The values that may be images: they have height and width, and are no weights."""
    found: list[int] = []
    number = 0
    for op in graph.ops.values():
        weights = op.op_type in ("Const", "ReadVariableOp", "Variable", "VariableV2")
        for tensor in op.info.outputs:
            if not weights and tensor.shape is not None and len(tensor.shape) in (4, 5):
                found.append(number)
            number += 1
    return tuple(found)
