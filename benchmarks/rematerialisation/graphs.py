"""Training steps made to fit: peak against extra time, predicted, recorded and served.

    python benchmarks/rematerialisation/graphs.py FOLDER [NAME ...] [--shares 0.8,0.6,0.5,0.4,0.3]

builds training steps of ``benchmarks/graphs.py`` in ``FOLDER`` (the larger batch) and makes each
fit on one device by ``placer place --fit``.  A budget is a share of the transient peak of the free
step, and what is resident or fed on top; where one op needs more than that, the row says so.  A
step of what ``placer apply`` wrote is recorded, and run under TensorFlow's own allocator with the
budget as its limit.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from time import perf_counter

from cost_models.clusters import parse_cluster
from placer.extraction import extract
from placer.plan.plan import Plan
from placer.prediction.costs.op_costs import estimate_costs
from placer.prediction.memory.timelines import StepMemory
from placer.prediction.prediction import predict
from placer.solving.rematerialisation.reduction import working_sets

sys.path.insert(0, str(Path(__file__).parents[1]))
from graphs import build_apart

HERE = Path(__file__).parent
DEVICE = "CPU:0"
MEBIBYTE = 2**20
NAMES = (
    *("transformer_adam", "decoder_sgd", "small_resnet_adam", "resnet50_momentum", "unet_adam"),
    *("mobilenet_v2_sgd", "densenet121_sgd", "bidirectional_lstm_adam", "recommender_adagrad"),
    "perceptron_adam",
)
COLUMNS = (
    *("graph", "share", "budget MB", "bound", "peak MB", "recorded MB", "served", "time", "bound"),
    *("again", "edges", "planned in"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--shares", default="0.8,0.6,0.5,0.4,0.3")
    parser.add_argument("--fit", default="auto")
    parser.add_argument("--time-limit", type=float, default=60.0)
    arguments = parser.parse_args()
    paths: dict[str, Path] = {}
    for path in build_apart(arguments.folder, arguments.names or list(NAMES)):
        name, _, batch = path.stem.rpartition("-b")  # the larger batch
        known = paths.get(name)
        if known is None or int(known.stem.rpartition("-b")[2]) < int(batch):
            paths[name] = path
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS), flush=True)
    for path in paths.values():
        for row in fit(path, arguments):
            print("| " + " | ".join(row) + " |", flush=True)


def fit(path: Path, arguments: argparse.Namespace):
    """The rows of one graph; the first is the step as it is."""
    free = free_step(path)
    names = ["free"]
    rows = [[path.stem, "free", "", "", mb(free["transient"]), "", "", "", "", "", "", ""]]
    limits = [2**16]
    for share in map(float, arguments.shares.split(",")):
        budget = int(free["aside"] + share * free["transient"])
        target = arguments.folder / "fitted" / f"{path.stem}-{round(100 * share)}.pb"
        target.parent.mkdir(exist_ok=True)
        plan, seconds = place(path, target, free["outputs"], budget, arguments)
        found = plan.devices[0]
        row = [path.stem, f"{share:.0%}", mb(share * free["transient"])]
        row.append(f"{free['least'] / free['transient']:.0%}")
        if not plan.fits:
            below = "below the bound" if free["least"] > share * free["transient"] else "none found"
            rows.append([*row, below, *[""] * 6, f"{seconds:.0f} s"])
            continue
        extra = plan.metrics.fit_extra_seconds or 0.0
        step = plan.metrics.step_seconds - extra
        least = plan.metrics.fit_least_extra_seconds
        row += [mb(found.peak_expected_bytes - free["aside"]), "", "", f"{extra / step:+.1%}"]
        row += ["" if least is None else f"{least / step:.1%}", str(len(plan.rewriting.clones))]
        rows.append([*row, str(len(plan.control_edges)), f"{seconds:.0f} s"])
        names.append(target.stem)
        limits.append(-(-budget // MEBIBYTE))
    files = [path, *(arguments.folder / "fitted" / f"{name}.pb" for name in names[1:])]
    recorded = lines(Path(__file__).parents[1] / "memory_order" / "measure.py", files)
    served = lines(HERE / "serve.py", [x for p in zip(files, limits, strict=True) for x in p])
    fitting = iter(zip(recorded, served, strict=True))
    for row in rows:
        if row[4].replace(".", "").isdecimal():
            record, serve = next(fitting)
            row[5] = mb(record["peak_bytes"])
            peak = max(serve.get("peaks") or [0])
            row[6] = f"yes ({mb(peak)} in use)" if serve["served"] else "no"
        yield row


def free_step(path: Path) -> dict:
    """What the step takes as it is; ``least`` is the most that one op needs."""
    facts = json.loads(path.with_suffix(".json").read_text())
    outputs = [name if ":" in name else f"^{name}" for name in facts["outputs"]]
    graph = extract(str(path), outputs=outputs).graph
    costs, placement = estimate_costs(graph), dict.fromkeys(graph.ops, DEVICE)
    cluster = parse_cluster("CPU:64GiB", None, None)
    step = StepMemory(graph, costs, placement, (DEVICE,))
    fed = sum(size or 0 for name in graph.feeds for size in costs[name].output_bytes)
    aside = step.resident_bytes(DEVICE) + fed
    metrics = predict(graph, costs, placement, cluster, with_needs=False)
    return {
        "outputs": ",".join(outputs),
        "aside": aside,
        "transient": metrics.peaks[DEVICE].expected_bytes - aside,
        "least": working_sets(step.layout)[DEVICE][1],
    }


def place(
    path: Path, target: Path, outputs: str, budget: int, arguments: argparse.Namespace
) -> tuple[Plan, float]:
    """The plan, and how long it took; ``target`` is the graph that it makes."""
    kept = target.with_suffix(".plan.json")
    asked = [path, "--outputs", outputs, "--devices", "CPU:64GiB", "--fit", arguments.fit]
    asked += ["--max-memory", f"{DEVICE}={budget}", "--time-limit", arguments.time_limit]
    begun = perf_counter()
    command("place", *asked, "--force", "-o", kept)
    seconds = perf_counter() - begun
    plan = Plan.load(kept)
    if plan.fits:
        command("apply", path, kept, "--force", "-o", target)
        shutil.copy(path.with_suffix(".json"), target.with_suffix(".json"))
    return plan, seconds


def command(*words: object) -> None:
    """Runs ``placer``; that nothing fits is in the plan."""
    words = (sys.executable, "-m", "placer", *words)
    result = subprocess.run([*map(str, words)], capture_output=True, text=True)
    if result.returncode not in (0, 5, 6):
        raise SystemExit(result.stderr)


def lines(program: Path, words: list) -> list[dict]:
    """What a program prints."""
    command = [sys.executable, str(program), *map(str, words)]
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return [json.loads(line) for line in result.stdout.splitlines()]


def mb(size: float) -> str:
    return f"{size / 1e6:.1f}"


if __name__ == "__main__":
    main()
