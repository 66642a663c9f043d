"""Is the strategy that is predicted to be faster the faster one?  Two logical CPU devices.

    python benchmarks/strategies/run.py build    --out DIR
    python benchmarks/strategies/run.py profile  --out DIR   # quiet machine: about two minutes
    python benchmarks/strategies/run.py plan     --out DIR
    python benchmarks/strategies/run.py measure  --out DIR   # quiet machine: about two minutes
    python benchmarks/strategies/run.py evaluate --out DIR

``build`` writes five models as GraphDefs.  ``profile`` measures their ops, undivided, with one
thread, and how long a message between the devices takes; a device is fitted to both.  ``plan``
places every strategy on two such devices (``placer place --strategy``), and writes the programs.
``measure`` runs what was written in a session, by turns.  ``evaluate`` prints the table.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

import placer
from cost_models.cluster_files import cluster_toml
from cost_models.devices import Cluster, Link
from placer.plan.measured_costs import MeasuredCosts
from placer.questions.calibration import calibrate

STRATEGIES = ("one-placement", "replicas:2", "micro-batches:2", "micro-batches:8", "pipeline:8")
CLEARLY = 1.1
"""Two strategies whose measured steps differ by less than this factor have no order."""

ROUNDS = 40
_RANDOM = np.random.default_rng(1)


@dataclass(frozen=True, kw_only=True)
class Model:
    """A function of a batch, the shape of one example, and two batch sizes."""

    run: Callable[[Any], Any]
    example: tuple[int, ...]
    batches: tuple[int, int]


def weight(*shape: int) -> Any:
    """A constant of a size that keeps activations in bounds."""
    return _RANDOM.normal(scale=np.prod(shape[:-1]) ** -0.5, size=shape).astype(np.float32)


DENSE = [weight(512, 512) for _ in range(6)]
KERNELS = [weight(3, 3, 16, 16) for _ in range(5)]
ATTENTION = [[weight(128, 128) for _ in range(6)] for _ in range(2)]
GATES, RECURRENT = weight(64, 512), weight(128, 512)


def perceptron(x: Any) -> Any:
    """Dense layers."""
    for each in DENSE:
        x = tf.nn.relu(x @ each)
    return x


def convolutions(x: Any) -> Any:
    """Convolutions and a mean over each image."""
    for each in KERNELS:
        x = tf.nn.relu(tf.nn.conv2d(x, each, 1, "SAME"))
    return tf.reduce_mean(x, axis=[1, 2])


def transformer(x: Any) -> Any:
    """Attention and dense layers."""
    for q, k, v, o, a, b in ATTENTION:
        query, key, value = (tf.einsum("btd,de->bte", x, each) for each in (q, k, v))
        scores = tf.nn.softmax(tf.matmul(query, key, transpose_b=True))
        x += tf.einsum("bte,ed->btd", tf.matmul(scores, value), o)
        x += tf.einsum("btd,de->bte", tf.nn.relu(tf.einsum("btd,de->bte", x, a)), b)
    return x


def lstm(x: Any) -> Any:
    """An unrolled recurrence."""
    output = cell = tf.zeros((tf.shape(x)[0], 128))
    for step in range(12):
        kept, new, change, shown = tf.split(x[:, step] @ GATES + output @ RECURRENT, 4, axis=1)
        cell = tf.sigmoid(kept) * cell + tf.sigmoid(new) * tf.tanh(change)
        output = tf.sigmoid(shown) * tf.tanh(cell)
    return output


def elementwise(x: Any) -> Any:
    """Nothing but reads and writes."""
    for _ in range(10):
        x = tf.tanh(x * 1.01 + 0.1)
    return x


MODELS = {
    "perceptron": Model(run=perceptron, example=(512,), batches=(1024, 64)),
    "convolutions": Model(run=convolutions, example=(32, 32, 16), batches=(32, 8)),
    "transformer": Model(run=transformer, example=(64, 128), batches=(32, 8)),
    "lstm": Model(run=lstm, example=(12, 64), batches=(256, 16)),
    "elementwise": Model(run=elementwise, example=(1024,), batches=(2048, 64)),
}


def cases() -> Iterator[tuple[str, Model, int]]:
    """(name, model, batch size) of all ten."""
    for name, model in MODELS.items():
        for batch in model.batches:
            yield name, model, batch


def build(out: Path) -> None:
    """The models as frozen GraphDefs of unknown batch size."""
    for name, model in MODELS.items():
        with tf.Graph().as_default() as graph:
            x = tf.compat.v1.placeholder(tf.float32, (None, *model.example), name="x")
            tf.identity(model.run(x), name="y")
        (out / f"{name}.pb").write_bytes(graph.as_graph_def().SerializeToString())


def profile(out: Path) -> None:
    """A costs file of every case, and the cluster fitted to them."""
    for name, _, batch in cases():
        file = out / f"{name}-{batch}.costs.json"
        if not file.exists():
            placer.profile(out / f"{name}.pb", batch_size=batch, threads=1, steps=15).save(file)
    files = sorted(out.glob("*.costs.json"))
    found = calibrate([MeasuredCosts.load(file) for file in files])
    latency = message_seconds()
    devices = tuple(replace(found.device, name=name) for name in ("CPU:0", "CPU:1"))
    cluster = Cluster(devices=devices, default_link=Link(bandwidth=1e12, latency=latency))
    (out / "cluster.toml").write_text(cluster_toml(cluster))
    print(f"step error {found.step_error:.1%} of {len(files)} files; {latency:.3g} s a message")


def session(graph_def: Any) -> Any:
    """A session with two logical devices, one thread for each, and no graph optimisation."""
    v1 = tf.compat.v1
    config = v1.ConfigProto(
        device_count={"CPU": 2}, intra_op_parallelism_threads=1, inter_op_parallelism_threads=2
    )
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    graph = tf.Graph()
    with graph.as_default():
        tf.graph_util.import_graph_def(graph_def, name="")
    return v1.Session(graph=graph, config=config)


def message_seconds() -> float:
    """What a message from one device to the other takes, of a chain that goes to and fro."""
    seconds = []
    for devices in (("CPU:0", "CPU:0"), ("CPU:0", "CPU:1")):
        with tf.Graph().as_default() as graph:
            x = tf.compat.v1.placeholder(tf.float32, (64,), name="x")
            y = x
            for number in range(400):
                with tf.device(f"/{devices[number % 2]}"):
                    y = tf.negative(y)
            tf.identity(y, name="y")
        with session(graph.as_graph_def()) as running:
            call = running.make_callable("y:0", ["x:0"])
            seconds.append(least_seconds([lambda c=call: c(np.zeros(64, np.float32))], 20)[0])
    return max(1e-6, (seconds[1] - seconds[0]) / 400)


def least_seconds(calls: list[Callable[[], Any]], rounds: int) -> list[float]:
    """The least time of each call, all of them by turns, after two that do not count.

    On a machine with other work a median would tell how much of that there was.
    """
    found: list[list[float]] = [[] for _ in calls]
    for number in range(rounds + 2):
        for call, times in zip(calls, found, strict=True):
            begin = time.perf_counter()
            call()
            if number >= 2:
                times.append(time.perf_counter() - begin)
    return [min(times) for times in found]


def plan(out: Path) -> None:
    """Predictions of all strategies, and the placed programs."""
    for name, _, batch in cases():
        file = out / f"{name}-{batch}.predicted.json"
        if file.exists():
            continue
        model, devices = out / f"{name}.pb", out / "cluster.toml"
        known = {"batch_size": batch, "time_limit": 8.0}
        predicted = {}
        for strategy in STRATEGIES:
            asked = (
                {"objective": "step-time"}
                if strategy == "one-placement"
                else {"strategy": strategy}
            )
            found = placer.place(model, devices, **known, **asked)
            placed = out / f"{name}-{batch}-{strategy.replace(':', '-')}.pb"
            placer.apply(model, found, placed, force=True)
            predicted[strategy] = found.metrics.step_seconds
        file.write_text(json.dumps(predicted, indent=1))


def measure(out: Path) -> None:
    """Steps of all strategies of a case, by turns."""
    for name, model, batch in cases():
        if not (out / f"{name}-{batch}.predicted.json").exists():
            continue
        x = _RANDOM.uniform(size=(batch, *model.example)).astype(np.float32)
        sessions, outputs = [], []
        for strategy in STRATEGIES:
            content = (out / f"{name}-{batch}-{strategy.replace(':', '-')}.pb").read_bytes()
            sessions.append(session(graph_pb2.GraphDef.FromString(content)))
            outputs.append(sessions[-1].run("y:0", {"x:0": x}))
        for found in outputs[1:]:
            np.testing.assert_allclose(found, outputs[0], rtol=1e-3, atol=1e-5)
        calls = [running.make_callable("y:0", ["x:0"]) for running in sessions]
        seconds = least_seconds([lambda c=call, x=x: c(x) for call in calls], ROUNDS)
        measured = dict(zip(STRATEGIES, seconds, strict=True))
        (out / f"{name}-{batch}.measured.json").write_text(json.dumps(measured, indent=1))
        for running in sessions:
            running.close()


def evaluate(out: Path) -> None:
    """A table: steps measured and predicted, and whether their orders agree."""
    print(f"| case | {' | '.join(STRATEGIES)} | order | fastest |")
    print(f"|---|{'---|' * len(STRATEGIES)}---|---|")
    agreeing, fastest, pairs_right, pairs_all, total = 0, 0, 0, 0, 0
    for name, _, batch in cases():
        if not (out / f"{name}-{batch}.measured.json").exists():
            continue
        measured = json.loads((out / f"{name}-{batch}.measured.json").read_text())
        predicted = json.loads((out / f"{name}-{batch}.predicted.json").read_text())
        pairs = [
            (a, b)
            for a, b in itertools.permutations(STRATEGIES, 2)
            if measured[b] > CLEARLY * measured[a]
        ]
        right = sum(predicted[a] < predicted[b] for a, b in pairs)
        best = min(predicted, key=predicted.__getitem__)
        is_best = measured[best] <= CLEARLY * min(measured.values())
        agreeing += right == len(pairs)
        fastest += is_best
        pairs_right, pairs_all, total = pairs_right + right, pairs_all + len(pairs), total + 1
        cells = [f"{1e3 * measured[s]:.2f} ({1e3 * predicted[s]:.2f})" for s in STRATEGIES]
        order = "yes" if right == len(pairs) else f"{right} of {len(pairs)} pairs"
        print(f"| {name} {batch} | {' | '.join(cells)} | {order} | {'yes' if is_best else 'no'} |")
    print(
        f"\nThe orders agree in {agreeing} of {total} cases ({pairs_right} of {pairs_all} pairs "
        f"that differ by more than {CLEARLY - 1:.0%});\n"
        f"what is predicted to be fastest is the fastest in {fastest}."
    )


COMMANDS = {
    "build": build,
    "profile": profile,
    "plan": plan,
    "measure": measure,
    "evaluate": evaluate,
}


def main() -> None:
    """Runs one command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    COMMANDS[arguments.command](arguments.out)


if __name__ == "__main__":
    main()
