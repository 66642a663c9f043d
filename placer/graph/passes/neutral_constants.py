"""Products with one and sums with zero, which TensorFlow's graph optimizer takes out.

``beta * x`` of a SiLU is ``x`` itself where beta is 1: who reads the product reads ``x``.

``ConstantFolding::SimplifyArithmeticOperations`` of
``core/grappler/optimizers/constant_folding.cc``.
"""

from dataclasses import replace

from placer.graph.op_graph import Op, OpGraph
from placer.graph.passes.ordered_factors import order_factors
from placer.graph.tensor_names import op_of

_NEUTRAL = {
    "Mul": (1.0, (0, 1)),
    "RealDiv": (1.0, (1,)),
    "Add": (0.0, (0, 1)),
    "AddV2": (0.0, (0, 1)),
    "Sub": (0.0, (1,)),
}
"""The value that changes nothing, by op type, and the inputs at which it may be."""


def rearrange_constants(graph: OpGraph) -> OpGraph:
    """``graph`` as its products and sums are rearranged on accelerators; ops and names stay."""
    return order_factors(without_neutral(graph))


def without_neutral(graph: OpGraph) -> OpGraph:
    """``graph`` where an op that changes nothing hands its input on."""
    fetched = {op_of(tensor) for tensor in graph.fetches}
    ops = {name: op if name in fetched else _handed_on(op, graph) for name, op in graph.ops.items()}
    changed = any(ops[name] is not op for name, op in graph.ops.items())
    return replace(graph, ops=ops) if changed else graph


def _handed_on(op: Op, graph: OpGraph) -> Op:
    """The ``Identity`` in place of the op, if its other input is such a constant."""
    value, slots = _NEUTRAL.get(op.op_type, (0.0, ()))
    for slot in slots if len(op.inputs) == 2 else ():
        kept, constant = 1 - slot, op_of(op.inputs[slot])
        shape = op.info.outputs[0].shape
        if (
            op.info.inputs[kept].shape == shape
            and shape is not None
            and None not in shape
            and _value_of(graph.ops[constant], graph) == value
        ):
            info = replace(op.info, op="Identity", inputs=(op.info.inputs[kept],))
            controls = tuple(dict.fromkeys((*op.control_inputs, constant)))
            return replace(op, info=info, inputs=(op.inputs[kept],), control_inputs=controls)
    return op


def _value_of(op: Op, graph: OpGraph) -> float | None:
    """The value of a floating scalar that is constant, where it is known."""
    while op.op_type in ("Cast", "Identity") and not op.control_inputs:
        op = graph.ops[op_of(op.inputs[0])]
    output = op.info.outputs[0]
    known = op.op_type == "Const" and "float" in output.dtype and output.value
    return output.value[0] if known and output.value else None
