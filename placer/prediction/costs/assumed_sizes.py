"""Sizes that are taken for those of tensors whose size is not known: they are never zero.

What follows from inputs and declarations is in the shapes already (:mod:`placer.extraction.shapes`
takes the largest that ``Unique``, ``Where`` and lookups can give).  Of what is left, a dimension
that is not known is the batch; where more than that is missing, the tensor is a batch of the widest
known rows of its type, and where there are none, as large as the widest known tensor.  Handles
(resources, variants) have no bytes to send.
"""

import math
from collections.abc import Mapping

from cost_models.op_cost import OpCost
from cost_models.tensor_size import element_bytes
from placer.graph.op_graph import OpGraph, Tensor

STRING_BYTES = 32
"""Bytes of an element that is a string: its header, and a short text."""

_HANDLES = ("resource", "variant")


def assume_sizes(
    graph: OpGraph, costs: Mapping[str, OpCost], batch_size: int | None
) -> dict[str, int]:
    """The bytes assumed of every tensor that is read or fetched, has no known size, and is no
    handle."""
    fetches = frozenset(graph.fetches)
    unsized = []
    widest_row: dict[str, int] = {}
    widest = 0
    batch = batch_size or _largest_batch(graph)
    for tensor in graph.tensors.values():
        size = costs[tensor.producer].output_bytes[tensor.index]
        properties = tensor.properties
        if size is not None:
            widest = max(widest, size)
            if properties.shape and properties.shape[0] == batch:
                dtype = properties.dtype
                widest_row[dtype] = max(widest_row.get(dtype, 0), size // batch)
        elif properties.dtype not in _HANDLES and (tensor.consumers or tensor.name in fetches):
            unsized.append(tensor)
    return {tensor.name: _assumed(tensor, batch, widest_row, widest) for tensor in unsized}


def _assumed(tensor: Tensor, batch: int, widest_row: Mapping[str, int], widest: int) -> int:
    dtype, shape = tensor.properties.dtype, tensor.properties.shape
    item = STRING_BYTES if dtype == "string" else element_bytes(dtype) or 1
    if shape is not None and sum(size is None for size in shape) <= 1:
        return max(1, item * math.prod(batch if size is None else size for size in shape))
    if dtype == "string":
        return batch * item
    return max(1, batch * widest_row.get(dtype, 0) or widest)


def _largest_batch(graph: OpGraph) -> int:
    """The largest leading dimension of what is fed; one where nothing has any."""
    shapes = (
        info.shape for name in graph.feeds for info in graph.ops[name].info.outputs if info.shape
    )
    return max((shape[0] or 1 for shape in shapes), default=1)
