"""The loops of TensorFlow 1, which are made of ops: which ops run in one, and how often.

::

    Enter -> Merge -> Switch -> body -> NextIteration -.
               ^______________________________________'
"""

from collections.abc import Mapping
from dataclasses import replace

from placer.graph.op_graph import Op, OpGraph
from placer.graph.op_types import ENTERS, EXITS, MERGES, NEXT_ITERATIONS, SWITCHES
from placer.graph.tensor_names import op_of
from placer.prediction.step.control_flow import (
    Number,
    TripCount,
    argument_of,
    constant_value,
    count_trips,
    last_value,
    loop_invariants,
    origin,
)

_Frames = tuple[str, ...]
"""The names of the frames around an op, outermost first."""


def find_loops(graph: OpGraph) -> Mapping[str, tuple[TripCount | None, ...]]:
    """The loops that each op of a loop runs in, outermost first, as how often they run where a
    counter decides it; an ``Enter`` and an ``Exit`` run once, outside theirs."""
    if not any(op.op_type in ENTERS for op in graph.ops.values()):
        return {}
    frames = _find_frames(graph)
    counters = _Counters(graph, frames)
    for _ in range(2):  # a stack may come, in graph order, before what is pushed onto it
        for op in graph.ops.values():
            counters.follow(op)
    trips = {frames[name]: found for name, found in counters.counts.items()}
    return {
        name: tuple(trips.get(around[: depth + 1]) for depth in range(len(around)))
        for name, inside in frames.items()
        if (around := inside[:-1] if graph.ops[name].op_type in ENTERS else inside)
    }


def _find_frames(graph: OpGraph) -> dict[str, _Frames]:
    """The frames of every op; an ``Enter`` counts to the one that it opens."""
    found: dict[str, _Frames] = {}
    for op in graph.ops.values():
        above = (found.get(name, ()) for name in (*op.producers, *op.control_inputs))
        frames = max(above, key=len, default=())
        if op.op_type in ENTERS:
            frames = (*frames, str(op.info.attributes.get("frame_name", "")))
        found[op.name] = frames[:-1] if op.op_type in EXITS else frames
    return found


class _Counters:
    """The loop variables of a graph: one ``view`` of it is the condition and the body of every
    loop, with the ``Merge`` of each variable as argument and its next value as result.

    The values of ops that are followed, in graph order, are written into the view.
    """

    def __init__(self, graph: OpGraph, frames: Mapping[str, _Frames]) -> None:
        variables: dict[str, Op] = {}
        for op in graph.ops.values():
            types = [graph.ops[name].op_type for name in op.producers]
            if op.op_type in MERGES and len(types) == 2 and types[1] in NEXT_ITERATIONS:
                variables[op.name] = op
        self.frames = frames
        self.ops = dict(graph.ops)
        self.view = replace(
            graph,
            ops=self.ops,
            feeds=tuple(variables),
            fetches=tuple(op.inputs[1] for op in variables.values()),
        )
        self.numbers = {name: number for number, name in enumerate(variables)}
        self.starts: list[Number | None] = [None] * len(variables)
        self.counts: dict[str, TripCount | None] = {}
        self.pushed: dict[str, str] = {}

    def follow(self, op: Op) -> None:
        """Counts the loop of a ``LoopCond``, or notes the value that ``op`` starts a variable with,
        leaves a loop with, or takes from a stack (of the counts of an inner loop, for its
        gradient)."""
        if op.op_type == "LoopCond":
            self.counts[op.name] = self._trips(op)
        elif op.name in self.numbers:
            self.starts[self.numbers[op.name]] = self._value(op.inputs[0])
        elif op.op_type in EXITS:
            self._write(op, self._last(op))
        elif op.op_type == "StackPushV2":
            self.pushed[origin(op.inputs[0], self.view)] = op.inputs[1]
        elif op.op_type == "StackPopV2":
            pushed = self.pushed.get(origin(op.inputs[0], self.view))
            self._write(op, None if pushed is None else self._value(pushed))

    def _trips(self, condition: Op) -> TripCount | None:
        inside, kept = self.frames[condition.name], self.view.ask_once(loop_invariants)
        known = [  # without the counters of loops around it, which stand still in this one
            start if number in kept or self.frames[name] == inside else None
            for start, (name, number) in zip(self.starts, self.numbers.items(), strict=True)
        ]
        return count_trips(condition.inputs[0], self.view, self.view, known)

    def _value(self, tensor: str) -> Number | None:
        return constant_value(tensor, self.view, self.view, self.starts)

    def _last(self, leaving: Op) -> Number | None:
        switch = self.ops[op_of(leaving.inputs[0])]
        if switch.op_type not in SWITCHES:
            return None
        number = argument_of(switch.inputs[0], self.view)
        trips = self.counts.get(op_of(origin(switch.inputs[1], self.view)))
        return None if number is None else last_value(number, self.view, self.starts, trips)

    def _write(self, op: Op, value: Number | None) -> None:
        if value is not None:
            output = replace(op.info.outputs[0], value=(value,))
            self.ops[op.name] = replace(op, info=replace(op.info, outputs=(output,)))
