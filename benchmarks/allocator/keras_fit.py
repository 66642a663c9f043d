"""Does Keras ``fit`` run where TensorFlow's allocator may hand out what is predicted?

    python benchmarks/allocator/keras_fit.py FOLDER [NAME ...]

writes the training step of each model of ``cases.py`` (``model.train_step``: optimizer and metrics
included) as a graph into ``FOLDER``, predicts its need and that of what Grappler makes of it, and
calls ``fit`` for some steps, each time in a process of its own, on one CPU under that limit: with
graph optimisation off under the need of the graph, with it on under the larger one of both.  The
batch, which a data set holds, is added to both.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from cases import CASES, chosen
from graphs import BenchmarkGraph, flat_program, optimizer_of

MEBIBYTE = 2**20
STEPS = 3
RUNS = 3
"""Processes that fit under each limit."""

LARGEST_NUMBER = 10
"""Integers of a batch are below it: class labels, and rows of every table."""

ENVIRONMENT = {
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "CUDA_VISIBLE_DEVICES": "-1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}

Batch = tuple[Any, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--apart", choices=APART, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    cases = chosen(arguments.names or [case.name for case in CASES if case.optimizer])
    if arguments.apart:
        APART[arguments.apart](cases[0], arguments.folder)
        return
    print("| model | batch, MB | need, MB | optimised | limit, MiB | off | limit, MiB | on |")
    print("|" + "---|" * 8)
    for case in cases:
        print(row(case, arguments.folder), flush=True)


def row(case: BenchmarkGraph, folder: Path) -> str:
    """What is predicted of a model and what became of it, as a line of a table."""
    from run import predicted_needs

    path = path_of(case, folder)
    if not path.exists():
        run_apart("write", case, folder, {})
    batch_bytes = json.loads(path.with_suffix(".json").read_text())["batch_bytes"]
    needs = [found.need.high_bytes for found in predicted_needs(path, optimised=True)]
    cells = [case.name, *(f"{size / 1e6:.1f}" for size in (batch_bytes, *needs))]
    for action, need in (("plain", needs[0]), ("optimised", max(needs))):
        limit = -(-(need + batch_bytes) // MEBIBYTE)
        under = {"TF_CPU_ALLOCATOR_USE_BFC": "true", "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(limit)}
        runs = [run_apart(action, case, folder, under) for _ in range(RUNS)]
        failed = [run for run in runs if run]
        cells += [str(limit), "; ".join([f"{RUNS - len(failed)} of {RUNS} served", *failed])]
    return f"| {' | '.join(cells)} |"


def run_apart(action: str, case: BenchmarkGraph, folder: Path, under: dict[str, str]) -> str:
    """The last line that a process of its own prints."""
    command = [sys.executable, __file__, folder, case.name, "--apart", action]
    environment = {**os.environ, **ENVIRONMENT, **under}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return (done.stdout.splitlines() or [""])[-1]


def path_of(case: BenchmarkGraph, folder: Path) -> Path:
    """Where the graph of its training step is written."""
    return folder / f"{case.name}-b{case.batches[0]}-fit.pb"


def write(case: BenchmarkGraph, folder: Path) -> None:
    """Writes the training step, what to fetch and how large a batch is."""
    import tensorflow as tf

    from placer.extraction.reading.training_steps import trace_step

    model, batch = compiled_model(case), batch_of(case)
    specs = tf.nest.map_structure(lambda value: tf.TensorSpec(value.shape, value.dtype), batch)
    program, outputs = flat_program(trace_step(model, specs, "train_step"))
    path = path_of(case, folder)
    path.write_bytes(program.SerializeToString())
    size = sum(value.nbytes for value in tf.nest.flatten(batch))
    path.with_suffix(".json").write_text(json.dumps({"outputs": outputs, "batch_bytes": size}))


def fit_plain(case: BenchmarkGraph, folder: Path) -> None:  # noqa: ARG001 (nothing is written)
    """Prints where memory runs out in ``fit`` with graph optimisation off."""
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    fit(case)


def fit_optimised(case: BenchmarkGraph, folder: Path) -> None:  # noqa: ARG001
    """The same with graph optimisation on."""
    fit(case)


APART = {"write": write, "plain": fit_plain, "optimised": fit_optimised}


def fit(case: BenchmarkGraph) -> None:
    """Prints where memory runs out in ``fit``, if it does."""
    import tensorflow as tf

    seen: list[str] = []
    try:
        model = compiled_model(case)
        seen.append("built")
        data = tf.data.Dataset.from_tensors(batch_of(case)).repeat(STEPS)
        model.fit(data, shuffle=False, verbose=0)
    except tf.errors.ResourceExhaustedError as error:
        said = str(error).partition("\n")[0]
        print(f"{'fit' if seen else 'build'}: {said[:120]}")


def compiled_model(case: BenchmarkGraph) -> Any:
    """The model of the case, as ``fit`` wants it."""
    import keras

    keras.utils.set_random_seed(0)
    model = case.build()
    losses = keras.losses
    binary = case.labels[1].startswith("float")
    loss = losses.BinaryCrossentropy if binary else losses.SparseCategoricalCrossentropy
    model.compile(optimizer_of(case.optimizer), loss(from_logits=True), jit_compile=False)
    return model


def batch_of(case: BenchmarkGraph) -> Batch:
    """Numbers for inputs and labels."""
    import numpy as np

    rng = np.random.default_rng(0)

    def numbers(shape: Sequence[int], dtype: str) -> Any:
        size = (case.batches[0], *shape)
        if dtype.startswith("float"):
            return rng.uniform(0, 1, size).astype(dtype)
        return rng.integers(0, LARGEST_NUMBER, size).astype(dtype)

    inputs = tuple(numbers(*given) for given in case.inputs)
    return inputs if len(inputs) > 1 else inputs[0], numbers(*case.labels)


if __name__ == "__main__":
    main()
