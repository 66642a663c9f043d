"""What lies where once a SavedModel is loaded, by every loader: the plan against TensorFlow.

    python benchmarks/loading/run.py [--folder FOLDER] [--packages FOLDER] [MODEL ...]

Two simulated cards (``placer simulate``); each model is written, placed with its first variable on
GPU:1, applied, and loaded by four loaders in processes of their own.  ``--packages`` names a
folder with tf_keras; without it its models are left out.  ``demo=FOLDER`` as MODEL takes the model,
the plan and the placed model that ``examples/demo.py --directory FOLDER`` has made.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import placer
from placer.plan.loading_facts import LoadingFacts
from placer.plan.plan import Plan
from placer.simulation.cards import read_cards
from placer.simulation.environment import child_environment

HERE = Path(__file__).resolve().parent
LOADERS = ("load_placed", "save_variable_devices", "v1", "tf.saved_model.load")
DEVICES = "2xT4"
ASKED: Mapping[str, Any] = {"batch_size": 8, "time_limit": 5}
MODELS = (
    *("keras_recommender", "keras_trained", "keras_saved_recommender", "keras_saved_classifier"),
    *("tf_keras_recommender", "tf_keras_classifier", "module_users", "module_items"),
    *("session_resource", "session_reference", "hub_resource", "hub_reference"),
)
HEADER = "| model | loader | device | plan | TensorFlow | off |\n|---|---|---|---|---|---|"


def main() -> None:
    """Prints a row for every model, loader and GPU, and the largest difference."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--packages", type=Path)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    arguments = parser.parse_args()
    worst = 0.0
    print(HEADER)
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        for name in arguments.models or MODELS:
            if name.startswith("tf_keras") and arguments.packages is None:
                print(f"| {name} | left out: tf_keras is not here | | | | |")
                continue
            for row in rows(name, folder, arguments.packages):
                print("| " + " | ".join(map(str, row[:-1])) + f" | {row[-1]:.2%} |", flush=True)
                worst = max(worst, row[-1])
    print(f"\nLargest difference: {worst:.2%}")


def rows(name: str, folder: Path, packages: Path | None) -> Iterator[tuple[Any, ...]]:
    """(model, loader, device, planned MB, held MB, share that is off), GPU by GPU."""
    if name.startswith("demo="):
        made = Path(name.partition("=")[2])
        model, plan, placed = made / "resnet50", Plan.load(made / "plan.json"), made / "placed"
        name = "demo"
    else:
        model, placed = folder / name, folder / f"{name}-placed"
        if not model.exists():
            write(name, folder, packages)
        plan = place(model)
        placer.apply(model, plan, placed, force=True)
    facts = plan.loading
    assert facts is not None
    resident = {row.name: row.resident_bytes or 0 for row in plan.devices if row.type == "GPU"}
    untagged = "hub" in name
    for loader in LOADERS:
        held = load(placed, loader, untagged)
        planned = facts.devices[loader]
        for gpu in resident:
            yield compare(name, loader, gpu, planned.get(gpu, 0), held[gpu][0])
            if loader == "load_placed":
                yield compare(name, "resident in the plan", gpu, resident[gpu], held[gpu][0])
    # as it is, before any plan
    as_it_is = report_facts(model)
    for loader in ("v1", "tf.saved_model.load"):
        held = load(model, loader, untagged)
        planned = as_it_is.devices[loader]
        yield compare(name, f"{loader}, not placed", "GPU:0", planned["GPU:0"], held["GPU:0"][0])


def compare(name: str, loader: str, device: str, planned: int, held: int) -> tuple[Any, ...]:
    """One row; what is below 64 KiB on both sides is no difference."""
    small = max(planned, held) < 1 << 16
    off = 0.0 if small else abs(held - planned) / max(held, planned)
    return name, loader, device, f"{planned / 1e6:.2f} MB", f"{held / 1e6:.2f} MB", off


def write(name: str, folder: Path, packages: Path | None) -> None:
    """Writes one model."""
    path = os.pathsep.join(filter(None, [str(packages or ""), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, str(HERE / "models.py"), str(folder), name]
    subprocess.run(command, check=True, env=environment, capture_output=True)


def place(model: Path) -> Plan:
    """A plan that uses both GPUs."""
    first = placer.place(model, DEVICES, offload="never", **ASKED)
    on_gpu = [name for name, device in sorted(first.variables.items()) if device != "CPU:0"]
    pins = {on_gpu[0]: "GPU:1"} if on_gpu else {}
    return placer.place(model, DEVICES, offload="never", pins=pins, **ASKED)


def report_facts(model: Path) -> LoadingFacts:
    """What a report says of loading the model as it is."""
    facts = placer.report(model, DEVICES, **ASKED).loading
    assert facts is not None
    return facts


def load(model: Path, loader: str, untagged: bool) -> dict[str, list[int]]:
    """Bytes that every device holds, and held at most, by TensorFlow's allocators."""
    environment = child_environment(
        read_cards(DEVICES), {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    )
    command = [sys.executable, str(HERE / "holds.py"), str(model), loader]
    done = subprocess.run(
        [*command, *(["--no-tags"] if untagged else [])],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{model} by {loader}: {done.stderr[-2000:]}")
    held: dict[str, list[int]] = json.loads(done.stdout.splitlines()[-1])
    return held


if __name__ == "__main__":
    main()
