"""Predicted and recorded peaks without and with control edges.

    python benchmarks/memory_order/run.py FOLDER [NAME ...] [--processes 3]

builds the graphs of ``benchmarks/graphs.py`` in ``FOLDER``, adds the control edges for the lowest
peak to a copy of each in ``FOLDER/ordered``, records a step of both in ``--processes`` processes,
and prints a row per graph.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from statistics import mean, median
from time import perf_counter

from cost_models.clusters import parse_cluster
from placer.extraction import extract
from placer.fitting.placed_order import edges_for_low_peaks
from placer.graph.control_edges import add_control_edges
from placer.graph.op_graph import OpGraph
from placer.prediction.costs.op_costs import estimate_costs
from placer.prediction.memory.timelines import StepMemory
from placer.prediction.orders.possible_steps import predict_peak_ranges
from placer.prediction.prediction import predict

sys.path.insert(0, str(Path(__file__).parents[1]))
from graphs import build_apart

HERE = Path(__file__).parent
DEVICE = "CPU:0"
COLUMNS = (
    *("graph", "ops", "edges", "search", "step time"),
    *("predicted, MB", "recorded, MB", "predicted", "recorded", "off"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--processes", type=int, default=3)
    arguments = parser.parse_args()
    paths = build_apart(arguments.folder, arguments.names)
    ordered = arguments.folder / "ordered"
    ordered.mkdir(exist_ok=True)
    rows = {path.stem: order(path, ordered) for path in paths}
    before = record(paths, arguments.processes)
    after = record([ordered / path.name for path in paths], arguments.processes)
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS))
    for name, row in rows.items():
        print("| " + " | ".join(fields(name, row, before[name], after[name])) + " |")
    lowered = [name for name, row in rows.items() if row["edges"]]
    cuts = [1 - median(after[name]) / median(before[name]) for name in lowered]
    if cuts:
        print(f"\n{len(cuts)} of {len(rows)} graphs get edges; mean cut {mean(cuts):.1%}")


def order(path: Path, folder: Path) -> dict:
    """What is predicted of a graph; writes it with the control edges into ``folder``."""
    from tensorflow.core.framework import graph_pb2

    facts = json.loads(path.with_suffix(".json").read_text())
    outputs = [name if ":" in name else f"^{name}" for name in facts["outputs"]]
    graph = extract(str(path), outputs=outputs).graph
    costs, cluster = estimate_costs(graph), parse_cluster("CPU:64GiB", None, None)
    placement = dict.fromkeys(graph.ops, DEVICE)
    start = perf_counter()
    edges = edges_for_low_peaks(graph, costs, placement, cluster)
    seconds = perf_counter() - start
    graph_def = graph_pb2.GraphDef.FromString(path.read_bytes())
    nodes = {node.name: node for node in graph_def.node}
    for before, after in edges:
        nodes[after].input.append(f"^{before}")
    (folder / path.name).write_bytes(graph_def.SerializeToString())
    shutil.copy(path.with_suffix(".json"), folder)
    aside = bytes_aside(graph, costs)
    graphs = graph, add_control_edges(graph, edges)
    steps = [predict(some, costs, placement, cluster).schedule.step_seconds for some in graphs]
    peaks = [predict_peak_ranges(some, costs, placement, [DEVICE])[DEVICE] for some in graphs]
    return {
        "ops": len(graph.ops),
        "edges": len(edges),
        "seconds": seconds,
        "step_time": steps[1] / steps[0] - 1,
        "before": peaks[0].expected_bytes - aside,
        "after": peaks[1].expected_bytes - aside,
    }


def bytes_aside(graph: OpGraph, costs) -> int:
    """Variables, constants and fed values, which the records do not have."""
    step = StepMemory(graph, costs, dict.fromkeys(graph.ops, DEVICE), (DEVICE,))
    fed = sum(size or 0 for name in graph.feeds for size in costs[name].output_bytes)
    return step.resident_bytes(DEVICE) + fed


def record(paths: Iterable[Path], processes: int) -> dict[str, list[int]]:
    """Recorded peaks by graph, one per process."""
    found: dict[str, list[int]] = {}
    for _ in range(processes):
        command = [sys.executable, HERE / "measure.py", *paths]
        result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        for line in result.stdout.splitlines():
            row = json.loads(line)
            found.setdefault(row["graph"], []).append(row["peak_bytes"])
    return found


def fields(name: str, row: dict, before: list[int], after: list[int]) -> list[str]:
    """One row of the table; bytes in MB."""
    predicted = 1 - row["after"] / row["before"]
    recorded = 1 - median(after) / median(before)
    return [
        name,
        f"{row['ops']:,}",
        f"{row['edges']:,}",
        f"{row['seconds']:.1f} s",
        f"{row['step_time']:+.1%}",
        f"{row['before'] / 1e6:.2f} to {row['after'] / 1e6:.2f}",
        f"{spread(before)} to {spread(after)}",
        f"{-predicted:+.1%}",
        f"{-recorded:+.1%}",
        f"{row['after'] / median(after) - 1:+.1%}",
    ]


def spread(peaks: list[int]) -> str:
    low, high = min(peaks) / 1e6, max(peaks) / 1e6
    return f"{low:.2f}" if high < 1.001 * low else f"{low:.2f}..{high:.2f}"


if __name__ == "__main__":
    main()
