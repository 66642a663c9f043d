"""Ops that sum over the examples of a batch, or read such a sum: is a loss a mean over them?

A mean over the examples of all parts is the mean of the parts' means, weighted by examples; so is
whatever is linear in it.  What multiplies two such numbers, divides by one, or compares one with
the examples, is not.  Random numbers are taken to be those of the whole batch, cut into parts.
"""

from collections.abc import Iterable

from placer.extraction.divisibility.batch_op import (
    SIZE,
    BatchOp,
    Count,
    Examples,
    MixesExamples,
    State,
    Total,
    Undecided,
)

_LINEAR = """
    Neg Cast Reshape Squeeze ExpandDims Sum Mean StopGradient PreventGradient Snapshot
    CheckNumerics CheckNumericsV2 Unpack SplitV StridedSlice Slice Transpose Tile BroadcastTo
"""
_SUMS = ("Add", "AddV2", "Sub", "AddN", "AccumulateNV2", "Pack", "ConcatV2", "Concat", "Split")
_QUOTIENTS = ("RealDiv", "Div", "DivNoNan")
_OF_SHAPES = ("Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike", "NoOp", "Assert")
_WHOLE = ("int32", "int64", "bool")


def apply_total_rule(op: BatchOp) -> list[State] | None:
    """The states of the results of an op that sums over the batch, or reads what does, or draws
    random numbers; ``None`` for any other op.  Raises as
    :func:`~placer.extraction.divisibility.batch_rules.apply_rule`."""
    op_type, outputs = op.small.op_type, op.small.info.outputs
    if op_type in ("Identity", "IdentityN"):
        return None
    if any(isinstance(state, Total | Count) for state in op.states):
        return [_of_totals(op)] * len(outputs)
    if "Random" in op_type or "Multinomial" in op_type or op_type == "StatelessTruncatedNormal":
        return _drawn(op)
    if op_type in ("Mean", "Sum") and isinstance(op.states[0], Examples):
        op.only(0)
        if op.states[0].axis in {axis % op.rank(0) for axis in op.value(1)}:
            return [Total(int(op_type == "Sum"))]
    if op_type in ("All", "Any") and op.batched and op.grown() is None:
        raise Undecided("asks about all examples at once")
    if op_type == "L2Loss" and op.batched:
        return [Total(1)]
    if op_type == "MatMul" and len(op.batched) == 2 and _contracts_examples(op):
        return [Total(1)]
    if not op.batched and op_type == "Cast" and outputs[0].dtype not in _WHOLE:
        return [_count(op)]
    return None


def _of_totals(op: BatchOp) -> State:
    """The state of what is computed with sums over the batch and numbers of examples."""
    op_type, states = op.small.op_type, op.states
    if op_type in _OF_SHAPES:
        return None
    if SIZE in states:
        raise Undecided("computes with the number of examples")
    if op_type in _SUMS:  # the axis of a concatenation is a constant
        is_first = op_type in ("Concat", "Split")
        return _sum(states[1:] if is_first else states[:-1] if op_type == "ConcatV2" else states)
    if op_type in ("Select", "SelectV2") and states[0] is None:
        return _sum(states[1:])
    rounds = op_type == "Cast" and op.small.info.outputs[0].dtype in _WHOLE
    if op_type in _LINEAR.split() and not rounds and not any(states[1:]):
        return states[0]
    return _of_scaled(op)


def _of_scaled(op: BatchOp) -> State:
    """The state of a product or quotient; no other op is linear in a sum over the batch."""
    op_type, states = op.small.op_type, op.states
    if op_type in ("Mul", "MulNoNan", "MatMul", "BatchMatMulV2"):
        return _product(op)
    if op_type in _QUOTIENTS and _is_plain(states[1]):
        return _scaled(states[0], -_power(states[1]))
    if op_type in ("Reciprocal", "Inv") and isinstance(states[0], Count):
        return Count(-states[0].power)
    if not any(isinstance(state, Total) for state in states):
        raise Undecided("computes with the number of examples")
    if op_type in _QUOTIENTS:
        raise MixesExamples("divides by a sum over the examples")
    raise MixesExamples("is not linear in a sum over the examples")


def _sum(states: Iterable[State]) -> State:
    found = list(states)
    if any(isinstance(state, Examples) for state in found):
        raise MixesExamples("adds a sum over the examples to each of them")
    powers = {_power(state) for state in found}
    if len(powers) > 1:
        raise MixesExamples("adds a mean or a constant to a sum over the examples")
    return _made(powers.pop(), is_total=any(isinstance(state, Total) for state in found))


def _product(op: BatchOp) -> State:
    first, second = op.states[:2]
    if isinstance(first, Total) and isinstance(second, Total):
        raise MixesExamples("multiplies a sum over the examples by another")
    if isinstance(first, Examples) or isinstance(second, Examples):
        if isinstance(first, Total) or isinstance(second, Total):
            raise MixesExamples("multiplies examples by a sum over all of them")
        raise Undecided("computes with the number of examples")
    return _scaled(first, _power(second)) if _is_plain(second) else _scaled(second, _power(first))


def _is_plain(state: State) -> bool:
    return state is None or isinstance(state, Count)


def _scaled(state: State, power: int) -> State:
    """``state`` times the number of examples to the ``power``."""
    if isinstance(state, Examples):
        raise Undecided("computes with the number of examples")
    return _made(_power(state) + power, is_total=isinstance(state, Total))


def _power(state: State) -> int:
    return state.power if isinstance(state, Total | Count) else 0


def _made(power: int, *, is_total: bool) -> State:
    if is_total:
        return Total(power)
    return Count(power) if power else None


def _count(op: BatchOp) -> State:
    """The state of a size that becomes a number to compute with."""
    small, large = op.small.info.inputs[0].value, op.large.info.inputs[0].value
    if not small or not large or len(small) != 1 or not small[0] or not large[0]:
        raise Undecided("computes with the number of examples")
    for power in (0, 1, 2):
        if small[0] * op.sizes[1] ** power == large[0] * op.sizes[0] ** power:
            return _made(power, is_total=False)
    raise Undecided("computes with the number of examples")


def _contracts_examples(op: BatchOp) -> bool:
    """Whether a product sums over the examples of both its inputs."""
    attributes = op.small.info.attributes
    axes = int(not attributes.get("transpose_a")), int(bool(attributes.get("transpose_b")))
    return [state.axis for _, state in op.batched] == list(axes)


def _drawn(op: BatchOp) -> list[State]:
    """Random numbers: each example has its own, or all parts have as many as the whole."""
    if op.small.op_type == "RandomShuffle" and op.batched:
        raise MixesExamples("shuffles the examples")
    if "Multinomial" in op.small.op_type:
        op.only(0)
    elif op.batched:
        raise Undecided("draws random numbers by what the examples are")
    return [op.grown(number) for number in range(len(op.small.info.outputs))]
