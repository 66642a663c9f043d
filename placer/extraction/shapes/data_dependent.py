"""The largest shapes of outputs whose size depends on data.

``Where``, ``Unique`` and their like have a first dimension that only a run shows, and a ``Merge``
passes on what comes out of one branch or another.  A plan needs memory for the worst case, so each
is taken at the most that its inputs allow; the ops are listed in a warning, and ``--shape`` on any
of them says better.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from cost_models.op_info import Shape
from cost_models.tensor_size import is_known
from placer.extraction.graph_defs.scratch_graphs import NOTHING, Refinement
from placer.extraction.graph_defs.tensor_types import GraphTypes
from placer.extraction.shapes.imported_shapes import ImportedGraph
from placer.graph.op_types import BRANCHES, SPLITTERS
from placer.graph.tensor_names import data_inputs, op_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One op: the known shapes of its inputs, what is known of its outputs, and the elements of
    small integer inputs.  ``rows`` says of an input how many rows the ragged or sparse tensor has
    whose indices it came out of, if that is known."""

    inputs: Sequence[tuple[int, ...]]
    outputs: Sequence[Shape]
    values: Sequence[tuple[int, ...] | None]
    rows: Callable[[int], int | None] = lambda _: None


Rule = Callable[[Case], Sequence[Shape]]


def exact_shapes(types: GraphTypes, imported: ImportedGraph) -> dict[str, Refinement]:
    """Refinements for ops whose outputs follow from the shapes of their inputs, although
    TensorFlow's shape functions leave them open."""
    found = {}
    bounds = {node.name: node for node in types.nodes_of(_BOUNDS)}
    for node in types.nodes_of(_EXACT_RULES.keys() | _COUNTS):
        outputs = imported.shapes.get(node.name, ())
        if not all(is_known(shape) for shape in outputs):
            if node.op in _COUNTS:
                known = _counted_rows(node, imported, bounds)
            else:
                known = _EXACT_RULES[node.op](node, imported)
            ensured = tuple((n, s) for n, s in known.ensured if not is_known(outputs[n]))
            if ensured:
                found[node.name] = replace(known, ensured=ensured)
    return found


def _crossed(node: Any, imported: ImportedGraph) -> Refinement:
    """A value for every combination of columns, in every row; of dense inputs alone."""
    inputs = [imported.shape(name) for name in data_inputs(node.input)]
    known = [shape for shape in inputs if shape is not None and None not in shape]
    if len(known) < len(inputs) or not known or any(len(shape) != 2 for shape in known):
        return NOTHING
    rows, columns = known[0][0] or 0, math.prod(shape[1] or 0 for shape in known)
    count = rows * columns
    return Refinement(
        ensured=((0, (count, 2)), (1, (count,))), values=((2, (2,), (rows, columns)),)
    )


_COUNTS = frozenset({"DenseBincount", "RaggedBincount", "SparseBincount"})
_BOUNDS = frozenset({"Minimum", "Maximum", "Cast", "Identity"})


Limits = tuple[int | None, int | None]


def _limits(tensor: str, imported: ImportedGraph, nodes: Mapping[str, Any]) -> Limits:
    """The least and the most that a scalar can be, as far as it is known."""
    name = op_of(tensor)
    while name in nodes and nodes[name].op in ("Cast", "Identity"):
        name = op_of(nodes[name].input[0])
    value = imported.value(name)
    if value:
        return value[0], value[0]
    if name not in nodes:
        return None, None
    lows, highs = zip(*(_limits(s, imported, nodes) for s in nodes[name].input[:2]), strict=True)
    known_lows, known_highs = (
        [n for n in lows if n is not None],
        [n for n in highs if n is not None],
    )
    if nodes[name].op == "Minimum":
        low = min(known_lows) if len(known_lows) == 2 else None
        return low, min(known_highs, default=None)
    high = max(known_highs) if len(known_highs) == 2 else None
    return max(known_lows, default=None), high


def _counted_rows(node: Any, imported: ImportedGraph, bounds: Mapping[str, Any]) -> Refinement:
    """Counts for every row of a matrix, of a ragged or of a sparse one."""
    tensors = data_inputs(node.input)
    rows: int | None = None
    first = imported.shape(tensors[0])
    if node.op == "SparseBincount":
        dense = imported.value(tensors[2])
        rows = dense[0] if dense and len(dense) == 2 else None
    elif node.op == "RaggedBincount":
        rows = first[0] - 1 if first and first[0] is not None else None
    elif first is not None and len(first) == 2:
        rows = first[0]
    if rows is None:
        return NOTHING
    low, high = _limits(tensors[-2], imported, bounds)
    return Refinement(ensured=((0, (rows, low if low == high else None)),))


