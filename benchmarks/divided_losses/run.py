"""Decides all two hundred cases, then trains forty of them for ten steps, plain and in two parts,
or whole on two devices where they are not divided.

    PYTHONPATH=. python benchmarks/divided_losses/run.py [FIRST LAST]

With two numbers only the losses from the one to the other: the forty, then the twelve of
sequences.  Parts draw what the whole draws, cut.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from forty_losses import BATCH, FORTY, KINDS, build, cases, data
from masked_losses import TWELVE, masked_data

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model with its loss, the data of so many examples, and whether the loss mixes them."""

    name: str
    kind: str
    build: Callable[[], Any]
    data: Callable[[int], tuple[Any, ...]]
    mixes: bool

    def fresh(self) -> Any:
        """The model with the first weights and draws of every such model."""
        keras.utils.clear_session()
        keras.utils.set_random_seed(7)
        return self.build()


def all_cases(chosen: slice) -> list[Case]:
    """Those of these losses, of the forty and then those of sequences."""
    names = [each.name for each in (*FORTY, *TWELVE)][chosen]
    found = [
        Case(
            name=loss.name,
            kind=kind,
            build=partial(build, loss, kind),
            data=partial(data, loss, kind),
            mixes=mixes,
        )
        for loss, kind, mixes in cases()
        if loss.name in names
    ]
    for case in (case for case in TWELVE if case.name in names):
        made = {"build": case.build, "data": partial(masked_data, case), "mixes": case.mixes}
        found.append(Case(name=case.name, kind="masked sequences", **made))
    return found


def decided(case: Case) -> str:
    """Why a case is not divided, or ""."""
    model, batch = case.fresh(), case.data(BATCH)
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


def trained(model: Any, case: Case) -> list[float]:
    """The losses of ten steps."""
    x, y, *weights = case.data(STEPS * BATCH)
    record = Losses()
    settings = {"batch_size": BATCH, "shuffle": False, "verbose": 0, "callbacks": [record]}
    model.fit(x, y, sample_weight=weights[0] if weights else None, **settings)
    return record.found


def in_replicas(case: Case) -> list[float]:
    """The losses in two replicas, bound to two devices."""
    model = case.fresh()
    method = partial(divided_train_step, division=REPLICAS)
    step = trace_step(model, batch_specs(case.data(BATCH)), "train_step", method(model))
    plan = placer.place(step, "2xT4", batch_size=BATCH, time_limit=0.5)
    with bind_model(plan, model, step=BoundStep(method=method, parts=PARTS, adapts=True)):
        return trained(model, case)


def whole(case: Case) -> list[float]:
    """The losses of the undivided batch, its ops on two devices."""
    model = case.fresh()
    step = placer.training_step(model, case.data(BATCH))
    pins = {model.trainable_weights[0].path: "GPU:1"}
    plan = placer.place(step, "2xT4", batch_size=BATCH, time_limit=0.5, pins=pins)
    with plan.bind(model):
        return trained(model, case)


def with_same_draws(case: Case) -> list[float]:
    """The losses in two parts that draw what the whole draws."""
    model = case.fresh()
    parted, own = KerasStep(model), model.train_step

    def step(batch: Any) -> Any:
        draws, found, outputs, start = Draws(BATCH), [], [], 0
        with replaced(model, "train_step", own):
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
    return trained(model, case)


def main() -> None:
    """Prints a line for each case that is not as it should be, and both tables."""
    placer.cpu_devices(2)
    known = all_cases(slice(*map(int, sys.argv[1:3])) if sys.argv[1:] else slice(None))
    counts, seconds, divided = dict[tuple[str, bool], list[bool]](), [], list[bool]()
    for case in known:
        begin = time.perf_counter()
        reason = decided(case)
        seconds.append(time.perf_counter() - begin)
        divided.append(not reason)
        counts.setdefault((case.kind, case.mixes), []).append(not reason)
        if case.mixes != bool(reason) or "not shown" in reason:
            told = "mixes" if case.mixes else "divisible"
            print(f"{case.name}, {case.kind}: {told}: {reason}", flush=True)
    for kind in dict.fromkeys(case.kind for case in known):
        may, mixing = counts.get((kind, False), []), counts.get((kind, True), [])
        print(f"| {kind} | {sum(may)} of {len(may)} | {sum(mixing)} of {len(mixing)} |")
    print(f"a decision: {np.median(seconds):.2f} s in the median, {max(seconds):.2f} s at most")
    worst = {"divided": 0.0, "whole": 0.0}
    kinds = {loss.name: KINDS[number % len(KINDS)] for number, loss in enumerate(FORTY)}
    for case, may_be in zip(known, divided, strict=True):
        if case.kind != kinds.get(case.name, case.kind):
            continue
        parted = with_same_draws if case.kind in ("dropout", "augmentation") else in_replicas
        run, how = (parted, "divided") if may_be else (whole, "whole")
        pairs = zip(trained(case.fresh(), case), run(case), strict=True)
        difference = max(abs(a - b) / max(abs(a), 1e-6) for a, b in pairs)
        worst[how] = max(worst[how], difference)
        print(f"{case.name}, {case.kind}, {how}: losses differ by {difference:.1e}", flush=True)
    print(f"greatest difference of {STEPS} losses: {worst}")


if __name__ == "__main__":
    main()
