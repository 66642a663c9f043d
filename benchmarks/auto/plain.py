"""Is what ``placer.auto`` chooses ever slower than the plain program?  Twenty inference models.

    python benchmarks/auto/plain.py --out DIR [MODEL...]     # needs an idle machine

Every model is written as a GraphDef, its ops are profiled with one thread at batches of 1 and of
64, and one device is fitted to those of all models (``placer calibrate``).  ``auto`` chooses for
two such devices.  What it chose and the plain program run in turns in sessions with the same
threads: two logical CPUs, one thread for the inside of an op, two for ops.  What is kept in DIR is
not done again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "strategies"))
import keras
import numpy as np
import run as strategies
import tensorflow as tf
from keras import layers
from tensorflow.core.framework import graph_pb2

import placer
from cost_models.cluster_files import cluster_toml
from cost_models.devices import Cluster, Link
from placer.errors import PlacerError
from placer.plan.measured_costs import MeasuredCosts
from placer.questions.calibration import calibrate

BATCHES = (1, 64)
ROUNDS = 5
SLOWER, FASTER = 1.05, 1.3


def application(name: str, side: int) -> Callable[[], Any]:
    """A model of ``keras.applications`` for pictures of ``side`` x ``side``."""
    return lambda: getattr(keras.applications, name)(weights=None, input_shape=(side, side, 3))


def pictures(*tail: Any, side: int = 32) -> Any:
    """A chain of layers over pictures."""
    return keras.Sequential([keras.Input((side, side, 3)), *tail])


def tokens(*tail: Any, words: int = 64, width: int = 128) -> Any:
    """A chain of layers over embedded tokens."""
    return keras.Sequential(
        [keras.Input((words,), dtype="int32"), layers.Embedding(20_000, width), *tail]
    )


def transformer() -> Any:
    """Four blocks of attention, as a classifier of texts has them."""
    ids = keras.Input((64,), dtype="int32")
    x = layers.Embedding(20_000, 128)(ids)
    for _ in range(4):
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 32)(x, x))
        x = layers.LayerNormalization()(x + layers.Dense(128)(layers.Dense(512, "gelu")(x)))
    return keras.Model(ids, layers.Dense(2)(layers.GlobalAveragePooling1D()(x)))


def two_towers() -> Any:
    """Users and items, each with a table and layers of their own."""
    inputs = [keras.Input((), dtype="int32") for _ in range(2)]
    sides = []
    for each in inputs:
        x = layers.Embedding(100_000, 64)(each)
        for _ in range(3):
            x = layers.Dense(1024, "relu")(x)
        sides.append(layers.Dense(64)(x))
    return keras.Model(inputs, layers.Dot(1)(sides))


def wide_and_deep() -> Any:
    """Eight tables and dense features, a wide and a deep part."""
    dense = keras.Input((13,))
    ids = [keras.Input((), dtype="int32") for _ in range(8)]
    x = layers.Concatenate()([dense, *(layers.Embedding(50_000, 32)(each) for each in ids)])
    for units in (1024, 512, 256):
        x = layers.Dense(units, "relu")(x)
    return keras.Model([dense, *ids], layers.Dense(1)(layers.Concatenate()([x, dense])))


def u_net() -> Any:
    """Segmentation with skipped connections."""
    x = given = keras.Input((64, 64, 3))
    kept = []
    for filters in (16, 32, 64):
        x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
        kept.append(x)
        x = layers.MaxPooling2D()(x)
    for filters in (64, 32, 16):
        x = layers.Conv2DTranspose(filters, 2, 2)(x)
        x = layers.Concatenate()([x, kept.pop()])
        x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
    return keras.Model(given, layers.Conv2D(2, 1)(x))


def ensemble() -> Any:
    """Four classifiers of one picture, averaged."""
    given = keras.Input((32, 32, 3))
    members = []
    for _ in range(4):
        x = given
        for filters in (32, 64, 128):
            x = layers.Conv2D(filters, 3, 2, padding="same", activation="relu")(x)
        members.append(layers.Dense(10)(layers.Flatten()(x)))
    return keras.Model(given, layers.Average()(members))


def mixer() -> Any:
    """An MLP over patches and channels."""
    given = keras.Input((64, 64, 3))
    x = layers.Reshape((64, 128))(layers.Conv2D(128, 8, 8)(given))
    for _ in range(4):
        turned = layers.Permute((2, 1))(x)
        turned = layers.Dense(64)(layers.Dense(128, "gelu")(turned))
        x = x + layers.Permute((2, 1))(turned)
        x = x + layers.Dense(128)(layers.Dense(512, "gelu")(x))
    return keras.Model(given, layers.Dense(10)(layers.GlobalAveragePooling1D()(x)))


MODELS: dict[str, Callable[[], Any]] = {
    "ResNet50": application("ResNet50", 96),
    "MobileNetV2": application("MobileNetV2", 96),
    "MobileNetV3Small": application("MobileNetV3Small", 96),
    "EfficientNetB0": application("EfficientNetB0", 96),
    "DenseNet121": application("DenseNet121", 96),
    "NASNetMobile": application("NASNetMobile", 96),
    "InceptionV3": application("InceptionV3", 96),
    "VGG16": application("VGG16", 64),
    "small convolutions": lambda: pictures(
        layers.Conv2D(32, 3, activation="relu"), layers.Conv2D(32, 3, activation="relu"),
        layers.GlobalAveragePooling2D(), layers.Dense(10),
    ),
    "autoencoder of pictures": lambda: pictures(
        layers.Conv2D(32, 3, 2, padding="same", activation="relu"),
        layers.Conv2D(64, 3, 2, padding="same", activation="relu"),
        layers.Conv2DTranspose(32, 3, 2, padding="same", activation="relu"),
        layers.Conv2DTranspose(3, 3, 2, padding="same"),
    ),
    "U-Net": u_net,
    "ensemble": ensemble,
    "mixer": mixer,
    "perceptron": lambda: keras.Sequential(
        [keras.Input((784,)), *(layers.Dense(1024, "relu") for _ in range(4)), layers.Dense(10)]
    ),
    "five small layers": lambda: keras.Sequential(
        [keras.Input((32,)), *(layers.Dense(32, "relu") for _ in range(4)), layers.Dense(1)]
    ),
    "two towers": two_towers,
    "wide and deep": wide_and_deep,
    "transformer": transformer,
    "LSTM": lambda: tokens(layers.LSTM(128, unroll=True), layers.Dense(2), words=32),
    "convolutions over text": lambda: tokens(
        layers.Conv1D(128, 5, activation="relu"), layers.Conv1D(128, 5, activation="relu"),
        layers.GlobalMaxPooling1D(), layers.Dense(2),
    ),
}  # fmt: skip


def model_file(out: Path, name: str) -> Path:
    """The GraphDef of a model, its weights as constants, beside the names that are fed."""
    from tensorflow.python.framework import convert_to_constants

    file = out / f"{name.replace(' ', '-')}.pb"
    if not file.exists():
        keras.utils.set_random_seed(7)
        model = MODELS[name]()
        specs = [
            tf.TensorSpec(each.shape, each.dtype, name=f"fed_{number}")
            for number, each in enumerate(model.inputs)
        ]
        function = tf.function(lambda *x: model(list(x) if len(x) > 1 else x[0], training=False))
        frozen = convert_to_constants.convert_variables_to_constants_v2(
            function.get_concrete_function(*specs)
        )
        graph_def = frozen.graph.as_graph_def()
        graph_def.node.add(op="Identity", name="y", input=[frozen.outputs[0].op.name])
        graph_def.node[-1].attr["T"].type = frozen.outputs[0].dtype.as_datatype_enum
        file.write_bytes(graph_def.SerializeToString())
    return file


def calibrated(out: Path, names: list[str]) -> Path:
    """The cluster of two logical CPUs, fitted to the measured ops of all models."""
    file = out / "cluster.toml"
    if file.exists():
        return file
    for name in names:
        for batch in BATCHES:
            costs = out / f"{name.replace(' ', '-')}-{batch}.costs.json"
            if not costs.exists():
                placer.profile(model_file(out, name), batch_size=batch, threads=1, steps=5).save(
                    costs
                )
    found = calibrate([MeasuredCosts.load(each) for each in sorted(out.glob("*.costs.json"))])
    latency = strategies.message_seconds()
    devices = tuple(replace(found.device, name=name) for name in ("CPU:0", "CPU:1"))
    cluster = Cluster(devices=devices, default_link=Link(bandwidth=1e12, latency=latency))
    file.write_text(cluster_toml(cluster))
    print(f"step error {found.step_error:.1%}; {latency:.3g} s a message", file=sys.stderr)
    return file


def fed(graph_def: Any, batch: int) -> dict[str, Any]:
    """Values for the placeholders of a graph."""
    random, values = np.random.default_rng(7), {}
    for node in graph_def.node:
        if node.op == "Placeholder":
            shape = [
                size.size if size.size >= 0 else batch for size in node.attr["shape"].shape.dim
            ]
            dtype = tf.dtypes.as_dtype(node.attr["dtype"].type)
            values[f"{node.name}:0"] = (
                random.integers(0, 1000, shape) if dtype.is_integer else random.random(shape)
            ).astype(dtype.as_numpy_dtype)
    return values


def row(out: Path, name: str, batch: int, cluster: Path) -> dict[str, Any]:
    """What was chosen, its predicted and measured step, and that of the plain program."""
    kept = out / f"{name.replace(' ', '-')}-{batch}.row.json"
    if kept.exists():
        return json.loads(kept.read_text())
    file = model_file(out, name)
    found = placer.auto(file, cluster, batch_size=batch, time_limit=5.0)
    plain = graph_pb2.GraphDef.FromString(file.read_bytes())
    values = fed(plain, batch)
    result: dict[str, Any] = {"chosen": found.chosen, "load": os.getloadavg()[0]}
    if found.chosen != "as-it-is":
        placed = out / f"{name.replace(' ', '-')}-{batch}.placed.pb"
        placer.apply(file, found.plan, placed, force=True)
        programs = plain, graph_pb2.GraphDef.FromString(placed.read_bytes())
        calls = []
        for program in programs:
            call = strategies.session(program).make_callable("y:0", list(values))
            calls.append(lambda c=call: c(*values.values()))
        outputs = [call() for call in calls]
        result["off"] = float(np.max(np.abs(outputs[0] - outputs[1])))
        result["seconds"] = medians(calls)
    kept.write_text(json.dumps(result))
    return result


def medians(calls: list[Callable[[], Any]]) -> list[float]:
    """The median of five turns of each; a turn repeats a short step for 50 ms."""
    times: list[list[float]] = [[] for _ in calls]
    begin = time.perf_counter()
    calls[0]()
    repeats = max(1, int(0.05 / (time.perf_counter() - begin)))
    for _ in range(ROUNDS):
        for call, found in zip(calls, times, strict=True):
            begin = time.perf_counter()
            for _ in range(repeats):
                call()
            found.append((time.perf_counter() - begin) / repeats)
    return [statistics.median(each) for each in times]


def main() -> None:
    """Measures the models that are named, or all, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", default=[])
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    names = arguments.models or list(MODELS)
    cluster = calibrated(arguments.out, names)
    ratios = []
    print(
        "| model | batch | chosen | plain, ms | chosen, ms | times as fast |\n"
        "|---|---|---|---|---|---|"
    )
    for name in names:
        for batch in BATCHES:
            try:
                found = row(arguments.out, name, batch, cluster)
            except PlacerError as error:
                print(f"| {name} | {batch} | {error} | | | |", flush=True)
                continue
            told = ["", "", "1 (the same program)"]
            ratio = 1.0
            if "seconds" in found:
                plain, chosen = found["seconds"]
                ratio = plain / chosen
                told = [f"{1e3 * plain:.2f}", f"{1e3 * chosen:.2f}", f"{ratio:.2f}"]
            ratios.append(ratio)
            print(f"| {name} | {batch} | {found['chosen']} | {' | '.join(told)} |", flush=True)
    slow = sum(ratio < 1 / SLOWER for ratio in ratios)
    fast = sum(ratio >= FASTER for ratio in ratios)
    print(
        f"\nOf {len(ratios)}: {slow} more than 5% slower, {fast} at least {FASTER} times as fast."
    )


if __name__ == "__main__":
    main()
