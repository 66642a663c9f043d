"""What two GPUs hold while a bound model trains, phase by phase: the last line of stdout is JSON.

run.py starts it on simulated GPUs.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path

import keras
import models
import tensorflow as tf

import placer
from placer.simulation.environment import RECORDS
from placer.simulation.records import read_records

SHARE = 0.7
"""Caps, as a share of what the step needs on one GPU."""


def main() -> None:
    """Plans, binds and trains the model that is named."""
    found: dict[str, list[list[int]]] = {}

    def measure(phase: str) -> None:
        """Bytes requested and in use on each GPU."""
        gc.collect()
        mine = next(r for r in read_records(Path(os.environ[RECORDS])) if r.process == os.getpid())
        in_use = [
            tf.config.experimental.get_memory_info(f"GPU:{gpu.index}")["current"]
            for gpu in mine.gpus
        ]
        asked = [gpu.live_asked_bytes for gpu in mine.gpus]
        found[phase] = [list(pair) for pair in zip(asked, in_use, strict=True)]

    model, x, y, batch = models.make(sys.argv[1])
    measure("built")
    step = placer.training_step(model, (x, y))
    measure("traced")
    request = {"batch_size": batch, "offload": "never", "time_limit": 10}
    free = placer.place(step, "2xT4", **request)
    most = max(row.need_bytes or 0 for row in free.devices if row.name != "CPU:0")
    caps = {0: int(SHARE * most), 1: int(SHARE * most)}
    plan = placer.place(step, "2xT4", max_memory=caps, **request)
    resident = {row.name: row.resident_bytes for row in plan.devices}
    del step

    def after(batch: int, logs: object) -> None:
        """Measures after the first and the tenth step."""
        if logs is not None and batch in (0, 9):
            measure(f"step_{batch + 1}")

    steps = keras.callbacks.LambdaCallback(on_train_batch_end=after)
    with plan.bind(model):
        measure("bound")
        model.fit(x, y, batch_size=batch, verbose=0, shuffle=False, callbacks=[steps])
    measure("after")
    planned = [resident[f"GPU:{index}"] for index in range(2)]
    print(json.dumps({"name": sys.argv[1], "planned": planned, **found}))


main()
