"""Seconds and memory from an extracted graph to its plan, by the number of ops.

    python benchmarks/scale/run.py FOLDER [--depths 5,10,20,40] [--limits 5,10,20,40]

Training steps of one transformer, deeper and deeper, and of NASNet, on four devices with caps of
``--percent`` of an equal share of what TensorFlow's allocator needs on one.  Each graph has a
process of its own, and its row is kept in ``FOLDER``; ``--table`` prints what is there and runs
nothing.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import resource
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "graphs"))

MIB = 1024**2
DEVICES = 4
MACHINE = f"{DEVICES}xA100-80GB,CPU:256GiB"
NEAR = 1.01
NASNET = "nasnet_mobile_adam"


def graph_of(name: str) -> Any:
    """NASNet's training step, or that of a causal transformer of so many layers."""
    from graphs import BenchmarkGraph, transformer
    from problems import BUILT

    if not name.isdecimal():
        return next(graph for graph in BUILT if graph.name == name)
    return BenchmarkGraph(
        name=file_name(name),
        kind="transformer training",
        build=transformer(64, 128, 4, int(name), vocabulary=4000, causal=True),
        inputs=(((64,), "int32"),),
        labels=((64,), "int32"),
        batches=(8, 8),
        optimizer="Adam",
    )


def file_name(name: str) -> str:
    """What the file of a graph begins with."""
    return f"decoder_adam_{name}" if name.isdecimal() else name


def build(name: str, folder: Path) -> None:
    """Write a graph to ``folder``, if it is not there."""
    from graphs import write_graph

    graph = graph_of(name)
    write_graph(graph, graph.batches[0], folder)


class Phases(logging.Handler):
    """When the pipeline says what it begins."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[float] = []

    def emit(self, _record: logging.LogRecord) -> None:
        self.begun.append(time.perf_counter())


def measure(name: str, limits: list[float], percent: int, folder: Path) -> dict[str, Any]:
    """One row: a plan under each time limit, with the seconds of posing the problem, of the
    search, and of predicting and writing down."""
    from placer.pipeline.formulation import constraints_of
    from placer.pipeline.placement import place_workload
    from placer.pipeline.preparation import prepare
    from placer.plan.request import Options
    from placer.prediction.prediction import predict
    from placer.processes import collection_paused

    model = next(folder.glob(f"{file_name(name)}-b*.pb"))
    outputs = tuple(json.loads(model.with_suffix(".json").read_text())["outputs"])
    wanted = Options(outputs=outputs, offload="never")
    work = prepare(model, MACHINE, wanted)
    together = constraints_of(work).first_choice
    metrics = predict(work.graph, work.costs, together, work.cluster)
    need = max(need.need.high_bytes for name, need in metrics.needs.items() if "GPU" in name)
    cap = need * percent // (100 * DEVICES)
    wanted = replace(wanted, max_memory={number: cap for number in range(DEVICES)})
    del metrics
    runs = []
    phases = Phases()
    logger = logging.getLogger("placer.pipeline")
    logger.addHandler(phases)
    logger.setLevel(logging.INFO)
    for limit in limits:
        phases.begun.clear()
        started = time.perf_counter()
        asked = replace(wanted, time_limit=limit)
        with collection_paused():  # as ``placer.place`` does
            plan = place_workload(work.on(MACHINE, asked))
        ended = time.perf_counter()
        moments = [started, *phases.begun, ended]
        runs.append(
            {
                "limit": limit,
                "seconds": ended - started,
                "phases": [after - before for before, after in pairwise(moments)],
                "status": plan.solver.status,
                "transfer_bytes": plan.metrics.transfer_bytes,
            }
        )
    usage = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    own, child = (each.ru_maxrss * 1024 for each in usage)
    return {
        "name": name,
        "ops": len(work.graph.ops),
        "own_bytes": own,
        "child_bytes": child,
        "runs": runs,
    }


def first_near(row: dict[str, Any]) -> float | None:
    """The seconds to the first plan within 1% of the last one."""
    last = _bytes(row["runs"][-1])
    near = (run["seconds"] for run in row["runs"] if _bytes(run) <= NEAR * last)
    return min(near, default=None) if math.isfinite(last) else None


def _bytes(run: dict[str, Any]) -> float:
    """What a plan transfers; infinite if it is none that fits."""
    fits = run["status"] in ("OPTIMAL", "FEASIBLE")
    return run["transfer_bytes"] if fits else math.inf


def show(rows: list[dict[str, Any]]) -> None:
    """The tables in markdown, and the exponent of the transformers."""
    limits = [run["limit"] for run in rows[0]["runs"]]
    columns = ["graph", "ops", *(f"limit {limit:g} s" for limit in limits)]
    columns += ["first within 1%, s", "pose, search, predict, s", "memory, with its search's, MiB"]
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    for row in rows:
        name = f"{row['name']} layers" if row["name"].isdecimal() else row["name"]
        cells = [name, f"{row['ops']:,}"]
        for run in row["runs"]:
            size = _bytes(run)
            found = run["status"] if math.isinf(size) else f"{size / 1e6:,.3f} MB"
            cells.append(f"{run['seconds']:.1f} s, {found}")
        cells.append(f"{first_near(row) or math.nan:.1f}")
        cells.append(", ".join(f"{seconds:.1f}" for seconds in row["runs"][-1]["phases"]))
        cells.append(f"{row['own_bytes'] / MIB:,.0f}, {row['child_bytes'] / MIB:,.0f}")
        print("| " + " | ".join(cells) + " |")
    layered = [row for row in rows if row["name"].isdecimal()]
    known = [(row["ops"], seconds) for row in layered if (seconds := first_near(row))]
    if len(known) > 1:
        (few, fast), (many, slow) = known[0], known[-1]
        exponent = math.log(slow / fast) / math.log(many / few)
        print(f"\nExponent from {few:,} to {many:,} ops: {exponent:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--depths", default="5,10,20,40")
    parser.add_argument("--limits", default="5,10,20,40")
    parser.add_argument("--percent", type=int, default=130)
    parser.add_argument("--only", metavar="NAME", help="measure one graph and write its row")
    parser.add_argument("--build", metavar="NAME", help="write one graph only")
    parser.add_argument("--table", action="store_true", help="print the table and run nothing")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    limits = [float(limit) for limit in arguments.limits.split(",")]
    if arguments.only:
        row = measure(arguments.only, limits, arguments.percent, arguments.folder)
        path = arguments.folder / f"row-{arguments.only}.json"
        path.write_text(json.dumps(row))
        return
    if arguments.build:
        build(arguments.build, arguments.folder)
        return
    rows = []
    for name in (*arguments.depths.split(","), NASNET):
        path = arguments.folder / f"row-{name}.json"
        if not path.exists() and not arguments.table:
            for step in ("build", "only"):  # so that building takes no memory of the measurement
                subprocess.run([sys.executable, *sys.argv, f"--{step}={name}"], check=True)
        if path.exists():
            rows.append(json.loads(path.read_text()))
    if rows:
        show(sorted(rows, key=lambda row: row["ops"]))


if __name__ == "__main__":
    main()
