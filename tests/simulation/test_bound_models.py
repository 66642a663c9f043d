"""A Keras model that trains while it is bound: each simulated GPU holds what the plan says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from simulation.simulated_runs import answer_of

TRAINING = """
import json, os
from pathlib import Path
import keras, numpy as np, tensorflow as tf
import placer
from placer.simulation.environment import RECORDS
from placer.simulation.records import read_records

hidden = [keras.layers.Dense(1024, "relu", name=f"layer_{n}") for n in range(4)]
model = keras.Sequential([keras.Input((1024,)), *hidden, keras.layers.Dense(8)])
model.compile("adam", "mse", jit_compile=False)
x, y = np.ones((160, 1024), "float32"), np.ones((160, 8), "float32")
step = placer.training_step(model, (x, y))
pins = {"*layer_2*": "GPU:1", "*layer_3*": "GPU:1", "*layer_0*": "GPU:0", "*layer_1*": "GPU:0"}
plan = placer.place(step, "2xT4", batch_size=16, pins=pins, time_limit=2)
found = {}

def measure(phase):
    (record,) = read_records(Path(os.environ[RECORDS]))
    found[phase] = [[gpu.live_asked_bytes, gpu.live_bytes] for gpu in record.gpus]
    used = [tf.config.experimental.get_memory_info(f"GPU:{n}")["current"] for n in (0, 1)]
    assert used == [gpu.live_bytes for gpu in record.gpus]

measure("traced")
def after(batch, logs):
    if batch in (0, 9):
        measure(f"step {batch + 1}")
with plan.bind(model):
    measure("bound")
    model.fit(x, y, batch_size=16, verbose=0,
              callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=after)])
measure("after")
planned = {row.name: row.resident_bytes for row in plan.devices}
print(json.dumps([[planned["GPU:0"], planned["GPU:1"]], found]))
"""


@pytest.mark.slow
def test_each_gpu_holds_what_the_plan_says(tmp_path: Path) -> None:
    """Weights and slots, in bytes requested and in use, from the moment the model is bound to the
    tenth step; the data of fit (NumPy floats) and the slots of a step that was only traced are on
    no GPU."""
    planned, found = json.loads(answer_of(TRAINING, "2xT4", tmp_path).splitlines()[-1])
    assert min(planned) > 8 * 2**20
    weights = 4 * 4 * 1024 * 1025 + 4 * 8 * 1025
    assert found["traced"][0][0] == pytest.approx(weights, rel=0.02)
    assert found["traced"][1][0] < 2**16
    for number, size in enumerate(planned):
        assert found["bound"][number] == pytest.approx([size, size], rel=0.02)
        for phase in ("step 1", "step 10"):
            requested, in_use = found[phase][number]
            assert requested == pytest.approx(size, rel=0.02)
            assert in_use == pytest.approx(size, rel=0.15)
    assert found["after"][0][0] == pytest.approx(sum(planned), rel=0.02)
    assert found["after"][1][0] < 2**16
