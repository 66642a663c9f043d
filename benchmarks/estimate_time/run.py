"""How long does the estimate of a graph of 50,000 ops take, once it is extracted?

    python benchmarks/estimate_time/run.py FOLDER [--ops 50000] [--rounds 5]

The graph is the training step of a ResNet-50 of ``benchmarks/graphs.py``, several of them side by
side in one step.  A round is the costs of all ops and their memory: along every order that is
followed (low, expected and high peak), the timeline with what is alive at the peak, and what the
allocator needs.  Transfers and the schedule are timed beside it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import graphs

from cost_models.clusters import parse_cluster
from cost_models.op_cost import OpCost
from placer.extraction import extract
from placer.graph.op_graph import OpGraph
from placer.prediction.costs.op_costs import estimate_costs
from placer.prediction.orders.execution_orders import (
    peaks_along,
    ranges_of_peaks,
    typical_order,
)
from placer.prediction.orders.needs import peaks_at_once
from placer.prediction.orders.possible_steps import PossibleSteps
from placer.prediction.prediction import predict_step_seconds
from placer.processes import collection_paused

NAME, BATCH = "resnet50_momentum", 2
DEVICE = "CPU:0"
Answer = TypeVar("Answer")


class Clock:
    """Wall and processor seconds of the parts of a round, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, tuple[float, float]] = {}

    def timed(self, part: str, work: Callable[[], Answer]) -> Answer:
        start = time.perf_counter(), time.process_time()
        answer = work()
        self.seconds[part] = time.perf_counter() - start[0], time.process_time() - start[1]
        return answer


def side_by_side(graph: OpGraph, least_ops: int) -> OpGraph:
    """So many copies of ``graph`` in one that it has at least ``least_ops``."""
    ops, variables, feeds, fetches = {}, [], [], []
    for number in range(-(-least_ops // len(graph.ops))):
        under = f"copy{number}/"
        for op in graph.ops.values():
            ops[under + op.name] = replace(
                op,
                name=under + op.name,
                inputs=tuple(under + tensor for tensor in op.inputs),
                control_inputs=tuple(under + name for name in op.control_inputs),
            )
        variables += [
            replace(v, name=under + v.name, handle=under + v.handle) for v in graph.variables
        ]
        feeds += [under + name for name in graph.feeds]
        fetches += [under + tensor for tensor in graph.fetches]
    return replace(
        graph,
        ops=ops,
        variables=tuple(variables),
        feeds=tuple(feeds),
        fetches=tuple(fetches),
        targets=(),
        colocation_groups=(),
    )


def estimate(graph: OpGraph) -> dict[str, tuple[float, float]]:
    """Everything that a report says of time and memory, timed part by part."""
    clock = Clock()
    placement = dict.fromkeys(graph.ops, DEVICE)
    cluster = parse_cluster(f"{DEVICE}:64GiB")

    @collection_paused()
    def memory(costs: Mapping[str, OpCost]) -> None:
        steps = clock.timed("  orders", lambda: PossibleSteps(graph, costs, accelerated=False))
        step = clock.timed("  layout", lambda: steps.memory(placement, (DEVICE,)))
        peaks = clock.timed("  peaks", lambda: peaks_along(step, steps.orders))
        ranges_of_peaks(step, peaks)
        order = typical_order(steps.orders, peaks)
        clock.timed("  timeline", lambda: step.timelines(order))
        clock.timed("  at once", lambda: peaks_at_once(step, steps.threaded_steps))

    def estimated() -> None:
        costs = clock.timed("costs", lambda: estimate_costs(graph))
        clock.timed("memory", lambda: memory(costs))

    clock.timed("costs and memory", estimated)
    costs = estimate_costs(graph)
    known = graph, costs, placement, cluster
    clock.timed("transfers and schedule", lambda: predict_step_seconds(*known))
    return clock.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ops", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    known = {graph.name: graph for graph in graphs.GRAPHS}
    path = graphs.write_graph(known[NAME], BATCH, arguments.folder)
    outputs = json.loads(path.with_suffix(".json").read_text())["outputs"]
    graph = side_by_side(extract(str(path), outputs=outputs).graph, arguments.ops)
    rounds = [estimate(graph) for _ in range(arguments.rounds)]
    print(f"{len(graph.ops):,} ops, median (least) of {arguments.rounds} rounds")
    print(f"{'':24} {'wall seconds':>16} {'processor seconds':>20}")
    for part in rounds[0]:
        wall, processor = zip(*(found[part] for found in rounds), strict=True)
        print(
            f"{part:24} {statistics.median(wall):8.2f} ({min(wall):.2f}) "
            f"{statistics.median(processor):12.2f} ({min(processor):.2f})"
        )


if __name__ == "__main__":
    main()
