"""Is what ``placer.auto`` chooses among the fastest?  Two logical CPU devices, measured.

    python benchmarks/auto/measured.py --out DIR [CASE...]

needs an idle machine with two cores for about half an hour.  Ops are profiled with one thread, and
a device is fitted to them (``benchmarks/strategies/run.py``).  ``auto`` chooses for two such
devices; every way that can be built is written, and run by turns in sessions with one intra-op
thread a device.  What is kept in DIR is not done again.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "strategies"))
import run as strategies
import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from ways import built_ways

import placer
from placer.plan.request import read_options
from placer.questions.auto_programs import open_program

GOAL = 1.15
ROUNDS = 40
LIMITS = {"time_limit": 4.0}

LEFT, RIGHT = ([strategies.weight(256, 256) for _ in range(5)] for _ in range(2))


def branches(x: Any) -> Any:
    """Two branches that one placement may part."""
    left, right = x, x * 0.5
    for a, b in zip(LEFT, RIGHT, strict=True):
        left, right = tf.nn.relu(left @ a), tf.tanh(right @ b)
    return left + right


BATCHES = {
    "perceptron": (1024, 256, 64, 16), "convolutions": (32, 16, 8, 2), "transformer": (32, 8, 2),
    "lstm": (256, 64, 16), "elementwise": (2048, 512, 64), "branches": (2048, 256, 32),
}  # fmt: skip
strategies.MODELS = {  # all of its commands take these cases
    name: replace(model, batches=BATCHES[name])
    for name, model in {
        **strategies.MODELS,
        "branches": strategies.Model(run=branches, example=(256,), batches=(0, 0)),
    }.items()
}


def plan(out: Path, name: str, batch: int) -> None:
    """What ``auto`` chooses, and every way as a file."""
    model, devices = str(out / f"{name}.pb"), out / "cluster.toml"
    found = placer.auto(model, devices, batch_size=batch, **LIMITS)
    program = open_program(model, devices, read_options({"batch_size": batch, **LIMITS}), None)
    ways = built_ways(program)
    if found.chosen is not None:  # the very plan that was chosen
        placer.apply(model, found.plan, out / f"{name}-{batch}-chosen.pb", force=True)
    for number, built in enumerate(ways.values()):
        placer.apply(model, built.plan, out / f"{name}-{batch}-{number}.pb", force=True)
    known = {
        "chosen": found.chosen,
        "predicted": {way: built.step_seconds for way, built in ways.items()},
    }
    (out / f"{name}-{batch}.planned.json").write_text(json.dumps(known, indent=1))


def measure(out: Path, name: str, batch: int, example: tuple[int, ...]) -> None:
    """The least time of a step of the chosen way and of all others, by turns."""
    planned = json.loads((out / f"{name}-{batch}.planned.json").read_text())
    files = [f"{name}-{batch}-{number}.pb" for number in range(len(planned["predicted"]))]
    files.append(f"{name}-{batch}-chosen.pb")
    x = strategies._RANDOM.uniform(size=(batch, *example)).astype("float32")
    sessions = [
        strategies.session(graph_pb2.GraphDef.FromString((out / file).read_bytes()))
        for file in files
    ]
    calls = [running.make_callable("y:0", ["x:0"]) for running in sessions]
    seconds = strategies.least_seconds([lambda c=call: c(x) for call in calls], ROUNDS)
    measured = dict(zip((*planned["predicted"], "chosen"), seconds, strict=True))
    (out / f"{name}-{batch}.measured.json").write_text(json.dumps(measured, indent=1))
    for running in sessions:
        running.close()


def table(out: Path) -> Iterator[str]:
    """As the README has it: milliseconds, measured and in brackets predicted."""
    yield "| case | chosen | ms | fastest measured | ms | regret |"
    yield "|---|---|---|---|---|---|"
    good = total = 0
    for name, _, batch in strategies.cases():
        file = out / f"{name}-{batch}.measured.json"
        if not file.exists():
            continue
        measured = json.loads(file.read_text())
        planned = json.loads((out / f"{name}-{batch}.planned.json").read_text())
        predicted, mine = planned["predicted"], measured.pop("chosen")
        best = min(measured, key=measured.__getitem__)
        regret = mine / min(mine, measured[best]) - 1
        good, total = good + (regret <= GOAL - 1), total + 1
        yield (
            f"| {name} {batch} | {planned['chosen']} | {1e3 * mine:.2f} | {best} | "
            f"{1e3 * measured[best]:.2f} ({1e3 * predicted[best]:.2f}) | {regret:+.1%} |"
        )
    yield f"\nWithin {GOAL - 1:.0%} of the measured best in {good} of {total}."


def main() -> None:
    """Everything, of the cases whose names contain one of the words."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", metavar="CASE")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    out = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    strategies.build(out)
    words = arguments.words
    asked = {
        f"{name} {batch}": (name, batch, model.example)
        for name, model, batch in strategies.cases()
        if not words or any(word in f"{name} {batch}" for word in words)
    }
    strategies.MODELS = {
        name: replace(model, batches=tuple(b for n, b, _ in asked.values() if n == name))
        for name, model in strategies.MODELS.items()
    }
    if not (out / "cluster.toml").exists():
        strategies.profile(out)
    for name, batch, _ in asked.values():
        if not (out / f"{name}-{batch}.planned.json").exists():
            plan(out, name, batch)
    for name, batch, example in asked.values():
        if not (out / f"{name}-{batch}.measured.json").exists():
            measure(out, name, batch, example)
    print("\n".join(table(out)))


if __name__ == "__main__":
    main()
