"""A model of 3 GB of weights, whole and a part at a time.

    python benchmarks/part_at_a_time/run.py FOLDER [--gigabytes 3] [--resident 1GB]

writes a SavedModel of dense layers of 64 MiB into ``FOLDER`` if it is not there, runs it in
processes of their own, whole and in stages, and prints seconds and resident memory of each.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

WIDTH = 4096
LAYER_BYTES = 4 * WIDTH * WIDTH
ROWS = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gigabytes", type=float, default=3.0)
    parser.add_argument("--resident", default="1GB")
    parser.add_argument("--only", choices=("build", "whole", "parts"))
    arguments = parser.parse_args()
    if arguments.only:
        job = {"build": build, "whole": run_whole, "parts": run_parts}[arguments.only]
        print(json.dumps(job(arguments)))
        return
    found = {}
    for job in ("build", "whole", "parts"):
        if job == "build" and (arguments.folder / "saved_model.pb").exists():
            continue
        command = [sys.executable, __file__, str(arguments.folder), "--only", job]
        command += ["--gigabytes", str(arguments.gigabytes), "--resident", arguments.resident]
        result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found[job] = json.loads(result.stdout.splitlines()[-1])
        print(job, found[job], flush=True)
    print("outputs equal:", found["whole"]["sha256"] == found["parts"]["sha256"])


def build(arguments: argparse.Namespace) -> dict:
    """Writes the model."""
    import tensorflow as tf

    class Layers(tf.Module):
        def __init__(self, count: int) -> None:
            super().__init__()
            generator = tf.random.Generator.from_seed(0)
            shape = [WIDTH, WIDTH]
            self.layers = [tf.Variable(generator.normal(shape) / 64) for _ in range(count)]

        @tf.function(input_signature=[tf.TensorSpec([None, WIDTH], name="x")])
        def serve(self, x):
            for weights in self.layers:
                x = tf.tanh(x @ weights)
            return {"y": x}

    model = Layers(round(arguments.gigabytes * 1e9 / LAYER_BYTES))
    tf.saved_model.save(model, arguments.folder, signatures=model.serve)
    return {"weight_bytes": len(model.layers) * LAYER_BYTES}


def run_whole(arguments: argparse.Namespace) -> dict:
    import tensorflow as tf

    def load():
        model = tf.saved_model.load(str(arguments.folder))
        function = model.signatures["serving_default"]
        return lambda x, _keep=model: function(x=x)["y"]

    return measure(load)


def run_parts(arguments: argparse.Namespace) -> dict:
    import placer

    def load():
        model = placer.stream(arguments.folder, arguments.resident)
        return lambda x: model(x=x)["y"], model

    def start():
        function, model = load()
        measured["stages"] = len(model.stages)
        measured["weight_bytes_at_once"] = model.weight_bytes
        return function

    measured: dict = {}
    return {**measure(start), **measured}


def measure(load) -> dict:
    """Seconds of loading and of two calls, the most memory resident beyond TensorFlow's own."""
    import tensorflow as tf

    x = tf.reshape(tf.linspace(-1.0, 1.0, ROWS * WIDTH), [ROWS, WIDTH])
    tf.matmul(x, x, transpose_b=True)
    at_start = resident()
    highest = [at_start]
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.005):
            highest[0] = max(highest[0], resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    times = [time.perf_counter()]
    function = load()
    times.append(time.perf_counter())
    for _ in range(2):
        y = function(x).numpy()
        times.append(time.perf_counter())
    stop.set()
    watcher.join()
    seconds = [round(b - a, 2) for a, b in pairwise(times)]
    return {
        "seconds": dict(zip(("load", "first", "second"), seconds, strict=True)),
        "resident_bytes_at_start": at_start,
        "resident_bytes_added": highest[0] - at_start,
        "sha256": hashlib.sha256(y.tobytes()).hexdigest()[:16],
    }


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
