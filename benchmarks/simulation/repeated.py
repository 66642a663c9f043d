"""Do programs end the same way every time on simulated GPUs, with the same peak?

    python benchmarks/simulation/repeated.py [--runs 100] [--keep FOLDER] [PROGRAM ...]

Five small programs run that often, each time in a process of its own (a fork of one that has
imported TensorFlow and not used it), and ten different models one after the other in one process a
tenth as often.  A ``PROGRAM`` may also be one of ``scripts/``.  A row says how many ended otherwise
than well, and how far peaks lie from their median.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import runpy
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from run import LAST_LINES, words_of

import placer

placer.simulate_gpus("2xT4")
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras  # noqa: E402, after the GPUs are there
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

v1 = tf.compat.v1
layers = keras.layers
LIMIT_SECONDS = 300


def peaks() -> list[int]:
    """The most in use on each GPU since this was asked last."""
    found = []
    for name in ("GPU:0", "GPU:1"):
        found.append(tf.config.experimental.get_memory_info(name)["peak"])
        tf.config.experimental.reset_memory_stats(name)
    return found


def fit(model: Any, x: np.ndarray, y: np.ndarray, loss: Any = "mse", **options: Any) -> None:
    """Three steps of training, the last with a smaller batch."""
    model.compile("adam", loss, jit_compile=False, **options)
    model.fit(x[:40], y[:40], batch_size=16, verbose=0)
    assert int(model.optimizer.iterations) == 3


def ones(*shape: int) -> np.ndarray:
    """A batch of 40."""
    return np.ones((40, *shape), "float32")


def perceptron() -> list[int]:
    """Keras's fit."""
    fit(keras.Sequential([layers.Dense(512, "relu"), layers.Dense(1)]), ones(64), ones(1))
    return peaks()


def session(gpus: int = 1) -> list[int]:
    """Five steps of a session."""
    with tf.Graph().as_default(), v1.Session() as running:
        hidden = v1.placeholder(tf.float32, (None, 256))
        for number in range(4):
            with tf.device(f"GPU:{number % gpus}"):
                hidden = tf.nn.relu(hidden @ v1.get_variable(f"w{number}", (256, 256)))
        step = v1.train.get_or_create_global_step()
        train = v1.train.MomentumOptimizer(0.1, 0.9).minimize(tf.reduce_mean(hidden), step)
        running.run(v1.global_variables_initializer())
        for _ in range(5):
            running.run(train, {"Placeholder:0": np.ones((32, 256))})
        assert running.run(step) == 5
    return peaks()


def session_on_two() -> list[int]:
    """The same, its layers on two GPUs in turn."""
    return session(gpus=2)


def server() -> list[int]:
    """Twenty requests to a SavedModel whose halves are on two GPUs."""
    model = tf.Module()
    for number in range(2):
        with tf.device(f"GPU:{number}"):
            setattr(model, f"w{number}", tf.Variable(tf.ones((256, 256))))

    @tf.function(input_signature=[tf.TensorSpec((None, 256))])
    def serve(x: Any) -> Any:
        for number in range(8):
            with tf.device(f"GPU:{number // 4}"):
                x = tf.nn.relu(x @ getattr(model, f"w{number // 4}"))
        return x

    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(model, folder, serve)
        options = tf.saved_model.LoadOptions(experimental_variable_policy="save_variable_devices")
        call = tf.saved_model.load(folder, options=options).signatures["serving_default"]
    for size in (64, 8, 256, 32) * 5:
        assert call(x=tf.ones((size, 256)))["output_0"].numpy().shape == (size, 256)
    return peaks()


