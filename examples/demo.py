"""The main job on a real model: report, place, apply, verify; six lines say what it showed.

    python examples/demo.py [--directory demo-output]

Builds a ResNet-50 SavedModel with random weights, finds a placement on two GPUs whose memory is
80% of what one device's allocator would need, applies it, runs it and checks what ran where.
TensorFlow is told to take no red zones when it tunes convolutions (``TF_DISABLE_RZ_CHECK=1``); of a
batch of eight they would be a good part.  On a machine without those GPUs it runs on CPU
devices.  In the end, where GPUs can be simulated, TensorFlow's own GPU runtime has the last word:
the placed model is loaded and run on two GPUs limited to the same memory, and the model as it is
on one.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from placer.errors import UsageError
from placer.simulation.building import build_libraries

BATCH_SIZE = 8
CAP_SHARE = 0.8
"""Of what one device needs."""

STEPS = 10
HIDING = ("CUDA_VISIBLE_DEVICES",)
"""Environment variables with which TensorFlow sees no GPU."""

SERVE = """
import sys
import placer

path, batch_size, steps = sys.argv[1], *map(int, sys.argv[2:4])
limits = [float(limit) for limit in sys.argv[4:]]
placer.simulate_gpus(f"{len(limits)}xT4")
import tensorflow as tf

for gpu, limit in zip(tf.config.list_physical_devices("GPU"), limits):
    limited = tf.config.LogicalDeviceConfiguration(memory_limit=limit)
    tf.config.set_logical_device_configuration(gpu, [limited])
with tf.device("CPU:0"):
    batch = tf.zeros((batch_size, 224, 224, 3))
try:
    serve = placer.load_placed(path, progress=False).signatures["serving_default"]
    for step in range(steps):
        [value.numpy() for value in serve(keras_tensor=batch).values()]
except tf.errors.OpError as error:
    sys.exit(f"{type(error).__name__}: {error}"[:200])
"""
"""A program that loads a SavedModel on simulated GPUs with limits in MiB, and calls it."""


def run_demo(directory: Path) -> list[str]:
    """The six lines that say what was shown; everything is written under ``directory``."""
    directory.mkdir(parents=True, exist_ok=True)
    model, plan, placed = (directory / name for name in ("resnet50", "plan.json", "placed"))
    if not model.exists():
        build_model(model)
    batch = ["--batch-size", str(BATCH_SIZE), "--red-zones", "off"]
    placer("report", model, *batch)
    report = placer_json("report", model, *batch)
    cap = int(CAP_SHARE * step_need(report))
    caps = ["--devices", "2xGPU", "--max-memory", f"GPU:0={cap},GPU:1={cap}"]
    placer("place", model, *batch, *caps, "-o", plan, "--force")
    shutil.rmtree(placed, ignore_errors=True)
    placer("apply", model, plan, "-o", placed)
    placer("verify", placed, plan)
    verification = placer_json("verify", placed, plan)
    lines = summary_lines(report, cap, json.loads(plan.read_text()), verification)
    return [*lines, f"6. {simulated_line(model, placed, cap)}"]


def simulated_line(model: Path, placed: Path, cap: int) -> str:
    """What TensorFlow's GPU runtime says of both models under the cap, on simulated GPUs."""
    try:
        build_libraries()
    except UsageError as error:
        return f"Not run on simulated GPUs: {error}"
    limit = f"{cap / 1024**2:.1f}"
    two = serves(placed, limit, limit)
    one = serves(model, limit)
    return (
        f"On two simulated GPUs limited to {cap / 1024**2:.0f} MiB each, TensorFlow's GPU runtime "
        f"{'loads it and runs' if two else 'does not run'} {STEPS} steps; one of them "
        f"{'holds' if one else 'does not hold'} the unplaced model."
    )


