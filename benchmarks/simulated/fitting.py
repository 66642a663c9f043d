"""Training steps at 60% of the peak that a simulated GPU shows: as they are, and made to fit.

    python benchmarks/simulated/fitting.py [NAME ...]

Each step is placed on one card and run ten times (``placer verify --memory``): without a cap, with
a cap of 60% of the peak that was seen, and as ``fit="auto"`` makes it for that cap.  Peaks differ
from run to run: the cap is of the lowest of three runs, and a step is served if it is in all of
three.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from programs import FIT, chosen
from steps import source_of

NAMES = (
    "benchmarks.graphs.perceptron",
    "benchmarks.graphs.transformer",
    "benchmarks.graphs.vision_transformer",
    "benchmarks.graphs.unet",
    "benchmarks.networks.dcgan",
)
"""Two with convolutions."""

SHARE = 0.6
SECONDS = 60.0
STEPS, RUNS = 10, 3
MEBIBYTE = 1 << 20


def main() -> None:
    for program in chosen(sys.argv[1:] or [*NAMES]):
        if program.runs != FIT:
            raise SystemExit(f"{program.name} does not train")
        print(row(program), flush=True)


def row(program: Any) -> str:
    """Peaks, caps and the steps that were served, of ten; the fewest of the runs."""
    import placer

    source, _, batch = source_of(program, Path())
    options = {"batch_size": batch, "seed": 0, "offload": "never"}
    card = f"1x{program.card}"
    free = placer.place(source, card, time_limit=20, **options)
    uncapped = [served(source, free, 0) for _ in range(RUNS)]
    steps, peak = (min(each) for each in zip(*uncapped, strict=True))
    cap = int(SHARE * peak)
    original, _ = served_in_all(source, free, cap)
    start = time.monotonic()
    fitted = placer.place(
        source, card, max_memory={"GPU:0": cap}, fit="auto", time_limit=SECONDS, **options
    )
    seconds = time.monotonic() - start
    made, most = served_in_all(source, fitted, cap) if fitted.placement else (0, 0)
    need = (fitted.devices[0].need_bytes or 0) / MEBIBYTE
    return (
        f"| {program.name} | {peak / MEBIBYTE:.0f} ({steps}) | {cap / MEBIBYTE:.0f} | {original} | "
        f"{fitted.solver.status} {need:.0f} | {made} ({most / MEBIBYTE:.0f}) | {seconds:.0f} s |"
    )


def served_in_all(source: Any, plan: Any, cap: int) -> tuple[int, int]:
    """The fewest steps that GPU:0 serves in any of the runs, the last of which is the first that
    fails, and the most that is in use."""
    fewest, most = STEPS, 0
    for _ in range(RUNS):
        steps, peak = served(source, plan, cap)
        fewest, most = min(fewest, steps), max(most, peak)
        if fewest < STEPS:
            break
    return fewest, most


def served(source: Any, plan: Any, cap: int) -> tuple[int, int]:
    """The steps that GPU:0 serves under a cap (0: the plan's own), and the most that is in use."""
    import placer

    rows = [
        replace(device, memory_limit_bytes=cap) if cap and device.name == "GPU:0" else device
        for device in plan.devices
    ]
    found = placer.verify(source, replace(plan, devices=tuple(rows)), memory=True).memory
    assert found is not None
    peak = next(device.peak_bytes for device in found.devices if device.device == "GPU:0")
    return found.steps, peak


if __name__ == "__main__":
    main()