def own_loop() -> list[int]:
    """Convolutions, a mask and unique ids in a loop of its own."""
    net = keras.Sequential([layers.Conv2D(16, 3), layers.MaxPool2D(), layers.Dense(8)])
    optimizer = keras.optimizers.SGD()

    @tf.function
    def train(images: Any, ids: Any) -> Any:
        with tf.GradientTape() as tape:
            found = tf.boolean_mask(net(images), ids > 5)
            loss = tf.reduce_mean(found**2)
        optimizer.apply_gradients(
            zip(tape.gradient(loss, net.trainable_variables), net.trainable_variables, strict=True)
        )
        return tf.unique(ids).y

    for size in (16, 12, 16):
        assert train(tf.ones((size, 32, 32, 3)), tf.range(size) // 2).shape == (size // 2,)
    return peaks()


def ten_models() -> list[int]:
    """The peaks of ten models of 20 to 120 MB, one after the other."""
    image, sequence = keras.Input((64, 64, 3)), keras.Input((12, 256))
    pixels, texts = ones(64, 64, 3), np.ones((40, 12), "int32")
    small = layers.MaxPool2D()(layers.Conv2D(32, 3, padding="same")(image))
    up = layers.Conv2DTranspose(1, 2, strides=2, activation="sigmoid")(small)
    resized = layers.Conv2D(1, 3, padding="same")(layers.UpSampling2D()(small))
    attention = layers.MultiHeadAttention(4, 64)(sequence, sequence)
    pooled = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(attention + sequence))
    build: list[Callable[[], None]] = [
        lambda: fit(keras.Sequential([layers.Dense(1024), layers.Dense(1)]), ones(1024), ones(1)),
        lambda: fit(
            keras.Sequential([layers.Dense(512), layers.Dense(1, "sigmoid")]),
            ones(1024),
            ones(1),
            "binary_crossentropy",
            metrics=[keras.metrics.AUC()],
        ),
        lambda: fit(keras.Model(image, up), pixels, ones(64, 64, 1), keras.losses.Dice()),
        lambda: fit(keras.Model(image, resized), pixels, ones(64, 64, 1)),
        lambda: fit(
            keras.Sequential(
                [layers.Embedding(9000, 64, mask_zero=True), layers.LSTM(256), layers.Dense(1)]
            ),
            texts,
            ones(1),
        ),
        lambda: fit(keras.Sequential([layers.GRU(256), layers.Dense(1)]), ones(12, 256), ones(1)),
        lambda: fit(keras.Model(sequence, layers.Dense(1)(pooled)), ones(12, 256), ones(1)),
        lambda: fit(
            keras.Sequential(
                [layers.Conv1D(256, 3), layers.Flatten(), layers.Dense(256, "softmax")]
            ),
            ones(12, 256),
            np.zeros((40,), "int32"),
            "sparse_categorical_crossentropy",
            metrics=["accuracy"],
        ),
        lambda: fit(
            keras.Sequential(
                [
                    layers.SeparableConv2D(64, 3),
                    layers.BatchNormalization(),
                    layers.GlobalMaxPooling2D(),
                ]
            ),
            pixels,
            ones(64),
            "huber",
        ),
        lambda: fit(
            keras.Sequential([layers.Dropout(0.5), layers.Dense(1024), layers.Dense(1024)]),
            ones(1024),
            ones(1024),
            "cosine_similarity",
            metrics=["mae"],
        ),
    ]
    found = []
    for train in build:
        train()
        found.append(peaks()[0])
        keras.backend.clear_session()
    return found


def script(name: str) -> list[int]:
    """The peaks of one of ``scripts/``, which must end with its last line."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        runpy.run_path(*words_of(name), run_name="__main__")
    assert printed.getvalue().splitlines()[-1] == LAST_LINES[name]
    return peaks()


PROGRAMS = {
    program.__name__: program
    for program in (perceptron, session, server, session_on_two, own_loop, ten_models)
}


def run(name: str) -> list[int] | None:
    """The peaks of a program in a process of its own; None if it does not end well."""
    program = PROGRAMS.get(name, partial(script, name))
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writing, json.dumps(program()).encode())
            os._exit(0)
        except BaseException as error:
            sys.stderr.write(f"{name}: {error}\n"[-2000:])
            os._exit(1)
    os.close(writing)
    deadline, status = time.monotonic() + LIMIT_SECONDS, None
    while status is None and time.monotonic() < deadline:
        ended, code = os.waitpid(child, os.WNOHANG)
        status = code if ended else None
        time.sleep(0.01)
    if status is None:
        os.kill(child, 9)
        os.waitpid(child, 0)
    printed = os.read(reading, 1 << 16)
    os.close(reading)
    if status != 0:
        sys.stderr.write(f"{name}: status {status}\n")
        return None
    found: list[int] = json.loads(printed)
    return found


def main() -> None:
    """Prints a row for every program; exit code 1 if one did not end well."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--keep", type=Path, help="folder of earlier runs, which count as well")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM")
    arguments = parser.parse_args()
    print(
        "| program | runs | failed | median peaks, MB | furthest from it |\n|---|---|---|---|---|"
    )
    failed = 0
    for name in arguments.programs or PROGRAMS:
        kept = arguments.keep / f"{name}.json" if arguments.keep else None
        rows = json.loads(kept.read_text()) if kept and kept.exists() else []
        for _ in range(max(1, arguments.runs // 10) if name == "ten_models" else arguments.runs):
            rows.append(run(name))
            if kept:
                kept.write_text(json.dumps(rows))
        found = [row for row in rows if row]
        failed += len(rows) - len(found)
        medians = [statistics.median(column) for column in zip(*found, strict=True)]
        off = [
            (abs(value - middle) / middle, middle)
            for row in found
            for value, middle in zip(row, medians, strict=True)
            if middle
        ]
        furthest, of = max(off, default=(0, 0))
        told = ", ".join(f"{middle / 1e6:.2f}" for middle in medians)
        cells = (name, len(rows), len(rows) - len(found), told, f"{furthest:.1%} of {of / 1e6:.2f}")
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)
    raise SystemExit(bool(failed))


if __name__ == "__main__":
    main()
