"""Is there a plan wherever everything on the host fits, however small the accelerators are?

    python benchmarks/spilling/commands.py FOLDER [--limit SECONDS] [NAME ...]

Graphs of ``benchmarks/graphs.py``, the larger batch of each, built into ``FOLDER`` if they are not
there, each placed by ``placer place`` on two GPUs whose limits are shares of what one device alone
requires.  Every request is a row of a table; the exit code is 1 if one has no plan.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from graphs import build_apart

NAMES = (
    "small_resnet_adam", "unet_adam", "transformer_adam", "perceptron_adam", "densenet121",
    "inception_v3", "recommender",
)  # fmt: skip
SHARES = (0.8, 0.65, 0.55)
HEADERS = (
    "graph", "cap", "exit", "status", "cost, MiB", "bound", "sent", "on the host", "s",
)  # fmt: skip
_MIB = 1 << 20


def main() -> int:
    """Places every graph under every cap and prints the table; how many have no plan."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--limit", type=float, default=30.0, help="seconds for each request")
    arguments = parser.parse_args()
    print("| " + " | ".join(HEADERS) + " |\n" + "|---" * len(HEADERS) + "|", flush=True)
    missing = 0
    for name in arguments.names:
        built = build_apart(arguments.folder, [name])
        graph = max(built, key=lambda path: int(path.stem.rpartition("-b")[2]))
        for row in place_all(graph, arguments.limit):
            print("| " + " | ".join(row) + " |", flush=True)
            missing += row[2] != "0"
    print(f"\n{missing} requests without a plan")
    return int(missing > 0)


def place_all(graph: Path, limit: float) -> Iterator[tuple[str, ...]]:
    """One row of the table per cap."""
    outputs = json.loads(graph.with_suffix(".json").read_text())["outputs"]
    named = ["--outputs", ",".join(outputs), "--red-zones", "off"]
    report = json.loads(_placer("report", str(graph), *named, "--format", "json").stdout)
    required = report["memory"]["required_bytes"]
    for share in SHARES:
        plan = graph.with_name(f"{graph.stem}-{share}.plan.json")
        caps = f"GPU:*={int(share * required)},CPU:0={4 * required + (1 << 30)}"
        began = time.monotonic()
        done = _placer(
            "place", str(graph), *named, "--devices", "2xGPU", "--max-memory", caps,
            "--time-limit", str(limit), "-o", str(plan), "--force", "-q",
        )  # fmt: skip
        seconds = time.monotonic() - began
        facts = _facts(plan) if done.returncode == 0 else ("", "", "", "", "")
        yield (graph.stem, f"{share:.0%}", str(done.returncode), *facts, f"{seconds:.0f}")


def _facts(path: Path) -> tuple[str, ...]:
    """Status, cost, bound, and in MiB what a step sends and what is offloaded to the host."""
    plan: dict[str, Any] = json.loads(path.read_text())
    solver = plan["solver"]
    sizes = (
        solver["value"],
        solver["lower_bound"],
        plan["metrics"]["sent_bytes"],
        sum(device["spilled_bytes"] for device in plan["devices"]),
    )
    return (
        solver["status"],
        *("none" if size is None else f"{size / _MIB:.2f}" for size in sizes),
    )


def _placer(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "placer", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    sys.exit(main())
