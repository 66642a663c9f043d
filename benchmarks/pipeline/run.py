"""How much faster than one placement is a pipeline?  Two logical CPU devices, a thread for each.

    python benchmarks/pipeline/run.py --out DIR      # an idle machine of two cores: two minutes

A stack of equal dense layers, for inference and as a training step, runs whole on one device and as
a pipeline of eight pieces on two.  A device is fitted to profiles of the ops with one thread; both
ways are predicted with it, and measured by turns.  TensorFlow's profiler shows for what part of
one more step both devices computed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

import placer
from cost_models.cluster_files import cluster_toml
from cost_models.devices import Cluster, Link
from placer.plan.plan import Plan
from placer.questions.calibration import calibrate

LAYERS, WIDTH, BATCH, PIECES = 8, 1024, 1024, 8
IN_FLIGHT = 3
DEVICES = ("CPU:0", "CPU:1")
LINK = Link(bandwidth=1e12, latency=20e-6)
"""A tensor is handed over, not copied; another thread has to wake up for it."""

ROUNDS = 15
SEARCH_SECONDS = 10.0
STAGES = {f"*layer_{layer}/*": DEVICES[2 * layer // LAYERS] for layer in range(LAYERS)}
"""Half of the layers each, with their gradients, for the training step."""


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to run a program: the placed function and what was predicted of it."""

    run: Callable[[], Any]
    plan: Plan

    @property
    def predicted(self) -> float:
        """Seconds of a step."""
        return float(self.plan.metrics.step_seconds or 0.0)


def main() -> None:
    """Fits a device, places both programs both ways, measures them and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    two_devices()
    random = np.random.default_rng(1)
    shape, scale = (LAYERS, WIDTH, WIDTH), WIDTH**-0.5
    kernels = random.normal(scale=scale, size=shape).astype(np.float32)
    weights = [tf.Variable(kernel) for kernel in kernels]
    x = tf.constant(random.uniform(size=(BATCH, WIDTH)), tf.float32)
    cluster = fit_devices(out, kernels)
    print("| program | one placement, ms | pipeline, ms | faster by | both devices busy |")
    print("|---|---|---|---|---|")
    for name, whole, pipeline in (
        ("inference", *inference(cluster, weights, x)),
        ("training step", *training(cluster, weights, x)),
    ):
        one, two = measure([whole.run, pipeline.run])
        print(
            f"| {name} | {told(one, whole)} | {told(two, pipeline)} "
            f"| {one / two:.2f} ({whole.predicted / pipeline.predicted:.2f}) "
            f"| {both_busy(pipeline):.0%} |"
        )
    print("\nIn brackets: predicted, and how far that is off.")


def told(seconds: float, way: Way) -> str:
    """What was measured, and in brackets what was predicted."""
    return f"{1e3 * seconds:.1f} ({1e3 * way.predicted:.1f}, {way.predicted / seconds - 1:+.0%})"


def two_devices() -> None:
    """Two logical devices that run one op each; nothing rewrites the graph."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(len(DEVICES))
    host = tf.config.list_physical_devices("CPU")[0]
    logical = [tf.config.LogicalDeviceConfiguration() for _ in DEVICES]
    tf.config.set_logical_device_configuration(host, logical)
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})


def forward(x: Any, weights: Sequence[Any]) -> Any:
    """Equal layers."""
    for number, weight in enumerate(weights):
        with tf.name_scope(f"layer_{number}"):
            x = tf.nn.relu(x @ weight)
    return x


def loss_of(x: Any, weights: Sequence[Any]) -> Any:
    """A scalar."""
    return tf.reduce_mean(tf.square(forward(x, weights)))


