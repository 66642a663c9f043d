"""Values and shapes that follow from others, although TensorFlow does not draw the conclusion."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from placer.extraction.graph_defs.scratch_graphs import Refinement
from placer.extraction.graph_defs.tensor_states import ElementState, is_known
from placer.extraction.graph_defs.tensor_types import GraphTypes
from placer.extraction.shapes.imported_shapes import ImportedGraph
from placer.graph.tensor_names import full_tensor, split_tensor

VALUE_TYPES = frozenset({"VariableShape", "SparseReshape"})
"""The op types that :func:`known_value` knows."""


def known_value(
    node: Any, imported: ImportedGraph, handles: Mapping[str, ElementState]
) -> Refinement | None:
    """What is known of the last output of ``node``, or ``None``; ``handles`` has the contents of
    resource handles by tensor name.

    ``SparseReshape`` returns the new shape, which depends on no indices, ``VariableShape`` that of
    the variable.
    """
    if node.op == "VariableShape":
        variable = handles.get(full_tensor(node.input[0]))
        if variable is None or not is_known(variable.shape):
            return None
        return Refinement(value=((len(variable.shape),), variable.shape))
    if node.op != "SparseReshape":
        return None
    old, new = (imported.values.get(full_tensor(node.input[number])) for number in (1, 2))
    if old is None or new is None:
        return None
    if -1 in new:
        rest = math.prod(size for size in new if size != -1)
        new = tuple(math.prod(old) // max(rest, 1) if size == -1 else size for size in new)
    return Refinement(value=((len(new),), new))


def implied_shapes(types: GraphTypes, imported: ImportedGraph) -> dict[str, Refinement]:
    """What the readers of unknown outputs demand of them.

    Both values of a ``Select`` have the shape of its output.
    """
    found: dict[str, Refinement] = {}
    for node in types.nodes_of({"Select"}):
        if not is_known(imported.shapes[node.name][0]):
            continue
        shape = imported.shapes[node.name][0]
        for reference in node.input[1:3]:
            name, number = split_tensor(reference)
            if not is_known(imported.shapes[name][number]):
                found[name] = Refinement(ensured=((number, shape),))
    return found