def _looked_up(node: Any, imported: ImportedGraph) -> Refinement:
    """One value of the default's shape for every key."""
    keys, default = (imported.shape(name) for name in data_inputs(node.input)[1:3])
    if keys is None or default is None:
        return NOTHING
    return Refinement(ensured=((0, (*keys, *default)),))


def _padded(node: Any, imported: ImportedGraph) -> Refinement:
    """As many rows as the outermost partition has, the sizes that are asked for inside."""
    wanted, values, _, first = data_inputs(node.input)[:4]
    asked, inner, outermost = imported.value(wanted), imported.shape(values), imported.shape(first)
    if inner is None or outermost is None:
        return NOTHING
    partitions = len(data_inputs(node.input)) - 3
    count = imported.value(first)
    rows = count[0] if count and outermost == () else None
    if len(outermost) == 1 and outermost[0] is not None:
        rows = outermost[0] - 1
    levels = partitions - 1 if outermost == () else partitions
    rank = levels + len(inner)
    sizes = [size if size >= 0 else None for size in asked or ()]
    sizes = sizes if len(sizes) == rank else [None] * rank
    if sizes[0] is None:
        sizes[0] = rows
    for number, size in enumerate(inner[1:]):
        position = levels + 1 + number
        sizes[position] = size if sizes[position] is None else sizes[position]
    return Refinement(ensured=((0, tuple(sizes)),))


def _rows_of_indices(
    nodes: Mapping[str, Any], imported: ImportedGraph, tensors: Sequence[str], which: int
) -> int | None:
    """How many rows a ragged or sparse tensor has, one column of whose indices is among
    ``tensors``."""
    name = op_of(tensors[which])
    while name in nodes and nodes[name].op in _COLUMN_OPS:
        name = op_of(nodes[name].input[0])
    node = nodes.get(name)
    if node is None:
        return None
    first = imported.shape(data_inputs(node.input)[0])
    if node.op == "SparseFillEmptyRows":
        first = imported.shape(f"{name}:2")
    rows = first[0] if first else None
    return rows if rows is None or node.op != "RaggedTensorToSparse" else rows - 1


def _to_sparse(node: Any, imported: ImportedGraph) -> Refinement:
    """As many elements as there are flat values."""
    *splits, flat = data_inputs(node.input)
    inner = imported.shape(flat)
    if inner is None or None in inner:
        return NOTHING
    rank = len(splits) + len(inner)
    count = math.prod(size or 0 for size in inner)
    return Refinement(ensured=((0, (count, rank)), (1, (count,)), (2, (rank,))))


_COLUMN_OPS = frozenset({"StridedSlice", "Cast", "Identity", "Reshape", "Squeeze"})
_INDEXED = SPLITTERS | {
    "ParseExample",
    "ParseExampleV2",
    "ParseSequenceExampleV2",
    "SparseFillEmptyRows",
    "RaggedTensorToSparse",
}
"""Op types whose first output are the indices of a tensor with as many rows as their first input
has, but for row splits, which are one more, and where there are rows to fill."""

_EXACT_RULES: Mapping[str, Callable[[Any, ImportedGraph], Refinement]] = {
    **dict.fromkeys(("LookupTableFind", "LookupTableFindV2"), _looked_up),
    "RaggedTensorToTensor": _padded,
    "RaggedTensorToSparse": _to_sparse,
    "SparseCross": _crossed,
}


def bound_shapes(
    types: GraphTypes, imported: ImportedGraph, branches: Mapping[str, Sequence[Sequence[Shape]]]
) -> dict[str, Refinement]:
    """Refinements for ops with known inputs whose outputs are unknown because of data.

    ``branches`` has what the branches of a conditional give, by op and output.
    """
    found = {}
    producers = {node.name: node for node in types.nodes_of(_COLUMN_OPS | _INDEXED)}
    for node in types.nodes_of(_RULES.keys() | BRANCHES):
        outputs = imported.shapes.get(node.name, ())
        if all(is_known(shape) for shape in outputs):
            continue
        if node.op in BRANCHES:
            largest = [_largest(shapes) for shapes in branches.get(node.name, ())]
        else:
            tensors = data_inputs(node.input)
            inputs = [imported.shape(tensor) for tensor in tensors]
            known = [shape for shape in inputs if is_known(shape)]
            if len(known) < len(inputs):
                continue
            case = Case(
                inputs=known,
                outputs=outputs,
                values=[imported.value(tensor) for tensor in tensors],
                rows=partial(_rows_of_indices, producers, imported, tensors),
            )
            largest = [*_RULES[node.op](case)]
        ensured = tuple(
            (number, shape)
            for number, shape in enumerate(largest)
            if shape is not None and not is_known(outputs[number])
        )
        if ensured:
            found[node.name] = Refinement(ensured=ensured)
    return found


