"""What a loop holds in memory: its iterations laid out one after the other, and followed.

TensorFlow runs loops as ops of the graph (``Merge``, ``Switch``, ``NextIteration``), so that what
does not depend on the iteration before runs ahead of it, up to ``parallel_iterations``.

    argument --> merge 0 --> switch 0 --> body 0 --> next 0 --> merge 1 --> switch 1 --> ...
                    '--> cond 0 ...^                               '--> cond 1 ...^

``tensorflow/core/common_runtime/lower_while_op.cc``, ``propagator_state.cc``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate

from cost_models.op_cost import OpCost
from cost_models.op_info import OpInfo, TensorProperties
from cost_models.tensor_size import tensor_bytes
from placer.graph.op_graph import Op, OpGraph
from placer.prediction.buffers import Lifetime
from placer.prediction.executor import prepare, run_once
from placer.prediction.lifetimes import Simulation
from placer.prediction.memory import StepMemory

_DEVICE = "CPU:0"
_MOST_OPS = 20_000
"""A loop of more ops is followed for some iterations, from which the others are concluded."""

_MOST_ORDERS = 8

_DEFAULT_PARALLEL_ITERATIONS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopMemory:
    """The most that the iterations hold at once, arguments aside, in each of some orders that they
    may run in, and of that what each result holds in the end (the elements of tensor lists
    included, each tensor once)."""

    peak_bytes: tuple[int, ...]
    result_bytes: tuple[int, ...]


def follow_loop(
    op: Op, functions: Mapping[str, OpGraph], costs: Mapping[str, Mapping[str, OpCost]], trips: int
) -> LoopMemory:
    """The memory of ``trips`` iterations of the loop ``op``.

    ``costs`` has the costs of the ops of its condition and of its body, by function.
    """
    (condition,), (body,) = op.bodies["cond"], op.bodies["body"]
    size = len(functions[condition].ops) + len(functions[body].ops)
    followed = max(1, min(trips, _MOST_OPS // max(size, 1)))
    found = _follow(op, functions, costs, followed)
    if followed == trips or followed < 2:
        return found
    before = _follow(op, functions, costs, followed - 1)
    more = trips - followed
    growth = [max(0, b - a) for a, b in zip(before.result_bytes, found.result_bytes, strict=True)]
    return LoopMemory(
        peak_bytes=tuple(peak + more * sum(growth) for peak in found.peak_bytes),
        result_bytes=tuple(
            size + more * added for size, added in zip(found.result_bytes, growth, strict=True)
        ),
    )


def _follow(
    op: Op, functions: Mapping[str, OpGraph], costs: Mapping[str, Mapping[str, OpCost]], trips: int
) -> LoopMemory:
    graph, cost_of = _Unrolled(op, functions, costs).unroll(trips)
    step = StepMemory(graph, cost_of, dict.fromkeys(graph.ops, _DEVICE), (_DEVICE,), _DEVICE)
    prepared = prepare(graph)
    peaks = []
    for seed in range(max(1, min(_MOST_ORDERS, 2 * _MOST_OPS // len(graph.ops)))):
        simulation = Simulation(step.layout, step.numbers(run_once(prepared, seed)))
        simulation.run()
        peaks.append(_peak_bytes(simulation.lifetimes, len(graph.ops)))
    home = {
        tensor: value
        for name, values in zip(step.layout.names, step.layout.outputs, strict=True)
        for tensor, value in zip(graph.output_names[name], values, strict=True)
    }
    return LoopMemory(
        peak_bytes=tuple(peaks),
        result_bytes=tuple(simulation.held_bytes([home[tensor] for tensor in graph.fetches])),
    )


def _peak_bytes(lifetimes: Iterable[Lifetime], count: int) -> int:
    """The most that is alive at once, fed values aside."""
    change = [0] * (count + 1)
    for lifetime in lifetimes:
        if lifetime.kind != "feed":
            change[lifetime.first] += lifetime.bytes
            change[lifetime.last + 1] -= lifetime.bytes
    return max(accumulate(change))


class _Unrolled:
    """The graph of the iterations while it is built; ``values`` are the loop's variables."""

    def __init__(
        self,
        op: Op,
        functions: Mapping[str, OpGraph],
        costs: Mapping[str, Mapping[str, OpCost]],
    ) -> None:
        self.op = op
        self.functions = functions
        self.costs = costs
        self.ops: dict[str, Op] = {}
        self.cost_of: dict[str, OpCost] = {}
        limit = op.info.attributes.get("parallel_iterations")
        self.limit = limit if isinstance(limit, int) else _DEFAULT_PARALLEL_ITERATIONS

    def unroll(self, trips: int) -> tuple[OpGraph, dict[str, OpCost]]:
        """The graph, fed with the loop's arguments and fetching its results, and its costs."""
        (condition,), (body,) = self.op.bodies["cond"], self.op.bodies["body"]
        feeds = [f"argument{index}" for index in range(len(self.op.info.inputs))]
        for name, properties in zip(feeds, self.op.info.inputs, strict=True):
            self._add(Op(name=name, info=OpInfo(op="Placeholder", outputs=(properties,))))
        values = [f"{name}:0" for name in feeds]
        waits: list[tuple[str, ...]] = []
        for trip in range(trips):
            after = waits[trip - self.limit] if trip >= self.limit else ()
            merged = self._pass_on(values, f"merge{trip}", after)
            met = self._call(condition, f"cond{trip}", merged)[0].rpartition(":")[0]
            switched = self._pass_on(merged, f"switch{trip}", (met,))
            results = self._call(body, f"body{trip}", switched)
            values = self._pass_on(results, f"next{trip}", ())
            waits.append(tuple(value.rpartition(":")[0] for value in values))
        graph = OpGraph(
            ops=self.ops, feeds=tuple(feeds), fetches=tuple(values), functions=self.functions
        )
        return graph, self.cost_of

    def _pass_on(self, values: list[str], name: str, after: tuple[str, ...]) -> list[str]:
        """The same values, handed on when the ops of ``after`` are done."""
        passed = []
        for index, value in enumerate(values):
            properties = self._properties(value)
            identity = OpInfo(op="Identity", inputs=(properties,), outputs=(properties,))
            op = Op(name=f"{name}/{index}", info=identity, inputs=(value,), control_inputs=after)
            passed.append(self._add(op))
        return passed

    def _call(self, function: str, name: str, arguments: list[str]) -> list[str]:
        """The results of ``function``, its ops added under ``name``."""
        body, costs = self.functions[function], self.costs[function]
        of = {f"{feed}:0": value for feed, value in zip(body.feeds, arguments, strict=True)}
        start = arguments[0].rpartition(":")[0]
        for op in body.ops.values():
            if op.name in body.feeds:
                continue
            controls = [f"{name}/{c}" for c in op.control_inputs if c not in body.feeds]
            waits = bool(op.inputs or controls)
            copy = replace(
                op,
                name=f"{name}/{op.name}",
                inputs=tuple(of[tensor] for tensor in op.inputs),
                control_inputs=tuple(controls) if waits else (start,),
            )
            self.ops[copy.name] = copy
            self.cost_of[copy.name] = costs[op.name]
            for index in range(len(op.info.outputs)):
                of[op.output_name(index)] = copy.output_name(index)
        return [of[tensor] for tensor in body.fetches]

    def _add(self, op: Op) -> str:
        """The output of ``op``, which costs nothing itself."""
        self.ops[op.name] = op
        sizes = tuple(map(tensor_bytes, op.info.outputs))
        self.cost_of[op.name] = OpCost(output_bytes=sizes)
        return op.output_name(0)

    def _properties(self, value: str) -> TensorProperties:
        producer, _, index = value.rpartition(":")
        return self.ops[producer].info.outputs[int(index)]
