"""Is there a plan wherever everything on the host fits, however small the accelerators are?

    python benchmarks/spilling/commands.py FOLDER [--limit SECONDS] [--runs N] [--busy 8] [NAME ...]

Graphs of ``benchmarks/graphs.py``, the larger batch of each, built into ``FOLDER`` if they are not
there, each placed by ``placer place`` on two GPUs whose limits are shares of what one device alone
requires, ``--runs`` times, one round of all requests after the other; with ``--busy`` so many
processes do nothing but turn round meanwhile.  Every request is a row of a table with its best and
its worst run; the exit code is 1 if one has no plan.
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

from busy_loops import busy
from graphs import build_apart

NAMES = (
    "small_resnet_adam", "unet_adam", "transformer_adam", "perceptron_adam", "densenet121",
    "inception_v3", "recommender",
)  # fmt: skip
SHARES = (0.8, 0.65, 0.55)
HEADERS = (
    "graph", "limits", "status", "cost, MiB", "worst / best", "bound, MiB", "sent, MiB",
    "weights on the host, MiB", "s",
)  # fmt: skip
_MIB = 1 << 20
Run = dict[str, Any]


def main() -> int:
    """Places every graph under every cap and prints the table; how many have no plan."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--limit", type=float, default=30.0, help="seconds for each request")
    parser.add_argument("--runs", type=int, default=1, help="of every request")
    parser.add_argument("--busy", type=int, default=0, help="loops beside")
    arguments = parser.parse_args()
    requests = [
        request for name in arguments.names for request in requests_of(arguments.folder, name)
    ]
    runs: dict[tuple[str, float], list[Run]] = {}
    with busy(arguments.busy):
        for _ in range(arguments.runs):
            for graph, share, required in requests:
                run = place(graph, share, required, arguments.limit)
                runs.setdefault((graph.stem, share), []).append(run)
                print(
                    json.dumps({"graph": graph.stem, "share": share, **run}),
                    file=sys.stderr,
                    flush=True,
                )
    print("| " + " | ".join(HEADERS) + " |\n" + "|---" * len(HEADERS) + "|", flush=True)
    for (name, share), each in runs.items():
        print("| " + " | ".join((name, f"{share:.0%}", *_row(each))) + " |", flush=True)
    every = [run for each in runs.values() for run in each]
    alike = sum(_worst(each) <= 1.1 * _best(each) + (64 << 10) for each in runs.values())
    if arguments.runs > 1:
        print(f"\n{alike} of {len(runs)} requests: worst at most 1.1 times the best plus 64 KiB")
    print(f"the longest search took {max(run['seconds'] for run in every):.1f} s")
    missing = sum(run["value"] is None for run in every)
    print(f"{missing} of {len(every)} runs without a plan")
    return int(missing > 0)


def requests_of(folder: Path, name: str) -> Iterator[tuple[Path, float, int]]:
    """Yields the file of a graph with each share and what one device alone requires."""
    built = build_apart(folder, [name])
    graph = max(built, key=lambda path: int(path.stem.rpartition("-b")[2]))
    report = json.loads(run_placer("report", str(graph), *_named(graph), "--format", "json").stdout)
    for share in SHARES:
        yield graph, share, report["memory"]["required_bytes"]


def place(graph: Path, share: float, required: int, limit: float) -> Run:
    """One run: status, cost and bound, seconds of the search and of the command, and in bytes what
    a step sends and what is offloaded to the host."""
    plan = graph.with_name(f"{graph.stem}-{share}.plan.json")
    caps = f"GPU:*={int(share * required)},CPU:0={4 * required + (1 << 30)}"
    began = time.monotonic()
    done = run_placer(
        "place", str(graph), *_named(graph), "--devices", "2xGPU", "--max-memory", caps,
        "--time-limit", str(limit), "-o", str(plan), "--force", "-q",
    )  # fmt: skip
    seconds = time.monotonic() - began
    if done.returncode != 0:
        return {"status": f"exit {done.returncode}", "value": None, "seconds": seconds}
    found = json.loads(plan.read_text())
    solver = found["solver"]
    return {
        "status": solver["status"],
        "value": solver["value"],
        "bound": solver["lower_bound"],
        "sent": found["metrics"]["sent_bytes"],
        "host": sum(device["spilled_bytes"] for device in found["devices"]),
        "seconds": solver["seconds"],
        "command": seconds,
    }


def _named(graph: Path) -> tuple[str, ...]:
    outputs = json.loads(graph.with_suffix(".json").read_text())["outputs"]
    return ("--outputs", ",".join(outputs), "--red-zones", "off")


def _best(runs: list[Run]) -> float:
    return min(_cost(run) for run in runs)


def _worst(runs: list[Run]) -> float:
    return max(_cost(run) for run in runs)


def _cost(run: Run) -> float:
    return float("inf") if run["value"] is None else run["value"]


def _row(runs: list[Run]) -> tuple[str, ...]:
    """The best run, its cost with that of the worst."""
    best = min(runs, key=_cost)
    if best["value"] is None:
        return (best["status"], *[""] * (len(HEADERS) - 4), f"{best['seconds']:.0f}")
    cost = mib(best["value"])
    ratio = _worst(runs) / max(1.0, _best(runs))
    return (
        best["status"],
        cost if len(runs) == 1 else f"{cost} to {mib(_worst(runs))}",
        f"{ratio:.2f}",
        *map(mib, (best["bound"], best["sent"], best["host"])),
        f"{max(run['seconds'] for run in runs):.0f}",
    )


def mib(size: float | None) -> str:
    """Bytes in MiB."""
    return "none" if size is None else f"{size / _MIB:.2f}"


def run_placer(*arguments: object) -> subprocess.CompletedProcess[str]:
    """One command, with what it prints."""
    command = [sys.executable, "-m", "placer", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    sys.exit(main())
