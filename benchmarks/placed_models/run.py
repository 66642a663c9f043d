"""Models nobody here wrote, along the whole way: report, place, apply, verify.

    python benchmarks/placed_models/run.py --graphs DIR [--only NAME] [--json FILE]

Each model is placed on two and on three GPUs whose caps are 60% of the peak that one device would
have (75% where one colocation group, or one op with its inputs and outputs, is larger), applied,
and run in a rehearsal on logical CPU devices beside the unplaced program.  One row per case is
printed as a Markdown table.  On two GPUs the files run once more with graph optimisation on.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MIB = 1024**2
SHARES = (0.60, 0.75)

_DNN = "dnn/input_from_feature_columns/input_layer/content_embedding_1/content_embedding_weights"
_LINEAR = "linear/linear_model/linear/linear_model/linear/linear_model/content/weighted_sum"
GUESSLANG_SHAPES = [
    *("--shape", "map/TensorArrayV2Stack/TensorListStack:4x1000"),
    *("--shape", f"{_DNN}/embedding_lookup_sparse:4x70"),
    *("--shape", f"{_LINEAR}/embedding_lookup_sparse:4x54"),
]
"""Texts of at most 1,000 characters; one row per text after each lookup."""

BILSTM = "zoo-sm_bilstm_while_v2_train_k3/saved_model"

SAVED = {
    "basic-pitch": ("basic-pitch", ["--batch-size", "1"]),
    "guesslang": ("guesslang", ["--batch-size", "4", *GUESSLANG_SHAPES]),
    "tfnet-lstm-savedmodel": ("tfnet-lstm-savedmodel", ["--batch-size", "8"]),
    "openpose-mobilenet": (
        "openpose-mobilenet/mobilenet_v2_small/graph_opt.pb",
        ["--shape", "image:1x224x224x3"],
    ),
    "bilstm": (BILSTM, ["--shape", "x:8x32"]),
    "bilstm training step": (
        BILSTM,
        ["--signature", "train", "--batch-size", "8", "--shape", "x:8x32"],
    ),
}
APPLICATIONS = {"MobileNetV2": 4, "ResNet50": 2}

EXPORT = """
import sys, keras
getattr(keras.applications, sys.argv[1])(weights=None).export(sys.argv[2])
"""

LIVE = """
import json, os, sys
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # as where a rehearsal has a process of its own
import placer
name, batch, devices, cap, limit = sys.argv[1:]
placer.cpu_devices(int(devices) + 1)
import keras
model = getattr(keras.applications, name)(weights=None)
caps = {index: int(cap) for index in range(int(devices))}
plan = placer.place(model, devices=f"{devices}xGPU", max_memory=caps, batch_size=int(batch),
                    time_limit=float(limit))
verification = placer.verify(placer.apply(model, plan), plan)
print(json.dumps({"plan": json.loads(plan.to_json()), "verification": verification.to_json()}))
"""


def run_json(*command: str) -> dict[str, Any]:
    """What a command prints as JSON; its last line of complaint if it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 8):
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr else done.stdout)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def placer(*arguments: str) -> dict[str, Any]:
    return run_json(sys.executable, "-m", "placer", *arguments, "--format", "json", "-q")


def cap_of(report: dict[str, Any]) -> tuple[int, float]:
    """The cap in bytes and its share of the single-device peak."""
    peak = report["memory"]["peak_bytes"]
    group = report["largest_group"]["needed_bytes"] if report["largest_group"] else 0
    largest = max(group, report["memory"]["widest_op_bytes"])
    share = SHARES[0] if largest <= SHARES[0] * peak else SHARES[1]
    return int(share * peak), share


def saved_case(
    model: str, options: list[str], gpus: int, limit: str, scratch: Path
) -> tuple[float, dict[str, Any], dict[str, Any]]:
    cap, share = cap_of(placer("report", model, *options))
    caps = ",".join(f"GPU:{index}={cap}" for index in range(gpus))
    plan, out = str(scratch / "plan.json"), str(scratch / f"placed{Path(model).suffix}")
    place = ["place", model, *options, "--devices", f"{gpus}xGPU", "--max-memory", caps]
    placed = placer(*place, "--time-limit", limit, "-o", plan, "--force")
    apply = [sys.executable, "-m", "placer", "apply", model, plan, "-o", out, "--force", "-q"]
    subprocess.run(apply, check=True, capture_output=True)
    verification = placer("verify", out, plan)
    if gpus == 2:
        verification["optimised"] = placer("verify", out, plan, "--optimised")
    return share, placed, verification