def serves(path: Path, *limits: str) -> bool:
    """Whether a process loads the model under these limits and runs its steps."""
    print(f"\n$ TF_DISABLE_RZ_CHECK=1 python -c SERVE {path} {' '.join(limits)}", flush=True)
    words = [SERVE, str(path), str(BATCH_SIZE), str(STEPS), *limits]
    environment = {key: value for key, value in os.environ.items() if key not in HIDING}
    environment["TF_DISABLE_RZ_CHECK"] = "1"
    quiet = {"stderr": subprocess.PIPE, "text": True}
    done = subprocess.run([sys.executable, "-c", *words], env=environment, check=False, **quiet)
    print("served" if not done.returncode else done.stderr.strip().splitlines()[-1], flush=True)
    return not done.returncode


def step_need(report: dict[str, Any]) -> int:
    """What one device requires for a step, without what a loader restores and no op uses, which
    goes to the host."""
    return report["memory"]["required_bytes"] - unused_bytes(report)


def unused_bytes(report: dict[str, Any]) -> int:
    """Bytes of the second copies that Keras's export writes of every variable."""
    return report["loading"]["restored_bytes"] - report["loading"]["used_bytes"]


def build_model(path: Path) -> None:
    """Writes the SavedModel in a process of its own, as it would be somebody else's file."""
    code = "import sys, keras; keras.applications.ResNet50(weights=None).export(sys.argv[1])"
    print(f"building a ResNet-50 SavedModel with random weights in {path}", flush=True)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, **quiet)


def placer(*arguments: object) -> None:
    """Runs one command as a user would, and shows it."""
    words = [str(argument) for argument in arguments]
    print(f"\n$ placer {' '.join(words)}", flush=True)
    subprocess.run([sys.executable, "-m", "placer", *words], check=True)


def placer_json(*arguments: object) -> dict[str, Any]:
    """What the command says with ``--format json``."""
    words = [str(argument) for argument in arguments]
    command = [sys.executable, "-m", "placer", *words, "--format", "json", "-q"]
    result: dict[str, Any] = json.loads(
        subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    )
    return result


def summary_lines(
    report: dict[str, Any], cap: int, plan: dict[str, Any], verification: dict[str, Any]
) -> list[str]:
    """What was asked, what was found, how good it is, and what really ran."""
    mib = 1024**2
    gpus = [device for device in plan["devices"] if device["type"] == "GPU"]
    needs = ", ".join(f"{d['name']} {d['required_bytes'] / mib:.0f} MiB" for d in gpus)
    solver, metrics = plan["solver"], plan["metrics"]
    bound = solver["lower_bound"]
    summary = verification["summary"]
    stage = "CPU devices" if verification["rehearsed"] else "the GPUs"
    inside = [row for row in verification["transfers"] if row["kind"] != "fetch"]
    seen = sum(row["predicted"] and row["actual"] for row in inside)
    proof = "no bound proven" if bound is None else f"no plan costs less than {bound / mib:.2f} MiB"
    return [
        f"1. One device requires {step_need(report) / mib:.0f} MiB, and "
        f"{unused_bytes(report) / mib:.0f} MiB more for variables that are loaded and not used; "
        f"each GPU here has {cap / mib:.0f} MiB.",
        f"2. The placement fits: it requires {needs}; what is not used is loaded on the host.",
        f"3. It sends {metrics['sent_bytes'] / mib:.2f} MiB per step in {metrics['messages']} "
        f"transfers, and costs {solver['value'] / mib:.2f} MiB, latency counted as bytes: "
        f"{solver['status']}, {proof}.",
        f"4. Run on {stage}, {summary['matched_ops']:,} of {summary['ops']:,} ops were where the "
        f"plan says and {seen} of {len(inside)} transfers (fetches aside) were as predicted.",
        f"5. The outputs differ from the unplaced model's by at most "
        f"{summary['max_absolute_difference']:g}.",
    ]


def main() -> None:
    """Runs the demo and prints its six lines last."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", type=Path, default=Path("demo-output"))
    lines = run_demo(parser.parse_args().directory)
    print("\nWhat this showed")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
