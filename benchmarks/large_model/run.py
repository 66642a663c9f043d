"""A model of 6 GB, built and loaded onto four logical devices: peak memory of the host.

    python benchmarks/large_model/run.py [--gigabytes 6] [--folder FOLDER]

writes the checkpoint in one process and loads it in another, whose peak is what counts.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

WIDTH = 8192
LAYER_BYTES = 4 * WIDTH * WIDTH
DEVICES = 4
LIMIT = 1.3


def build(layers: int) -> Any:
    """Dense layers of 256 MiB each, as a module with a traced function."""
    import tensorflow as tf

    class Network(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            value = lambda: tf.random.stateless_uniform([WIDTH, WIDTH], [1, 2], -0.01, 0.01)  # noqa: E731
            self.weights = [tf.Variable(value, name=f"weight_{n}") for n in range(layers)]

        @tf.function(input_signature=[tf.TensorSpec([1, WIDTH], name="x")])
        def run(self, x: Any) -> Any:
            for number, weight in enumerate(self.weights):
                x = tf.linalg.matmul(x, weight, name=f"layer_{number}")
            return x

    return Network()


def peak_bytes() -> int:
    """The largest resident set of this process so far, in bytes."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def write(prefix: str, layers: int) -> dict[str, Any]:
    """Saves the model as TensorFlow does, one variable per shard file at a time in memory."""
    import tensorflow as tf

    model = build(layers)
    tf.train.Checkpoint(model=model).write(prefix)
    return {"peak_bytes": peak_bytes()}


def load(prefix: str, layers: int) -> dict[str, Any]:
    """Plans without memory, builds on the devices, loads variable by variable, runs once."""
    import tensorflow as tf

    import placer

    placer.cpu_devices(DEVICES)
    with placer.empty_variables():
        plan_model = build(layers)
    gpus = f"{DEVICES}xGPU:{math.ceil(layers / DEVICES) * LAYER_BYTES // 2**20 + 256}MiB"
    pins = {f"layer_{n}": f"GPU:{n * DEVICES // layers}" for n in range(layers)}
    plan = placer.place(plan_model.run, gpus, pins=pins, time_limit=2)
    del plan_model
    before = peak_bytes()
    begin = time.perf_counter()
    with plan.scope(values=False):
        model = build(layers)
    placer.load_checkpoint(tf.train.Checkpoint(model=model), prefix)
    seconds = time.perf_counter() - begin
    loaded = peak_bytes()
    placed = placer.apply(model.run, plan)
    shared = all(moved.copy is moved.original for moved in placed.moved)
    found = {moved.name: placed.mapping.planned(moved.copy.device) for moved in placed.moved}
    result = placed(tf.ones([1, WIDTH]))
    return {
        "model_bytes": layers * LAYER_BYTES,
        "largest_variable_bytes": LAYER_BYTES,
        "before_bytes": before,
        "loaded_peak_bytes": loaded,
        "run_peak_bytes": peak_bytes(),
        "seconds": seconds,
        "as_planned": found == dict(plan.variables),
        "copied": not shared,
        "finite": bool(tf.reduce_all(tf.math.is_finite(result))),
        "per_device": {d: sum(v == d for v in found.values()) for d in sorted(set(found.values()))},
    }


def child(action: str, prefix: str, layers: int) -> dict[str, Any]:
    """What ``action`` returns, in a process of its own."""
    command = [sys.executable, __file__, "--action", action, "--prefix", prefix]
    done = subprocess.run(
        [*command, "--layers", str(layers)], check=True, stdout=subprocess.PIPE, text=True
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Runs both processes and prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=6.0)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--action", choices=("write", "load"))
    parser.add_argument("--prefix")
    parser.add_argument("--layers", type=int)
    arguments = parser.parse_args()
    if arguments.action:
        action = {"write": write, "load": load}[arguments.action]
        print(json.dumps(action(arguments.prefix, arguments.layers)))
        return
    layers = math.ceil(arguments.gigabytes * 1e9 / LAYER_BYTES)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        prefix = str(Path(folder) / "model")
        child("write", prefix, layers)
        found = child("load", prefix, layers)
    bound = found["model_bytes"] + found["largest_variable_bytes"]
    for key, value in found.items():
        print(f"{key:24}{value}")
    print(
        f"peak / (model + largest variable): {found['run_peak_bytes'] / bound:.3f} (limit {LIMIT})"
    )
    if found["run_peak_bytes"] > LIMIT * bound or not found["as_planned"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
