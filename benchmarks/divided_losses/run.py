"""Decides all two hundred cases, then trains forty of them for ten steps, plain and in two parts.

    PYTHONPATH=. python benchmarks/divided_losses/run.py [COUNT]

With COUNT only so many losses.  Parts draw what the whole draws, cut.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from forty_losses import BATCH, FORTY, KINDS, Loss, build, cases, data

import placer
from placer.application.binding.model_binding import BoundStep, bind_model
from placer.extraction.reading.training_steps import batch_specs, trace_step
from placer.strategies.batches import split_batch, split_sizes
from placer.strategies.gradients import average_gradients
from placer.strategies.keras_replicas import divided_train_step
from placer.strategies.keras_steps import KerasStep, replaced
from placer.strategies.parts import shares_of
from placer.strategies.random_draws import Draws
from placer.strategies.requests import TrainingDivision
from placer.strategies.same_training import decide_division

STEPS, PARTS = 10, 2
REPLICAS = TrainingDivision(replicas=(("GPU:0",), ("GPU:1",)))


def fresh(loss: Loss, kind: str) -> Any:
    """The model of a case with the first weights and draws of every such model."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(7)
    return build(loss, kind)


def decided(loss: Loss, kind: str) -> str:
    """Why a case is not divided, or ""."""
    model, batch = fresh(loss, kind), data(loss, kind)
    found = tuple(map(tf.convert_to_tensor, batch))
    return decide_division(model, batch_specs(batch), BATCH, PARTS, lambda: found)[0]


class Losses(keras.callbacks.Callback):
    """The loss of every batch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Keeps the loss of a batch, and forgets it for the next."""
        del batch
        self.found.append(float(logs["loss"]))
        self.model.reset_metrics()


def trained(model: Any, loss: Loss, kind: str) -> list[float]:
    """The losses of ten steps."""
    x, y, *weights = data(loss, kind, STEPS * BATCH)
    record = Losses()
    settings = {"batch_size": BATCH, "shuffle": False, "verbose": 0, "callbacks": [record]}
    model.fit(x, y, sample_weight=weights[0] if weights else None, **settings)
    return record.found


def in_replicas(loss: Loss, kind: str) -> list[float]:
    """The losses in two replicas, bound to two devices."""
    model = fresh(loss, kind)
    method = partial(divided_train_step, division=REPLICAS)
    step = trace_step(model, batch_specs(data(loss, kind)), "train_step", method(model))
    plan = placer.place(step, "2xT4", batch_size=BATCH, time_limit=0.5)
    with bind_model(plan, model, step=BoundStep(method=method, parts=PARTS, adapts=True)):
        return trained(model, loss, kind)


def with_same_draws(loss: Loss, kind: str) -> list[float]:
    """The losses in two parts that draw what the whole draws."""
    model = fresh(loss, kind)
    parted, whole = KerasStep(model), model.train_step

    def step(batch: Any) -> Any:
        draws, found, outputs, start = Draws(BATCH), [], [], 0
        with replaced(model, "train_step", whole):
            metrics = [(v, tf.identity(v.value)) for v in model.metrics_variables]
            with draws.recorded():
                KerasStep(model).backward((batch,))
            states = [(v, tf.identity(v.value)) for v in model.non_trainable_variables]
            for variable, value in metrics:
                variable.assign(value)
            sizes = split_sizes(BATCH, PARTS)
            for size, part in zip(sizes, split_batch((batch,), sizes), strict=True):
                with draws.replayed(start, size):
                    _, logs, pairs = parted.backward(part)
                found.append(pairs)
                outputs.append(logs)
                start += size
            for variable, value in states:
                variable.assign(value)
        shares = shares_of(sizes)
        return parted.update([], outputs, average_gradients(found, shares), shares)

    vars(model)["train_step"] = step
    return trained(model, loss, kind)


def main() -> None:
    """Prints a line for each case that is not as it should be, and both tables."""
    placer.cpu_devices(2)
    losses = FORTY[: int(sys.argv[1])] if len(sys.argv) > 1 else FORTY
    counts, seconds, answers = dict[tuple[str, bool], list[bool]](), [], {}
    for loss, kind, mixes in cases():
        if loss in losses:
            begin = time.perf_counter()
            reason = decided(loss, kind)
            seconds.append(time.perf_counter() - begin)
            answers[loss.name, kind] = reason
            counts.setdefault((kind, mixes), []).append(not reason)
            was_run = "not shown" in reason
            if mixes != bool(reason) or was_run:
                print(f"{loss.name}, {kind}: {'mixes' if mixes else 'divisible'}: {reason}")
    for kind in KINDS:
        may, mixing = counts.get((kind, False), []), counts.get((kind, True), [])
        print(f"| {kind} | {sum(may)} of {len(may)} | {sum(mixing)} of {len(mixing)} |")
    print(f"a decision: {np.median(seconds):.2f} s in the median, {max(seconds):.2f} s at most")
    worst = 0.0
    for number, loss in enumerate(losses):
        kind = KINDS[number % len(KINDS)]
        if answers[loss.name, kind]:
            continue
        run = with_same_draws if kind in ("dropout", "augmentation") else in_replicas
        plain, found = trained(fresh(loss, kind), loss, kind), run(loss, kind)
        difference = max(abs(a - b) / max(abs(a), 1e-6) for a, b in zip(plain, found, strict=True))
        worst = max(worst, difference)
        print(f"{loss.name}, {kind}: losses differ by {difference:.1e} at most")
    print(f"greatest difference of {STEPS} losses: {worst:.1e}")


if __name__ == "__main__":
    main()
