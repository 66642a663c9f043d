"""Seconds and memory from an extracted graph to its plan, by the number of ops.

    python benchmarks/scale/run.py FOLDER [--depths 6,12,24,48] [--limits 5,10,20,40]

Training steps of one transformer, deeper and deeper (about 1,000 ops per layer), on four devices
with caps of ``--percent`` of an equal share of the peak on one.  Each depth has a process of its
own; ``FOLDER`` keeps the graphs.  A row has the wall seconds of ``place_extraction`` under each
time limit with the transfer of the plan, and the largest resident set of the process and of the
solver's.  The first plan within 1% of the last is what the exponent is taken of.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).parents[1]))

MIB = 1024**2
DEVICES = 4
NEAR = 1.01


def graph_of(depth: int) -> Any:
    """A training step of a causal transformer of that many layers."""
    from graphs import BenchmarkGraph, transformer

    return BenchmarkGraph(
        name=f"decoder_adam_{depth}",
        kind="transformer training",
        build=transformer(64, 128, 4, depth, vocabulary=4000, causal=True),
        inputs=(((64,), "int32"),),
        labels=((64,), "int32"),
        batches=(8, 8),
        optimizer="Adam",
    )


def measure(depth: int, limits: list[float], percent: int, folder: Path) -> dict[str, Any]:
    """One row."""
    from graphs import write_graph

    from placer.pipeline import constraints_of, place_extraction, prepare
    from placer.prediction import predict
    from placer.request import Options

    model = write_graph(graph_of(depth), 8, folder)
    outputs = tuple(json.loads(model.with_suffix(".json").read_text())["outputs"])
    wanted = Options(outputs=outputs, spill="never")
    work = prepare(model, f"{DEVICES}xA100-80GB,CPU:256GiB", wanted)
    together = constraints_of(work.extraction, work.cluster, wanted).first_choice
    metrics = predict(work.extraction.graph, work.costs, together, work.cluster)
    accelerators = [d.name for d in work.cluster.devices if d.type == "GPU"]
    peak = max(metrics.timelines[name].peak_bytes for name in accelerators)
    cap = peak * percent // (100 * DEVICES)
    wanted = replace(wanted, max_memory={number: cap for number in range(DEVICES)})
    work = prepare(model, f"{DEVICES}xA100-80GB,CPU:256GiB", wanted)
    runs = []
    for limit in limits:
        started = time.perf_counter()
        asked = replace(wanted, time_limit=limit)
        plan = place_extraction(work.extraction, work.costs, work.cluster, asked)
        value = plan.metrics.get("transfer_bytes") if plan.placement else None
        runs.append(
            {
                "limit": limit,
                "seconds": round(time.perf_counter() - started, 1),
                "search_seconds": round(plan.solver["seconds"], 1),
                "status": plan.solver["status"],
                "transfer_bytes": value,
            }
        )
    usage = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    own, child = (each.ru_maxrss * 1024 for each in usage)
    ops = len(work.extraction.graph.ops)
    return {"depth": depth, "ops": ops, "own_bytes": own, "child_bytes": child, "runs": runs}


def first_near(row: dict[str, Any]) -> float | None:
    """The seconds of the first plan within 1% of the last one."""
    last = row["runs"][-1]["transfer_bytes"]
    if last is None:
        return None
    near = (r["seconds"] for r in row["runs"] if (r["transfer_bytes"] or math.inf) <= NEAR * last)
    return min(near, default=None)


def show(rows: list[dict[str, Any]]) -> None:
    """The table in markdown."""
    limits = [run["limit"] for run in rows[0]["runs"]]
    heads = [f"limit {limit:g} s" for limit in limits]
    columns = ["ops", *heads, "first within 1%, s", "memory, solver's, MiB"]
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    for row in rows:
        cells = [f"{row['ops']:,}"]
        for run in row["runs"]:
            size = run["transfer_bytes"]
            found = run["status"] if size is None else f"{size / 1e6:,.3f} MB"
            cells.append(f"{run['seconds']:.1f} s, {found}")
        cells += [f"{first_near(row) or math.nan:.1f}"]
        cells += [f"{row['own_bytes'] / MIB:,.0f}, {row['child_bytes'] / MIB:,.0f}"]
        print("| " + " | ".join(cells) + " |")
    known = [(row["ops"], seconds) for row in rows if (seconds := first_near(row))]
    if len(known) > 1:
        (few, fast), (many, slow) = known[0], known[-1]
        exponent = math.log(slow / fast) / math.log(many / few)
        print(f"\nexponent from {few:,} to {many:,} ops: {exponent:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--depths", default="6,12,24,48")
    parser.add_argument("--limits", default="5,10,20,40")
    parser.add_argument("--percent", type=int, default=130)
    parser.add_argument("--only", type=int, help="measure one depth and write its row")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    limits = [float(limit) for limit in arguments.limits.split(",")]
    if arguments.only:
        row = measure(arguments.only, limits, arguments.percent, arguments.folder)
        Path(arguments.folder, f"row-{arguments.only}.json").write_text(json.dumps(row))
        return
    rows = []
    for depth in map(int, arguments.depths.split(",")):
        path = Path(arguments.folder, f"row-{depth}.json")
        if not path.exists():
            again = [sys.executable, __file__, str(arguments.folder), f"--only={depth}"]
            again += [f"--limits={arguments.limits}", f"--percent={arguments.percent}"]
            subprocess.run(again, check=True)
        rows.append(json.loads(path.read_text()))
    show(rows)


if __name__ == "__main__":
    main()
