"""Ops that TensorFlow computes once, before the first step, because all that they read is constant.

The runtime folds the graph of every device: what constants alone decide becomes a constant of its
own, which stays in memory from then on, however large the constants were that it is made of::

    1/N (4 bytes) ── Tile ── Mul ──┬── gradients ...      the result of Mul stays: N x 4 bytes
                                   x

``ConstantFold`` of ``core/common_runtime/constant_folding.cc``.  Ops of unknown shape are left as
they are, and so are those that are fetched, and small tensors, which are not what fills a card.
"""

from cost_models.tensor_size import counted_bytes
from placer.graph.op_graph import OpGraph
from placer.graph.tensor_names import op_of

MOST_FOLDED_BYTES = 10 << 20
"""``ConstantFoldingOptions::max_constant_size_in_bytes``."""

_SMALL_BYTES = 64 << 10

_PURE = frozenset(
    """
    Abs Add AddV2 BroadcastTo Cast Ceil ConcatV2 Cos Cumsum Div DivNoNan Equal Exp ExpandDims Fill
    Floor FloorDiv FloorMod GatherV2 Greater GreaterEqual Identity Less LessEqual LinSpace Log
    LogicalAnd LogicalNot LogicalOr MatrixBandPart Max Maximum Mean Min Minimum Mul Neg NotEqual
    OneHot OnesLike Pack Pow Prod Range RealDiv Reciprocal Reshape Rsqrt Select SelectV2 Sigmoid
    Sign Sin Slice Split SplitV Sqrt Square SquaredDifference Squeeze StridedSlice Sub Sum Tanh Tile
    Transpose Unpack ZerosLike
    """.split()  # noqa: SIM905 (thirty lines else)
)


def find_foldable(graph: OpGraph) -> frozenset[str]:
    """The constants, and the ops that they alone decide."""
    fetched = {op_of(tensor) for tensor in graph.fetches}
    known: set[str] = set()
    for op in graph.ops.values():
        if op.op_type == "Const":
            known.add(op.name)
        elif op.op_type in _PURE and op.inputs and known.issuperset(map(op_of, op.inputs)):
            outputs = op.info.outputs
            sized = all(t.shape is not None and None not in t.shape for t in outputs)
            small = sized and all(counted_bytes(tensor) <= MOST_FOLDED_BYTES for tensor in outputs)
            if small and op.name not in fetched:
                known.add(op.name)
    return frozenset(known)


def find_folded(graph: OpGraph) -> dict[str, tuple[int, ...]]:
    """The ops that are computed once, each with its outputs that are read later on: these stay."""
    folded = {
        name: len(op.info.outputs)
        for name, op in graph.ops.items()
        if op.op_type != "Const"
        and name in graph.ask_once(find_foldable)
        and max(map(counted_bytes, op.info.outputs), default=0) >= _SMALL_BYTES
    }
    return {
        name: tuple(
            index
            for index in range(count)
            if any(reader not in folded for reader in graph.tensors[f"{name}:{index}"].consumers)
        )
        for name, count in folded.items()
    }


def find_consumed(graph: OpGraph) -> tuple[str, ...]:
    """The constants that only ops read which are computed once: none of them stays."""
    folded = graph.ask_once(find_folded)
    fetched = {op_of(tensor) for tensor in graph.fetches}
    return tuple(
        name
        for name, op in graph.ops.items()
        if op.op_type == "Const"
        and name not in fetched
        and (readers := graph.tensors[op.output_name(0)].consumers)
        and all(reader in folded for reader in readers)
    )
