"""The largest shapes of outputs whose size depends on data.

``Where``, ``Unique`` and their like have a first dimension that only a run shows, and a ``Merge``
passes on what comes out of one branch or another.  A plan needs memory for the worst case, so each
is taken at the most that its inputs allow; the ops are listed in a warning, and ``--shape`` on any
of them says better.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cost_models.op_info import Shape
from cost_models.tensor_size import is_known
from placer.extraction.graph_defs.scratch_graphs import Refinement
from placer.extraction.graph_defs.tensor_types import GraphTypes
from placer.extraction.shapes.imported_shapes import ImportedGraph
from placer.graph.op_types import BRANCHES
from placer.graph.tensor_names import data_inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One op: the known shapes of its inputs, what is known of its outputs, and the elements of
    small integer inputs."""

    inputs: Sequence[tuple[int, ...]]
    outputs: Sequence[Shape]
    values: Sequence[tuple[int, ...] | None]


Rule = Callable[[Case], Sequence[Shape]]


def bound_shapes(
    types: GraphTypes, imported: ImportedGraph, branches: Mapping[str, Sequence[Sequence[Shape]]]
) -> dict[str, Refinement]:
    """Refinements for ops with known inputs whose outputs are unknown because of data.

    ``branches`` has what the branches of a conditional give, by op and output.
    """
    found = {}
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
            values = [imported.value(tensor) for tensor in tensors]
            largest = [*_RULES[node.op](Case(inputs=known, outputs=outputs, values=values))]
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


def _lookup(case: Case) -> list[Shape]:
    """One value of the default's shape for every key."""
    return [(*case.inputs[1], *case.inputs[2])]


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


_RULES: Mapping[str, Rule] = {
    "Where": _where,
    **dict.fromkeys(("Unique", "UniqueV2", "UniqueWithCounts", "UniqueWithCountsV2"), _unique),
    "SparseFillEmptyRows": _fill_empty_rows,
    "DynamicPartition": _partition,
    "LookupTableFindV2": _lookup,
    **dict.fromkeys(
        ("NonMaxSuppressionV2", "NonMaxSuppressionV3", "NonMaxSuppressionV4"), _selected_boxes
    ),
    **dict.fromkeys(("DynamicStitch", "ParallelDynamicStitch"), _stitched),
    "Merge": _merged,
}
