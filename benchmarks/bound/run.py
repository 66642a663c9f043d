"""Keras fit under bind on two simulated T4s: does each hold what its plan says?  See README.md."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from placer.simulation.cards import read_cards
from placer.simulation.environment import child_environment

FOLDER = Path(__file__).parent
NAMES = ("perceptron", "transformer", "recommender", "recurrent", "mobilenet")
PHASES = ("built", "traced", "bound", "step_1", "step_10", "after")


def measured(name: str) -> dict:
    """What fit.py says of one model."""
    with tempfile.TemporaryDirectory(prefix="placer-bound-") as records:
        own = {n: v for n, v in os.environ.items() if n != "CUDA_VISIBLE_DEVICES"}
        own |= {"TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}
        done = subprocess.run(
            [sys.executable, str(FOLDER / "fit.py"), name],
            env=child_environment(read_cards("2xT4"), own, Path(records)),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return json.loads(done.stdout.splitlines()[-1])


def off(found: int, planned: int) -> str:
    """The difference in per cent of the plan."""
    return f"{100 * (found - planned) / planned:+.2f}%" if planned else f"{found:+,} B"


def line(found: dict) -> str:
    """The row of a model: MB and differences of both GPUs."""
    planned = found["planned"]
    cells = [found["name"], " + ".join(f"{size / 1e6:.2f}" for size in planned)]
    for phase in PHASES:
        cells.append(" + ".join(f"{in_use / 1e6:.2f}" for _, in_use in found[phase]))
    pairs = zip(found["bound"], planned, strict=True)
    cells.append(", ".join(off(asked, size) for (asked, _), size in pairs))
    for phase in ("bound", "step_1", "step_10"):
        pairs = zip(found[phase], planned, strict=True)
        cells.append(", ".join(off(in_use, size) for (_, in_use), size in pairs))
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Prints a row for each model that is named, by default all."""
    heads = ["model", "plan", *PHASES]
    heads += ["requested, bound", "in use, bound", "in use, step 1", "in use, step 10"]
    print(f"| {' | '.join(heads)} |")
    print(f"|{'---|' * len(heads)}")
    for name in sys.argv[1:] or NAMES:
        print(line(measured(name)), flush=True)


main()