def fit_devices(out: Path, kernels: Any) -> Path:
    """A cluster.toml of two devices, fitted to the ops of both programs with one thread each."""
    files = []
    for name in ("forward", "backward"):
        with tf.Graph().as_default() as graph:
            constants = [tf.constant(kernel) for kernel in kernels]
            x = tf.compat.v1.placeholder(tf.float32, (None, WIDTH), name="x")
            if name == "forward":
                found = [forward(x, constants)]
            else:
                found = tf.compat.v1.gradients(loss_of(x, constants), [x, *constants])
            for number, tensor in enumerate(found):
                tf.identity(tensor, name=f"y{number}")
        path = out / f"{name}.pb"
        path.write_bytes(graph.as_graph_def().SerializeToString())
        files += [
            placer.profile(path, batch_size=size, threads=1, steps=8)
            for size in (BATCH // PIECES, BATCH)
        ]
    fitted = calibrate(files)
    devices = tuple(replace(fitted.device, name=name) for name in DEVICES)
    path = out / "cluster.toml"
    path.write_text(cluster_toml(Cluster(devices=devices, default_link=LINK)))
    return path


def inference(cluster: Path, weights: Sequence[Any], x: Any) -> tuple[Way, Way]:
    """The stack as one, and as ``--strategy pipeline``."""
    program = tf.function(lambda x: forward(x, weights)).get_concrete_function(
        tf.TensorSpec((None, WIDTH))
    )
    request = {"batch_size": BATCH, "time_limit": SEARCH_SECONDS}
    whole = placer.place(program, cluster, objective="step-time", **request)
    parts = placer.place(program, cluster, strategy=f"pipeline:{PIECES}", **request)
    return placed(program, whole, x), placed(program, parts, x)


def training(cluster: Path, weights: Sequence[Any], x: Any) -> tuple[Way, Way]:
    """A step of plain SGD as one, and in pieces."""
    steps = []
    for pieces in (1, PIECES):
        step = placer.micro_batches(
            lambda x: loss_of(x, weights),
            pieces,
            in_flight=IN_FLIGHT,
            optimizer=Descent(),
            variables=weights,
        )
        program = step.get_concrete_function(x)
        request = {"pins": STAGES} if pieces > 1 else {"objective": "step-time"}
        plan = placer.place(program, cluster, time_limit=SEARCH_SECONDS, **request)
        steps.append(placed(program, plan, x))
    return steps[0], steps[1]


class Descent:
    """Gradient descent, so little at a time that the losses stay what they are."""

    def apply_gradients(self, pairs: Any) -> None:
        """One update of every variable."""
        for gradient, variable in pairs:
            variable.assign_sub(1e-6 * gradient)


def placed(program: Any, plan: Plan, x: Any) -> Way:
    """The program where ``plan`` has it, after one call."""
    function = placer.apply(program, plan)
    function(x)
    return Way(run=lambda: function(x), plan=plan)


def measure(calls: Sequence[Callable[[], Any]]) -> list[float]:
    """The median of each call's seconds, all of them by turns."""
    found: list[list[float]] = [[] for _ in calls]
    for _ in range(ROUNDS):
        for call, seconds in zip(calls, found, strict=True):
            began = time.perf_counter()
            tf.nest.map_structure(lambda tensor: tensor.numpy(), call())
            seconds.append(time.perf_counter() - began)
    return [statistics.median(seconds) for seconds in found]


def both_busy(way: Way) -> float:
    """For what part of a step both devices computed, by TensorFlow's profiler."""
    changes = []
    for name, begin, end in traced(way.run):
        device = way.plan.placement.get(name)
        if device is not None:
            changes += [(begin, 1, device), (end, -1, device)]
    changes.sort()
    running = dict.fromkeys(DEVICES, 0)
    together, last = 0, changes[0][0]
    for moment, change, device in changes:
        if all(running.values()):
            together += moment - last
        running[device] += change
        last = moment
    return together / (last - changes[0][0])


def traced(run: Callable[[], Any]) -> Iterator[tuple[str, int, int]]:
    """The name of every op that a call runs, when it begins and when it ends (picoseconds)."""
    with tempfile.TemporaryDirectory() as folder:
        with tf.profiler.experimental.Profile(folder):
            tf.nest.map_structure(lambda tensor: tensor.numpy(), run())
        file = next(Path(folder).rglob("*.xplane.pb"))
        space = xplane_pb2.XSpace.FromString(file.read_bytes())
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                name, _, _ = plane.event_metadata[event.metadata_id].name.partition(":")
                begin = 1000 * line.timestamp_ns + event.offset_ps
                yield name, begin, begin + event.duration_ps


if __name__ == "__main__":
    main()
