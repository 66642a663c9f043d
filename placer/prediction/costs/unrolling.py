"""The memory of a loop: its iterations laid out one after the other, and simulated.

One loop on its own, fed with its arguments; see :mod:`placer.prediction.step.loop_bodies`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cost_models.op_cost import OpCost
from cost_models.op_info import OpInfo
from placer.graph.op_graph import Op, OpGraph
from placer.prediction.memory.buffers import peak_without_feeds
from placer.prediction.memory.lifetimes import Simulation
from placer.prediction.memory.timelines import StepMemory
from placer.prediction.step.executor import prepare, run_once
from placer.prediction.step.loop_bodies import BodyLayout

_DEVICE = "CPU:0"
_MOST_OPS = 20_000
"""A loop of more ops is followed for some iterations, from which the others are concluded."""

_MOST_ORDERS = 8


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
    graph, cost_of = _unroll(op, functions, costs, trips)
    step = StepMemory(graph, cost_of, dict.fromkeys(graph.ops, _DEVICE), (_DEVICE,), _DEVICE)
    prepared = prepare(graph)
    peaks = []
    for seed in range(max(1, min(_MOST_ORDERS, 2 * _MOST_OPS // len(graph.ops)))):
        simulation = Simulation(step.layout, step.numbers(run_once(prepared, seed)))
        simulation.run()
        peaks.append(peak_without_feeds(simulation.lifetimes, len(graph.ops)))
    home = {
        tensor: value
        for name, values in zip(step.layout.names, step.layout.outputs, strict=True)
        for tensor, value in zip(graph.output_names[name], values, strict=True)
    }
    return LoopMemory(
        peak_bytes=tuple(peaks),
        result_bytes=tuple(simulation.held_bytes([home[tensor] for tensor in graph.fetches])),
    )


def _unroll(
    op: Op, functions: Mapping[str, OpGraph], costs: Mapping[str, Mapping[str, OpCost]], trips: int
) -> tuple[OpGraph, dict[str, OpCost]]:
    """The graph of the iterations, fed with the loop's arguments, and its costs."""
    layout = BodyLayout(functions, costs)
    feeds = [f"argument{index}" for index in range(len(op.info.inputs))]
    inputs = tuple(
        layout.add(Op(name=name, info=OpInfo(op="Placeholder", outputs=(properties,))))
        for name, properties in zip(feeds, op.info.inputs, strict=True)
    )
    results = layout.add_loop(replace(op, inputs=inputs, control_inputs=()), trips)
    graph = OpGraph(ops=layout.ops, feeds=tuple(feeds), fetches=tuple(results), functions=functions)
    return graph, layout.cost_of
