"""Products of several factors, as TensorFlow's graph optimizer orders them: small factors first.

It sorts the inputs of every product by name, then has the smallest factors of a tree of products
multiplied first.  So ``(0.5 * x) * y`` of a GELU is ``x * (0.5 * y)`` where the name of ``y`` comes
before that of ``0.5 * x``: the scaled copy of ``x`` is there once ``y`` is, and not before.

``CanonicalizeNode`` of ``core/grappler/optimizers/common_subgraph_elimination.cc`` and
``MinimizeBroadcasts`` of ``core/grappler/optimizers/arithmetic_optimizer.cc``.
"""

from collections import Counter, deque
from collections.abc import Mapping, Set
from dataclasses import replace

from cost_models.op_info import TensorProperties
from cost_models.tensor_size import element_count
from placer.graph.op_graph import Op, OpGraph
from placer.graph.order import topological_order
from placer.graph.tensor_names import op_of

_PRODUCT = "Mul"

Factor = tuple[str, TensorProperties]


def order_factors(graph: OpGraph) -> OpGraph:
    """``graph`` with the factors of its products exchanged; the ops, their names and the shapes of
    their outputs stay, and so do products where a shape would not."""
    ops = dict(graph.ops)
    kept = {op_of(tensor) for tensor in graph.fetches}
    kept |= {name for op in ops.values() for name in op.control_inputs}
    readers = Counter(tensor for op in ops.values() for tensor in op.inputs)
    shared = kept | {op_of(tensor) for tensor, count in readers.items() if count > 1}
    seen: set[str] = set()
    for name in reversed(tuple(graph.ops)):
        if name in seen or ops[name].op_type != _PRODUCT:
            continue
        inner, factors = _tree(ops[name], ops, shared)
        seen.update(inner)
        if inner:
            ops |= _ordered(ops[name], [ops[each] for each in inner], factors)
    if all(ops[name] is op for name, op in graph.ops.items()):
        return graph
    return replace(graph, ops={name: ops[name] for name in topological_order(ops)})


def _tree(root: Op, ops: Mapping[str, Op], kept: Set[str]) -> tuple[list[str], list[Factor]]:
    """The products below ``root`` that nothing else reads, and all factors, from left to right."""
    inner: list[str] = []
    factors: list[Factor] = []
    pending = _sorted_inputs(root)
    while pending:
        tensor, properties = pending.pop(0)
        child = ops[op_of(tensor)]
        if child.op_type == _PRODUCT and child.name not in kept and not child.control_inputs:
            inner.append(child.name)
            pending[:0] = _sorted_inputs(child)
        else:
            factors.append((tensor, properties))
    return inner, factors


def _sorted_inputs(op: Op) -> list[Factor]:
    return sorted(zip(op.inputs, op.info.inputs, strict=True), key=lambda factor: factor[0])


def _ordered(root: Op, inner: list[Op], factors: list[Factor]) -> dict[str, Op]:
    """The products with the ``factors`` in the order of the optimizer; none if they are of one
    shape, or if a product had another shape then."""
    shape = root.info.outputs[0].shape
    shapes = [properties.shape for _, properties in factors]
    same = all(op.info.outputs[0].shape == shape for op in inner)
    if shape is None or None in shape or not same or len({*shapes}) == 1:
        return {}
    sizes = {tensor: element_count(properties) for tensor, properties in factors}
    waiting = deque(sorted(factors, key=lambda factor: sizes[factor[0]]))
    last = [waiting.pop()] if len(waiting) % 2 else []
    free, found = [*inner], {}
    while len(waiting) > 1:
        pair = (waiting.popleft(), waiting.popleft())
        op = free.pop() if free else root
        if shape not in (pair[0][1].shape, pair[1][1].shape):
            return {}
        found[op.name] = _with_inputs(op, pair)
        made = (f"{op.name}:0", op.info.outputs[0])
        sizes[made[0]] = 1  # what the optimizer takes a product for that it has made
        rises = len(waiting) > 1 and sizes[waiting[0][0]] < sizes[waiting[1][0]]
        waiting.insert(0 if rises else len(waiting), made)
    if last:
        found[root.name] = _with_inputs(root, (waiting[0], last[0]))
    return found


def _with_inputs(op: Op, pair: tuple[Factor, Factor]) -> Op:
    """``op`` reading the ``pair``; itself if it does already."""
    (first, known), (second, other) = pair
    if sorted((first, second)) == sorted(op.inputs):
        return op
    return replace(op, inputs=(first, second), info=replace(op.info, inputs=(known, other)))