def _where(case: Case) -> list[Shape]:
    """Every element may be true; one row of indices for each."""
    return [(math.prod(case.inputs[0]), len(case.inputs[0]))]


def _unique(case: Case) -> list[Shape]:
    """All elements may differ (along the axis of ``UniqueV2``, which is zero for vectors)."""
    size = (case.inputs[0][0],) if len(case.inputs[0]) == 1 else None
    return [size if number != 1 else None for number in range(len(case.outputs))]


def _fill_empty_rows(case: Case) -> list[Shape]:
    """Every row may be empty; as many values come to it as it has rows, if that is known."""
    count, rank = case.inputs[0]
    if not case.values[2]:
        return [None, None, None, (count,)]
    rows = case.values[2][0]
    return [(count + rows, rank), (count + rows,), (rows,), (count,)]


def _partition(case: Case) -> list[Shape]:
    """Each part may get everything."""
    data, partitions = case.inputs
    return [(math.prod(partitions), *data[len(partitions) :])] * len(case.outputs)


def _segments(case: Case) -> list[Shape]:
    """A row for every row of the sparse tensor whose indices these are, else for every index."""
    data, segments = case.inputs[0], len(case.inputs) - 1
    rows = case.rows(min(2, segments))
    return [(case.inputs[-1][0] if rows is None else rows, *data[1:])]


def _counted(case: Case) -> list[Shape]:
    """A count for every row, where rows are counted to make row splits."""
    rows = case.rows(0)
    return [None if rows is None or len(case.inputs[0]) != 1 else (rows,)]


def _filled(case: Case) -> list[Shape]:
    """Returns what is padded, with rows of equal length where no size is asked for."""
    (shape,) = case.outputs
    _, values, _, *partitions = case.inputs
    if shape is None or not shape or shape[0] is None:
        return [None]
    if partitions[0]:  # row splits
        counts = [*(splits[0] - 1 for splits in partitions[1:]), values[0]]
    else:  # the number of rows, then for every level the rows of its elements
        counts = [rows[0] for rows in partitions[1:]]
    sizes, rows = list(shape), shape[0]
    for level, count in enumerate(counts, 1):
        if sizes[level] is None:
            sizes[level] = -(-count // max(rows, 1))
        rows = count
    return [tuple(sizes)]


def _selected_boxes(case: Case) -> list[Shape]:
    """As many boxes as asked for."""
    limit = case.values[2][0] if case.values[2] else case.inputs[0][0]
    count = min(limit, case.inputs[0][0])
    return [(count,), (count,)][: len(case.outputs)] + [None] * (len(case.outputs) - 2)


def _stitched(case: Case) -> list[Shape]:
    """As long as the longest index: the parts of a partition are together what was parted."""
    half = len(case.inputs) // 2
    index, data = case.inputs[:half], case.inputs[half:]
    count = max(math.prod(shape) for shape in index)
    return [(count, *data[0][len(index[0]) :])]


def _merged(case: Case) -> list[Shape]:
    """The shapes that agree with either branch."""
    return [_largest(case.inputs), ()]


def _largest(shapes: Sequence[Shape]) -> Shape:
    """The largest of some shapes, dimension by dimension, where all are known and of one rank."""
    known = [shape for shape in shapes if is_known(shape)]
    if len(known) < len(shapes) or len({len(shape) for shape in known}) != 1:
        return None
    return tuple(map(max, zip(*known, strict=True)))


_SEGMENT_OPS = (
    *("SegmentMax", "SegmentMean", "SegmentMin", "SegmentProd", "SegmentSum"),
    *("SparseSegmentMean", "SparseSegmentSqrtN", "SparseSegmentSum"),
)

_RULES: Mapping[str, Rule] = {
    "Where": _where,
    **dict.fromkeys(("Unique", "UniqueV2", "UniqueWithCounts", "UniqueWithCountsV2"), _unique),
    "SparseFillEmptyRows": _fill_empty_rows,
    "DynamicPartition": _partition,
    **dict.fromkeys(_SEGMENT_OPS, _segments),
    "DenseBincount": _counted,
    "RaggedTensorToTensor": _filled,
    **dict.fromkeys(
        ("NonMaxSuppressionV2", "NonMaxSuppressionV3", "NonMaxSuppressionV4"), _selected_boxes
    ),
    **dict.fromkeys(("DynamicStitch", "ParallelDynamicStitch"), _stitched),
    "Merge": _merged,
}
