"""What scripts do beside training by fit() works on simulated GPUs, or at least does not abort."""

from __future__ import annotations

import json

import pytest
from simulation.simulated_runs import answer_of

OTHERS = """
import json, sys, tempfile
import keras, numpy as np, tensorflow as tf

found = {}
tf1 = tf.compat.v1
layers = keras.layers
x, y = np.ones((16, 6, 4), "float32"), np.ones((16, 1), "float32")

strategy = tf.distribute.MirroredStrategy()
with strategy.scope():
    model = keras.Sequential([keras.Input((6, 4)), layers.LSTM(8, return_sequences=True),
                              layers.Bidirectional(layers.GRU(4)), layers.Dense(1)])
    model.compile("adam", "mse", jit_compile=False)
model.fit(x, y, batch_size=8, verbose=0)
found["replicas"] = strategy.num_replicas_in_sync
found["steps"] = int(model.optimizer.iterations.numpy())

image = keras.Input((16, 16, 3))
pixels = layers.BatchNormalization()(layers.Conv2D(4, 3, padding="same")(image))
pooled = layers.MaxPool2D()(pixels)
unet = keras.Model(image, layers.Conv2DTranspose(1, 2, strides=2)(pooled))
unet.compile("adam", keras.losses.BinaryCrossentropy(from_logits=True), jit_compile=False)
unet.fit(np.ones((8, 16, 16, 3), "float32"), np.ones((8, 16, 16, 1), "float32"), verbose=0)

with tf.Graph().as_default():
    product = tf.matmul(*2 * [tf1.get_variable("a", (64, 64))])
    with tf1.Session() as session:
        session.run(tf1.global_variables_initializer())
        options = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE)
        metadata = tf1.RunMetadata()
        session.run(product, options=options, run_metadata=metadata)
        traced = {device.device[-5:] for device in metadata.step_stats.dev_stats}
found["traced"] = "GPU:0" in traced

with tempfile.TemporaryDirectory() as folder:
    with tf.profiler.experimental.Profile(folder):
        tf.matmul(tf.ones((8, 8)), tf.ones((8, 8)))

matrix = tf.eye(8)
solved = tf.linalg.cholesky(matrix), tf.linalg.qr(matrix)[0]
found["solved"] = all(result.shape == (8, 8) for result in solved)
found["spectrum"] = tf.signal.rfft(tf.ones((4, 16))).shape.as_list()
print(json.dumps(found))
"""


@pytest.mark.slow
def test_recurrent_layers_strategies_traces_and_solvers_run() -> None:
    """Keras's LSTM and GRU on cuDNN under MirroredStrategy, convolutions, a full trace, the
    profiler, cuSOLVER and cuFFT, with TensorFlow's other allocator."""
    found = answer_of(
        OTHERS, "2xT4", TF_CPP_MIN_LOG_LEVEL="3", TF_GPU_ALLOCATOR="cuda_malloc_async"
    )
    assert json.loads(found.splitlines()[-1]) == {
        "replicas": 2,
        "steps": 2,
        "traced": True,
        "solved": True,
        "spectrum": [4, 9],
    }


COMPILED = """
import json
import keras, numpy as np, tensorflow as tf

keras.mixed_precision.set_global_policy("mixed_float16")
model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(64, "relu"),
                          keras.layers.BatchNormalization(), keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(np.ones((32, 16), "float32"), np.ones((32, 1), "float32"), batch_size=16, verbose=0)
print(json.dumps({"compiled": model.jit_compile, "peak": tf.config.experimental.get_memory_info(
    "GPU:0")["peak"]}))
"""


@pytest.mark.slow
def test_what_keras_compiles_with_xla_runs() -> None:
    """Keras's ``jit_compile="auto"`` takes XLA where there is a GPU: a step in mixed precision,
    whose loss scaling branches and copies constants, compiles, allocates and runs."""
    found = json.loads(answer_of(COMPILED, "1xT4", TF_CPP_MIN_LOG_LEVEL="3").splitlines()[-1])
    assert found["compiled"] is True
    assert found["peak"] > 3 * 4 * 16 * 64  # weights and two slots


VERIFYING = """
import json
import placer
import numpy as np, tensorflow as tf

weights = [tf.Variable(tf.ones((64, 64)) * 0.5) for _ in range(2)]

@tf.function(input_signature=[tf.TensorSpec((8, 64))])
def program(x):
    return (x @ weights[0]) @ weights[1]

plan = placer.place(program, "2xT4", pins={"matmul": "GPU:0", "matmul_1": "GPU:1"}, time_limit=2)
found = placer.verify(program, plan)
print(json.dumps(found.to_json() | {"text": str(found.summary())}))
"""


@pytest.mark.slow
def test_outputs_are_not_compared() -> None:
    """Where GPUs are simulated, ops, variables and transfers are checked and values are not."""
    found = json.loads(answer_of(VERIFYING, "2xT4").splitlines()[-1])
    assert set(found["judges"]) == {"ops", "transfers", "variables"}
    assert set(found["judges"].values()) == {"simulated"}
    assert (found["outputs"], found["summary"]["outputs_equal"]) == ([], None)
    assert found["mismatches"] == []
    assert {row["actual"] for row in found["ops"]} >= {"GPU:0", "GPU:1"}
    assert "not compared: simulated GPUs compute no values" in found["text"]
