"""The largest batch that ``fit`` trains in a process whose allocator has a limit, and one twice as
large with a plan.

    python benchmarks/rematerialisation/keras_fit.py [convolutional transformer]

Every ``fit`` is a process of its own: TensorFlow's BFC allocator, the one of GPUs, serves all
tensors of it up to the limit.  Graph optimisation is on, oneDNN off.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[1]))

STEPS = 5
LIMIT_MIB = {"convolutional": 128, "transformer": 90}
SMALLEST_BATCH, LARGEST_BATCH = 4, 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(LIMIT_MIB))
    parser.add_argument("--fit", default="auto")
    parser.add_argument("--cap", type=float, default=0.9, help="share of the limit, for gaps")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in given.models:
            print(json.dumps(measure(name, Path(folder), given)), flush=True)


def measure(name: str, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """The largest batch without a plan, and what a plan for twice as many examples gives."""
    limit = LIMIT_MIB[name]
    batch = SMALLEST_BATCH
    while batch < LARGEST_BATCH and fit(name, 2 * batch, limit) is not None:
        batch *= 2
    plan = folder / f"{name}.json"
    cap = int(limit * given.cap)
    command = [sys.executable, str(HERE), "plan", name, str(2 * batch), str(cap), given.fit, plan]
    told = run(command, {}) or {}
    losses = fit(name, 2 * batch, limit, plan) if told.get("peak_plan") else None
    plain = fit(name, 2 * batch, None)
    both = losses and plain
    return {
        "model": name,
        "limit_mib": limit,
        "largest_batch": batch,
        "batch_with_plan": 2 * batch if losses else None,
        "largest_difference": max(abs(np.subtract(losses, plain))) if both else None,
        **told,
    }


def fit(name: str, batch: int, limit: int | None, plan: Path | str = "-") -> list[float] | None:
    """The losses of some steps; ``None`` where memory runs out."""
    limited = {"TF_CPU_ALLOCATOR_USE_BFC": "true", "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(limit)}
    command = [sys.executable, str(HERE), "fit", name, str(batch), str(plan)]
    return run(command, limited if limit else {})


def run(command: list[Any], environment: dict[str, str]) -> Any:
    """What the last line of a process says; ``None`` if memory ran out in it."""
    quiet = {"TF_ENABLE_ONEDNN_OPTS": "0", "TF_CPP_MIN_LOG_LEVEL": "3"}
    result = subprocess.run(
        [*map(str, command)],
        env=os.environ | quiet | environment,
        capture_output=True,
        text=True,
    )
    if result.returncode == 0:
        return json.loads(result.stdout.splitlines()[-1])
    words = ("ResourceExhausted", "OOM", "Cannot parse tensor", "MemoryError")
    if any(word in result.stderr for word in words):
        return None
    raise SystemExit(result.stderr[-3000:])


def model_and_data(name: str, batch: int) -> tuple[Any, Any]:
    """A compiled model, and the examples of all steps."""
    import keras
    from graphs import small_cnn, transformer

    keras.utils.set_random_seed(1)
    rng = np.random.default_rng(0)
    if name == "convolutional":
        model = small_cnn()
        x = rng.uniform(0, 1, (batch * STEPS, 32, 32, 3)).astype(np.float32)
    else:
        model = transformer(64, 128, 4, 4, vocabulary=500)()
        x = rng.integers(0, 500, (batch * STEPS, 64)).astype(np.int32)
    y = rng.integers(0, 10, batch * STEPS).astype(np.int32)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, jit_compile=False)
    return model, (x, y)


def tell_plan(name: str, batch: str, cap: str, fit: str, path: str) -> dict[str, Any]:
    """Writes the plan of a step under the cap."""
    import placer

    model, (x, y) = model_and_data(name, int(batch))
    step = placer.training_step(model, (x, y))
    free = placer.place(step, "CPU:64GiB", batch_size=int(batch), time_limit=5)
    plan = placer.place(step, f"CPU:{cap}MiB", batch_size=int(batch), fit=fit, time_limit=20)
    plan.save(path, force=True)
    return {
        "clones": len(plan.rewriting.clones),
        "control_edges": len(plan.control_edges),
        "peak_free": free.peak_bytes["CPU:0"],
        "peak_plan": plan.peak_bytes.get("CPU:0"),
        "status": plan.solver.status,
        "extra_seconds": plan.metrics.fit_extra_seconds,
        "step_seconds": plan.metrics.step_seconds,
    }


def tell_losses(name: str, batch: str, path: str) -> list[float]:
    """The losses of ``fit``, batch by batch."""
    from contextlib import nullcontext

    import keras

    import placer

    model, (x, y) = model_and_data(name, int(batch))
    losses: list[float] = []
    record = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda _, logs: losses.append(float(logs["loss"]))
    )
    plan = None if path == "-" else placer.Plan.load(path)
    with plan.bind(model) if plan else nullcontext():
        model.fit(x, y, batch_size=int(batch), shuffle=False, verbose=0, callbacks=[record])
    return losses


if __name__ == "__main__":
    if sys.argv[1:2] == ["fit"]:
        print(json.dumps(tell_losses(*sys.argv[2:])))
    elif sys.argv[1:2] == ["plan"]:
        print(json.dumps(tell_plan(*sys.argv[2:])))
    else:
        main()
