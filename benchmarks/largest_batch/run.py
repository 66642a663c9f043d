"""Does the largest batch that ``placer.sweep`` names run, and one half as large again run out?

    python benchmarks/largest_batch/run.py FOLDER [NAME ...]

asks for six programs, two of them training steps, which batch fits a card of which the weights take
less than a fifth, and runs them plainly on a simulated card of that size: at the batch that is
named, and at 1.5 times it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import graphs

STEPS = 3


@dataclass(frozen=True, kw_only=True)
class Program:
    """A graph of ``benchmarks/graphs.py``, or a Keras model, on a card that hands out so much."""

    graph: graphs.BenchmarkGraph
    card_mib: int


def _program(name: str, card_mib: int) -> Program:
    graph = next(graph for graph in graphs.GRAPHS if graph.name == name)
    return Program(graph=graph, card_mib=card_mib)


PROGRAMS = (
    _program("resnet50", 600),
    _program("mobilenet_v2", 256),
    _program("transformer_encoder", 256),
    _program("vision_transformer", 256),
    _program("unet_adam", 512),
    _program("perceptron_adam", 256),
)


def main() -> None:
    """Prints a row per program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for program in PROGRAMS:
        if not arguments.names or program.graph.name in arguments.names:
            print(row(program, arguments.folder), flush=True)


def row(program: Program, folder: Path) -> str:
    """A row of the table."""
    found = apart("ask", program, folder)
    named, more = found["fits"], -(-3 * found["fits"] // 2)
    at, above = (apart("run", program, folder, size) for size in (named, more))
    card = program.card_mib << 20
    cells = (
        f"{program.graph.name}, {program.card_mib} MiB",
        f"{found['weight_bytes'] / card:.0%}",
        f"{named:,}",
        f"{found['fails']:,}",
        "yes" if at["served"] else f"no ({at['said']})",
        f"{at['peak'] / card:.0%}",
        f"runs at {more:,}" if above["served"] else f"runs out at {more:,}",
    )
    return f"| {' | '.join(cells)} |"


def apart(action: str, program: Program, folder: Path, *words: object) -> dict[str, Any]:
    """The JSON that a process of its own prints last."""
    code = f"import run; run.{action}({program.graph.name!r}, *{words!r})"
    environment = {
        **os.environ,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TF_DISABLE_RZ_CHECK": "1",  # as placer sets it for live programs
        "PYTHONPATH": str(Path(__file__).parent),
    }
    log = folder / f"{program.graph.name}-{action}.log"
    with log.open("w") as errors:
        done = subprocess.run(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
            check=False,
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise SystemExit(f"{program.graph.name}, {action}: {log.read_text()[-2000:]}")
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def step_of(name: str, batch: int | None) -> tuple[Program, Any, Callable[..., Any], list[Any]]:
    """The program, its model, its step and the specs of a batch."""
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(0)
    program = next(program for program in PROGRAMS if program.graph.name == name)
    graph, model = program.graph, program.graph.build()
    specs = [tf.TensorSpec((batch, *shape), dtype) for shape, dtype in graph.inputs]

    def call(values: Any, *, training: bool) -> Any:
        return model(values if len(values) > 1 else values[0], training=training)

    if not graph.optimizer:
        return program, model, lambda *values: call(values, training=False), specs
    optimizer = graphs.optimizer_of(graph.optimizer)
    optimizer.build(model.trainable_variables)
    shape, dtype = graph.labels

    def train(labels: Any, *values: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(graphs._loss(labels, call(values, training=True)))
        optimizer.apply(tape.gradient(loss, model.trainable_variables))
        return loss

    specs.insert(0, tf.TensorSpec((batch, *shape), dtype))
    return program, (model, optimizer), train, specs


def ask(name: str) -> None:
    """Prints the batch that fits, and the least that was tried and does not."""
    import tensorflow as tf

    import placer

    program, _kept, step, specs = step_of(name, None)
    function = tf.function(step, input_signature=specs)
    found = placer.sweep(
        function, [8], f"GPU:{program.card_mib}MiB", offload="never", time_limit=5.0, max_trials=20
    )
    weights = found.reports[0].model.parameter_bytes.values()
    print(
        json.dumps(
            {
                "fits": found.largest_fitting,
                "fails": found.smallest_failing,
                "weight_bytes": sum(weights),
                "rows": [[r.batch_size, r.required_bytes] for r in found.rows],
            }
        )
    )


def run(name: str, batch: int) -> None:
    """Runs three steps on the simulated card, and prints whether they ended."""
    import placer

    program = next(program for program in PROGRAMS if program.graph.name == name)
    placer.simulate_gpus(f"GPU:{program.card_mib}MiB")
    import tensorflow as tf

    errors = (tf.errors.ResourceExhaustedError, tf.errors.NotFoundError, tf.errors.UnknownError)
    try:
        _, _kept, step, specs = step_of(name, batch)
        function = tf.function(step, input_signature=specs)
        with tf.device("CPU:0"):
            fed = [tf.zeros(spec.shape, spec.dtype) for spec in specs]
        for _ in range(STEPS):
            out = function(*fed)
            tf.nest.map_structure(lambda value: value.numpy(), out)
            del out
    except errors as error:
        told = {"served": False, "said": type(error).__name__}
    else:
        told = {"served": True}
    told["peak"] = tf.config.experimental.get_memory_info("GPU:0")["peak"]
    print(json.dumps(told), flush=True)
    os._exit(0)  # what TensorFlow does at its end is not measured


if __name__ == "__main__":
    main()
