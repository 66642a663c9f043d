"""Products with a constant, as TensorFlow's graph optimizer rearranges them.

It moves a constant towards the leaves, since it might meet another one there.  Where it does not,
the product with it is there earlier than in the program, and waits: of the gradient of a scaled
softmax p, c * ((g - s) * p), the factor c * p from the forward pass on::

    c --> Mul --> y             c --> Mul ------> Mul --> y
           ^                           ^           ^
    x --> Mul <-- p                    p           x

``ConstantFolding::ConstantPushDown`` of ``core/grappler/optimizers/constant_folding.cc``.
"""

from dataclasses import replace

from cost_models.op_info import TensorProperties
from placer.graph.op_graph import Op, OpGraph
from placer.graph.order import topological_order
from placer.graph.passes.constant_folding import find_foldable
from placer.graph.tensor_names import op_of

_ALIKE = {"Mul": "Mul", "Add": "Add", "AddV2": "Add"}
_LOW_PRECISION = ("bfloat16", "float16")


def push_constants(graph: OpGraph) -> OpGraph:
    """``graph`` with the inputs of such products exchanged; the ops and their names stay."""
    ops = dict(graph.ops)
    fetched = {op_of(tensor) for tensor in graph.fetches}
    for name in graph.ops:
        found = _child(ops[name], ops, graph)
        if found is None or found[0] in fetched:
            continue
        below, constant = found
        parent, child = ops[name], ops[below]
        ops[name] = _with_input(parent, constant, child.inputs[0], child.info.inputs[0])
        ops[below] = _with_input(child, 0, parent.inputs[constant], parent.info.inputs[constant])
    if all(ops[name] is op for name, op in graph.ops.items()):
        return graph
    return replace(graph, ops={name: ops[name] for name in topological_order(ops)})


def _child(op: Op, ops: dict[str, Op], graph: OpGraph) -> tuple[str, int] | None:
    """The product that is multiplied by a constant, and at which input that is."""
    if op.op_type not in _ALIKE or len(op.inputs) != 2 or op.control_inputs:
        return None
    known = graph.ask_once(find_foldable)
    constants = [op_of(tensor) in known for tensor in op.inputs]
    if sum(constants) != 1:
        return None
    slot = constants.index(True)
    tensor = op.inputs[1 - slot]
    child = ops[op_of(tensor)]
    shapes = {t.shape for t in (*child.info.inputs, *child.info.outputs, *op.info.outputs)}
    fits = (
        _ALIKE.get(child.op_type) == _ALIKE[op.op_type]
        and len(shapes) == 1
        and op.info.outputs[0].dtype not in _LOW_PRECISION
        and not child.control_inputs
        and tuple(graph.tensors[tensor].consumers) == (op.name,)
        and known.isdisjoint(map(op_of, child.inputs))
    )
    return (child.name, slot) if fits else None


def _with_input(op: Op, slot: int, tensor: str, properties: TensorProperties) -> Op:
    inputs, known = list(op.inputs), list(op.info.inputs)
    inputs[slot], known[slot] = tensor, properties
    return replace(op, inputs=tuple(inputs), info=replace(op.info, inputs=tuple(known)))
