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
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "strategies"))
import run as strategies
import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from ways import built_ways

import placer
from placer.errors import PlacerError
from placer.plan.request import read_options
from placer.questions.auto_programs import open_program

GOAL = 1.15
ROUNDS = 40
LIMITS = {"time_limit": 4.0}
CHOSEN = "chosen"

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
    ways = {way: (built.plan, built.step_seconds) for way, built in built_ways(program).items()}
    if found.row is not None:  # the very plan that was chosen
        ways[CHOSEN] = (found.plan, found.row.step_seconds)
    predicted = {}
    for way, (planned, seconds) in ways.items():
        try:
            placer.apply(model, planned, file_of(out, name, batch, way), force=True)
            predicted[way] = seconds
        except PlacerError as error:
            print(f"{name} {batch}, {way}: {error}", file=sys.stderr)
    known = {"chosen": found.chosen, "predicted": predicted}
    (out / f"{name}-{batch}.planned.json").write_text(json.dumps(known, indent=1))


def file_of(out: Path, name: str, batch: int, way: str) -> Path:
    """The GraphDef of a way."""
    return out / f"{name}-{batch}-{re.sub('[:/]', '-', way)}.pb"


def measure(out: Path, name: str, batch: int) -> None:
    """The least time of a step of the chosen way and of all others, by turns."""
    planned = json.loads((out / f"{name}-{batch}.planned.json").read_text())
    x = strategies._RANDOM.uniform(size=(batch, *strategies.MODELS[name].example))
    x, calls = x.astype("float32"), {}
    for way in planned["predicted"]:
        content = file_of(out, name, batch, way).read_bytes()
        try:
            running = strategies.session(graph_pb2.GraphDef.FromString(content))
            call = running.make_callable("y:0", ["x:0"])
            call(x)
        except (tf.errors.OpError, ValueError) as error:
            print(f"{name} {batch}, {way}: {error}", file=sys.stderr)
            continue
        calls[way] = call
    seconds = strategies.least_seconds([lambda c=call: c(x) for call in calls.values()], ROUNDS)
    measured = dict(zip(calls, seconds, strict=True))
    (out / f"{name}-{batch}.measured.json").write_text(json.dumps(measured, indent=1))


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
        predicted, mine = planned["predicted"], measured.pop(CHOSEN, None)
        if mine is None or not measured:
            continue
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
    asked = [
        (name, batch)
        for name, _, batch in strategies.cases()
        if not words or any(word in f"{name} {batch}" for word in words)
    ]
    strategies.MODELS = {
        name: replace(model, batches=tuple(b for n, b in asked if n == name))
        for name, model in strategies.MODELS.items()
    }
    if not (out / "cluster.toml").exists():
        strategies.profile(out)
    for kind, work in (("planned", plan), ("measured", measure)):
        for name, batch in asked:
            if not (out / f"{name}-{batch}.{kind}.json").exists():
                attempt(work, out, name, batch)
    print("\n".join(table(out)))


def attempt(work: Callable[[Path, str, int], None], out: Path, name: str, batch: int) -> None:
    """Whatever a case comes to, the others follow."""
    begin = time.perf_counter()
    try:
        work(out, name, batch)
    except Exception as error:  # the table is of the others then
        print(f"{name} {batch}: {type(error).__name__}: {error}", file=sys.stderr)
    seconds = time.perf_counter() - begin
    print(f"{work.__name__} {name} {batch}: {seconds:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