def live_case(name: str, batch: int, gpus: int, limit: str, scratch: Path) -> Any:
    saved = str(scratch / name)
    subprocess.run([sys.executable, "-c", EXPORT, name, saved], check=True, capture_output=True)
    cap, share = cap_of(placer("report", saved, "--batch-size", str(batch)))
    result = run_json(sys.executable, "-c", LIVE, name, str(batch), str(gpus), str(cap), limit)
    return share, result["plan"], result["verification"]


def cases(graphs: Path, limit: str, scratch: Path) -> Iterator[tuple[str, int, Any]]:
    for gpus in (2, 3):
        for name, (path, options) in SAVED.items():
            model = str(graphs / path)
            yield name, gpus, lambda m=model, o=options, g=gpus: saved_case(m, o, g, limit, scratch)
        for name, batch in APPLICATIONS.items():

            def exported(name: str = name, batch: int = batch, gpus: int = gpus) -> Any:
                model = str(scratch / f"{name}-exported")
                command = [sys.executable, "-c", EXPORT, name, model]
                subprocess.run(command, check=True, capture_output=True)
                options = ["--batch-size", str(batch)]
                return saved_case(model, options, gpus, limit, scratch)

            yield f"{name} exported", gpus, exported
            yield (
                f"{name} live",
                gpus,
                lambda n=name, b=batch, g=gpus: live_case(n, b, g, limit, scratch),
            )


def optimised_cell(verification: dict[str, Any]) -> str:
    """With graph optimisation on: rows that differ from the plan, and those without a reason."""
    found = verification["optimised"]
    if not isinstance(found, dict):
        return ""
    rows = [row for row in (*found["ops"], *found["transfers"]) if row["code"]]
    return f"{len(rows)}, {found['summary']['mismatches']}"


def row(name: str, gpus: int, result: Any, seconds: float) -> str:
    share, plan, verification = result
    summary, solver = verification["summary"], plan["solver"]
    bound = solver["lower_bound"]
    peaks = [
        device["peak_memory_bytes"] / device["usable_bytes"]
        for device in plan["devices"]
        if device["type"] == "GPU"
    ]
    cells = [
        name,
        gpus,
        f"{share:.0%}",
        f"{max(peaks):.0%}",
        solver["status"],
        f"{(solver['value'] or 0) / MIB:.2f}",
        "none" if bound is None else f"{bound / MIB:.2f}",
        f"{summary['ops'] - summary['matched_ops']} of {summary['ops']}",
        f"{summary['matched_transfers']} of {summary['transfers']}",
        summary["actual_transfers"],
        f"{summary['max_absolute_difference']:g}",
        summary["mismatches"],
        optimised_cell(verification),
        f"{seconds:.0f}",
    ]
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


HEADER = (
    "| model | GPUs | cap | highest peak of cap | status | MiB sent | bound | ops off device | "
    "transfers seen of predicted | sent | output difference | unexplained | "
    "optimised: differ, unexplained | s |"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", type=Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--time-limit", default="20")
    parser.add_argument("--json", type=Path, help="write every verification here")
    arguments = parser.parse_args()
    print(HEADER + "\n" + "|---" * HEADER.count(" | ") + "|---|", flush=True)
    details = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, gpus, run in cases(arguments.graphs, arguments.time_limit, Path(folder)):
            if arguments.only not in name:
                continue
            start = time.perf_counter()
            try:
                result = run()
                print(row(name, gpus, result, time.perf_counter() - start), flush=True)
                details[f"{name} on {gpus}"] = result[2]
            except (RuntimeError, subprocess.CalledProcessError) as error:
                print(f"| {name} | {gpus} | failed: {error} |", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(details, indent=1, sort_keys=True))


if __name__ == "__main__":
    main()
