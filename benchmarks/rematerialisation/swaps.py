"""Training steps whose tensors wait on the host: predicted and recorded, each device a process.

    python benchmarks/rematerialisation/swaps.py FOLDER [NAME ...] [--shares 0.7,0.5]
        [--fit swap] [--device T4]
    python benchmarks/rematerialisation/swaps.py FOLDER [NAME ...] --predict [--shares 0.7,0.5]

builds training steps of ``benchmarks/graphs.py`` in ``FOLDER`` (the larger batch), places each on
one card under a cap, a share of what the free step takes beyond what is resident, and rehearses
three steps of it with a process for the card and one for the host.  A process that stands for a
card runs the kernels of CPUs in the order of CPUs: what is predicted of that is compared with what
its allocator had handed out at most, under a limit that does not bind; then the steps are run once
more with the cap as limit.

With ``--predict`` there is the extra time that is predicted of swaps alone, of recomputation alone
and of both, for what is in use under the cap; first sequences only, so that the rows are the same
on every machine.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median_low
from time import process_time
from typing import Any

import placer
from cost_models.clusters import parse_cluster
from cost_models.op_cost import with_kernels_of
from placer.fitting.fitted_step import FitRequest
from placer.fitting.step_fitting import fit_step
from placer.graph.control_edges import add_control_edges
from placer.pipeline.workload import Workload, read_workload
from placer.plan.plan import Plan
from placer.plan.request import Options
from placer.prediction.memory.need import KeptChunks, peak_in_use
from placer.prediction.orders.needs import requests_along
from placer.prediction.orders.possible_steps import PossibleSteps
from placer.prediction.prediction import predict

sys.path.insert(0, str(Path(__file__).parents[1]))
from graphs import build_apart

NAMES = ("transformer_adam", "mobilenet_v2_sgd", "small_resnet_adam")
HOST, CARD, STAND_IN = "CPU:0", "GPU:0", "CPU:1"
AMPLE_BYTES = 2**34
_ORDERS = 8
PREDICTED = ("graph", "cap", "swap", "recompute", "recompute, swap")
COLUMNS = (
    *("graph", "cap", "predicted", "extra time", "swapped", "computed again", "edges"),
    *("stand-in predicted", "recorded", "host predicted", "host recorded", "served at the cap"),
    "CPU s",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--shares", default="0.7,0.5")
    parser.add_argument("--fit", default="swap")
    parser.add_argument("--device", default="T4")
    parser.add_argument("--predict", action="store_true")
    arguments = parser.parse_args()
    shares = [*map(float, arguments.shares.split(","))]
    largest: dict[str, tuple[int, Path]] = {}
    for path in build_apart(arguments.folder, arguments.names or list(NAMES)):
        name, _, batch = path.stem.rpartition("-b")
        largest[name] = max(largest.get(name, (0, path)), (int(batch), path))
    devices, columns = f"1x{arguments.device}", PREDICTED if arguments.predict else COLUMNS
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns), flush=True)
    for _, path in largest.values():
        if arguments.predict:
            found = predicted_rows(path, shares, devices)
        else:
            found = rows(path, shares, arguments.fit, devices)
        for row in found:
            print("| " + " | ".join(row) + " |", flush=True)


def rows(path: Path, shares: Sequence[float], fit: str, devices: str) -> Iterator[list[str]]:
    """The free step, then one row for each share."""
    outputs = tuple(json.loads(path.with_suffix(".json").read_text())["outputs"])
    workload = read_workload(str(path), devices, Options(outputs=outputs))
    options: dict[str, Any] = {"outputs": outputs, "time_limit": 20}
    free = placer.place(str(path), devices, **options)
    card = next(row for row in free.devices if row.name == CARD)
    yield row_of(path, workload, free, free, 0.0)
    for share in shares:
        cap = card.resident_bytes + int(share * (card.need_bytes - card.resident_bytes))
        begun = process_time()
        caps = {CARD: f"{cap}B"}
        plan = placer.place(str(path), devices, fit=fit, max_memory=caps, reserve="0", **options)
        if plan.rewriting or plan.control_edges:
            yield row_of(path, workload, plan, free, process_time() - begun)
        else:
            yield [path.stem, f"{cap / 1e6:.1f} MB", "none found", *[""] * (len(COLUMNS) - 3)]


def row_of(path: Path, workload: Workload, plan: Plan, free: Plan, seconds: float) -> list[str]:
    """What is predicted of a plan, and what its processes took."""
    used = {found.device: found for found in rehearsed(path, plan, AMPLE_BYTES).devices}
    peaks = {found.name: found.peak_memory_bytes for found in plan.devices}
    cap = next(found.memory_limit_bytes for found in plan.devices if found.name == CARD)
    served = rehearsed(path, plan, cap)
    return [
        path.stem,
        "" if plan is free else f"{cap / 1e6:.1f} MB",
        mb(peaks[CARD]),
        f"{plan.metrics.step_seconds / free.metrics.step_seconds - 1:+.1%}",
        str(len(plan.rewriting.swaps)),
        str(len(plan.rewriting.clones)),
        str(len(plan.control_edges)),
        mb(stand_in_peak(workload, plan)),
        mb(used[CARD].peak_bytes),
        mb(peaks[HOST]),
        mb(used[HOST].peak_bytes),
        "yes" if served.out_of_memory is None else f"no: {served.out_of_memory.op}",
        f"{seconds:.0f}",
    ]


def predicted_rows(path: Path, shares: Sequence[float], devices: str) -> Iterator[list[str]]:
    """What each way of fitting a share is predicted to take."""
    outputs = tuple(json.loads(path.with_suffix(".json").read_text())["outputs"])
    workload = read_workload(str(path), devices, Options(outputs=outputs))
    graph, costs, cluster = workload.graph, workload.costs, workload.cluster
    placement = dict.fromkeys(graph.ops, CARD)
    free = predict(graph, costs, placement, cluster, with_needs=False)
    resident, peak = free.timelines[CARD].resident_bytes, free.peaks[CARD].high_bytes
    for share in shares:
        cap = int(resident + share * (peak - resident))
        capped = parse_cluster(devices, {CARD: f"{cap}B"}, "0")
        row = [path.stem, f"{share:.0%}, {cap / 1e6:.1f} MB"]
        for means in (("swap",), ("recompute",), ("recompute", "swap")):
            request = FitRequest(means=means, seconds=0.0, with_needs=False)
            found = fit_step(graph, costs, placement, capped, request)
            counts = len(found.rewriting.swaps), len(found.rewriting.clones)
            told = f"{found.slowdown:+.1%} ({counts[0]} swapped, {counts[1]} computed again)"
            row.append(told if found.fits else "none found")
        yield row


def rehearsed(path: Path, plan: Plan, limit_bytes: int) -> Any:
    """Three steps under a limit for the card."""
    rows = (
        replace(row, memory_limit_bytes=limit_bytes) if row.name == CARD else row
        for row in plan.devices
    )
    return placer.verify(str(path), replace(plan, devices=tuple(rows)), memory=True).memory


def stand_in_peak(workload: Workload, plan: Plan) -> int:
    """What the allocator of the process that stands for the card is expected to have handed out at
    most, whole chunks counted, as it counts them: the median over some orders."""
    rewritten = workload.rewritten(plan.rewriting)
    graph = add_control_edges(rewritten.graph, plan.control_edges)
    costs = with_kernels_of(rewritten.costs, gpu=False)
    device_of = {name: plan.placement.get(name, HOST) for name in graph.ops}
    placement = {n: STAND_IN if device == CARD else device for n, device in device_of.items()}
    steps = PossibleSteps(graph, costs, accelerated=False)
    memory = steps.memory(placement, [HOST, STAND_IN])
    asked = [along[STAND_IN] for along in requests_along(memory, steps.orders[:_ORDERS])]
    return median_low(peak_in_use(one, KeptChunks(one)) for one in asked)


def mb(size: float) -> str:
    return f"{size / 1e6:.1f} MB"


if __name__ == "__main__":
    main()
