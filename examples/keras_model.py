"""A Keras model that fits no single GPU, placed on two and run.

    python examples/keras_model.py

A stack of dense layers (33 MiB of weights) on two GPUs of 20 MiB: the plan divides it where least
crosses, and the placed model gives the outputs of the unplaced one.  Without those GPUs, logical
CPU devices stand in for them.
"""

from __future__ import annotations

from typing import Any

BATCH_SIZE, WIDTH = 16, 1024
CAPS = {0: "20MiB", 1: "20MiB", "cpu": "1GiB"}


def build_model() -> Any:
    """Eight dense layers of 4 MiB each."""
    import keras

    layers = [keras.layers.Dense(WIDTH, activation="relu") for _ in range(8)]
    return keras.Sequential([keras.Input((WIDTH,)), *layers, keras.layers.Dense(10)])


def place_model() -> Any:
    """The plan, and what verification found."""
    import placer

    placer.cpu_devices(2)
    model = build_model()
    asked = {"max_memory": CAPS, "batch_size": BATCH_SIZE, "time_limit": 10}
    plan = placer.place(model, devices="2xGPU", **asked)
    placed = placer.apply(model, plan)
    return plan, placer.verify(placed, plan)


if __name__ == "__main__":
    plan, found = place_model()
    print(plan.summary())
    found.raise_for_mismatch()
    difference = max(row.max_absolute_difference for row in found.outputs)
    print(f"{len(found.ops):,} ops ran as planned; outputs differ by {difference:g}")
