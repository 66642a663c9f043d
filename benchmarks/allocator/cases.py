"""The steps whose memory TensorFlow's own allocator is asked for, one batch size each.

    python benchmarks/allocator/cases.py FOLDER [NAME ...]

writes their graphs as ``benchmarks/graphs.py`` does.  A case is held back from tuning if the sha256
of its name (without the batch size) is odd.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from graphs import (
    GRAPHS,
    BenchmarkGraph,
    application,
    dilated,
    image,
    mixer,
    recommender,
    recurrent,
    unet,
    vision_transformer,
    write_graph,
)

_SEQUENCE = (((40, 64), "float32"),)
_RECOMMENDED = (((13,), "float32"), ((8,), "int32"))

_OWN: tuple[BenchmarkGraph, ...] = (
    BenchmarkGraph(
        name="densenet121_momentum", kind="convolutional training",
        build=application("DenseNet121", 64), inputs=image(64), batches=(8, 8),
        optimizer="Momentum",
    ),
    BenchmarkGraph(
        name="vgg16_sgd", kind="convolutional training", build=application("VGG16", 64),
        inputs=image(64), batches=(4, 4), optimizer="SGD",
    ),
    BenchmarkGraph(
        name="mobilenet_v3_small_adam", kind="convolutional training",
        build=application("MobileNetV3Small", 96), inputs=image(96), batches=(24, 24),
        optimizer="Adam",
    ),
    BenchmarkGraph(
        name="dilated_convolutions_adam", kind="convolutional training", build=dilated,
        inputs=(((512, 32), "float32"),), batches=(16, 16), optimizer="Adam",
    ),
    BenchmarkGraph(
        name="vision_transformer_adam", kind="transformer training", build=vision_transformer,
        inputs=image(64), batches=(8, 8), optimizer="Adam",
    ),
    BenchmarkGraph(
        name="mixer_momentum", kind="transformer training", build=mixer, inputs=image(64),
        batches=(32, 32), optimizer="Momentum",
    ),
    BenchmarkGraph(
        name="lstm_momentum", kind="recurrent training", build=recurrent("LSTM", 192),
        inputs=_SEQUENCE, batches=(64, 64), optimizer="Momentum",
    ),
    BenchmarkGraph(
        name="recommender_adam", kind="recommender training", build=recommender(20_000, 64),
        inputs=_RECOMMENDED, batches=(1024, 1024), optimizer="Adam", labels=((1,), "float32"),
    ),
    BenchmarkGraph(
        name="unet", kind="convolutional inference", build=unet, inputs=image(64),
        batches=(64, 64),
    ),
    BenchmarkGraph(
        name="recommender_small", kind="recommender inference", build=recommender(30_000, 48),
        inputs=_RECOMMENDED, batches=(2048, 2048),
    ),
)  # fmt: skip

_BATCHES = {
    # training
    "small_resnet_adam": 64,
    "mobilenet_v2_sgd": 24,
    "resnet50_momentum": 8,
    "unet_adam": 16,
    "densenet121_momentum": 8,
    "vgg16_sgd": 4,
    "mobilenet_v3_small_adam": 24,
    "dilated_convolutions_adam": 16,
    "transformer_adam": 32,
    "decoder_sgd": 16,
    "vision_transformer_adam": 8,
    "mixer_momentum": 32,
    "bidirectional_lstm_adam": 96,
    "gru_momentum": 96,
    "lstm_momentum": 64,
    "recommender_adagrad": 1024,
    "recommender_adam": 1024,
    "perceptron_adam": 256,
    # inference
    "resnet50": 16,
    "mobilenet_v2": 32,
    "vgg16": 4,
    "densenet121": 32,
    "dilated_convolutions": 64,
    "unet": 64,
    "transformer_encoder": 64,
    "transformer_decoder": 16,
    "vision_transformer": 64,
    "lstm": 384,
    "gru": 384,
    "recommender": 2048,
    "recommender_small": 2048,
}

CASES: tuple[BenchmarkGraph, ...] = tuple(
    replace(graph, batches=(_BATCHES[graph.name],) * 2)
    for graph in (*GRAPHS, *_OWN)
    if graph.name in _BATCHES
)


def chosen(names: Sequence[str]) -> list[BenchmarkGraph]:
    """The cases called ``names``; all if none is."""
    known = {case.name: case for case in CASES}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"there is no case {unknown[0]!r}; known are {', '.join(known)}")
    return [known[name] for name in names or known]


def path_of(case: BenchmarkGraph, folder: Path) -> Path:
    """Where its graph is written."""
    return folder / f"{case.name}-b{case.batches[0]}.pb"


def build_apart(folder: Path, names: Sequence[str]) -> list[Path]:
    """The graphs of the cases called ``names``, built by a process of its own."""
    subprocess.run([sys.executable, __file__, folder, *names], check=True, stdout=sys.stderr)
    return [path_of(case, folder) for case in chosen(names)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    for case in chosen(arguments.names):
        print(write_graph(case, case.batches[0], arguments.folder), flush=True)


if __name__ == "__main__":
    main()
