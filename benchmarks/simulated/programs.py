"""The forty programs of this benchmark, as they were chosen before anything was predicted for them.

A program's name is that of its public constructor, or of the function of this repository that
builds it; it is held back from tuning if the sha256 of the name is odd.  Constructors of
``keras_hub`` need ``pip install keras-hub``; programs of a package that is absent are left out.

    python benchmarks/simulated/programs.py

prints the list.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import graphs
from networks import (
    convlstm,
    dcgan,
    recurrent,
    tf1_convolutions,
    tf1_perceptron,
    tf1_recurrent,
    unet3d,
    wide_and_deep,
)

FIT, SAVED, SESSION, FROZEN = "fit", "saved", "session", "frozen"
"""How a program runs: Keras's ``fit`` under ``bind``; a SavedModel, placed, by a loader; the ops of
a TensorFlow 1 graph created under ``plan.device_function``; a frozen GraphDef in a session."""

Shape = tuple[tuple[int, ...], str]


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program: what ``build`` makes of it, and a batch (shapes without the batch size).

    ``build`` gives a Keras model; of a ``session``, called in a graph, (fetches, feeds by
    placeholder).  ``loader`` of a SavedModel is ``placed`` (``placer.load_placed``), ``policy``
    (``tf.saved_model.load`` with the variables' devices) or ``v1``.
    """

    name: str
    runs: str
    build: Callable[[], Any]
    inputs: tuple[Shape, ...] = ()
    labels: Shape = ((), "int32")
    batch: int = 8
    devices: int = 1
    capability: str = "7.5"
    optimizer: str = "Adam"
    loader: str = "placed"

    @property
    def held_back(self) -> bool:
        return graphs.is_held_back(self.name)

    @property
    def card(self) -> str:
        """The preset that has the capability."""
        return {"7.5": "T4", "8.0": "A100-40GB"}[self.capability]

    @property
    def needs_package(self) -> str:
        return "keras_hub" if self.name.startswith("keras_hub.") else "keras"


def application(name: str, size: int, runs: str, **options: Any) -> Program:
    """One of ``keras.applications``, without weights, for images of this size."""
    return Program(
        name=f"keras.applications.{name}",
        runs=runs,
        build=graphs.application(name, size),
        inputs=graphs.image(size),
        **options,
    )


def backbone(name: str, runs: str, settings: dict[str, Any], ids: int, **options: Any) -> Program:
    """A backbone of Keras Hub, and one layer on its last output (its first row to train)."""

    def build() -> Any:
        import keras
        import keras_hub

        found = getattr(keras_hub.models, name)(**settings)
        given = {"token_ids": keras.Input((ids,), dtype="int32", name="token_ids")}
        for key in found.input:
            if key != "token_ids":
                given[key] = keras.ops.ones_like(given["token_ids"])
        outputs = found(given)
        x = outputs["sequence_output"] if isinstance(outputs, dict) else outputs
        return keras.Model(given["token_ids"], keras.layers.Dense(10)(x[:, 0]))

    return Program(
        name=f"keras_hub.models.{name}",
        runs=runs,
        build=build,
        inputs=(((ids,), "int32"),),
        **options,
    )


_LAYERS = {"num_layers": 4, "num_heads": 4, "hidden_dim": 256, "intermediate_dim": 1024}
_RECOMMENDED = (((13,), "float32"), ((8,), "int32"))
_SEQUENCE = (((40, 64), "float32"),)

PROGRAMS: tuple[Program, ...] = (
    # Keras fit of public architectures
    application("ResNet50", 160, FIT, batch=8, optimizer="Momentum"),
    application("MobileNetV2", 128, FIT, batch=16, devices=2),
    application("DenseNet121", 96, FIT, devices=2, capability="8.0", optimizer="SGD"),
    application("EfficientNetB0", 160, FIT, capability="8.0"),
    application("VGG16", 128, FIT, batch=16, devices=2, optimizer="SGD"),
    application("ResNet50V2", 96, FIT, batch=16, devices=4, capability="8.0", optimizer="Momentum"),
    application("MobileNetV3Small", 128, FIT, batch=16),
    application("Xception", 128, FIT, devices=2, capability="8.0", optimizer="SGD"),
    # SavedModels, by each loader
    application("ResNet101", 160, SAVED, devices=2),
    application("InceptionV3", 160, SAVED, devices=2, capability="8.0", loader="policy"),
    application("VGG19", 128, SAVED, devices=2, loader="v1"),
    application("MobileNet", 160, SAVED, batch=16),
    application("DenseNet169", 128, SAVED, batch=16, devices=4, loader="policy"),
    application("EfficientNetV2B0", 160, SAVED, devices=2, capability="8.0", loader="v1"),
    application("NASNetMobile", 128, SAVED, devices=2),
    application("ConvNeXtTiny", 96, SAVED, devices=2, capability="8.0"),
    application("MobileNetV3Large", 160, SAVED, batch=16, devices=4, loader="v1"),
    application("ResNet101V2", 128, SAVED, devices=1, capability="8.0", loader="policy"),
    # Keras Hub, random weights
    backbone(
        "BertBackbone", FIT, {**_LAYERS, "vocabulary_size": 8000, "max_sequence_length": 128},
        128, devices=2,
    ),
    backbone(
        "GPT2Backbone", SAVED, {**_LAYERS, "vocabulary_size": 8000, "max_sequence_length": 128},
        128, batch=16, devices=2, loader="policy",
    ),
    backbone(
        "DistilBertBackbone", FIT,
        {**_LAYERS, "vocabulary_size": 8000, "max_sequence_length": 64}, 64, capability="8.0",
    ),
    backbone(
        "RobertaBackbone", SAVED,
        {**_LAYERS, "vocabulary_size": 8000, "max_sequence_length": 128}, 128, loader="v1",
    ),
    # recommenders
    Program(
        name="benchmarks.graphs.recommender", runs=FIT, build=graphs.recommender(20_000, 64),
        inputs=_RECOMMENDED, labels=((1,), "float32"), batch=1024, devices=2, optimizer="Adagrad",
    ),
    Program(
        name="benchmarks.networks.wide_and_deep", runs=SAVED, build=wide_and_deep,
        inputs=_RECOMMENDED, batch=2048, devices=2,
    ),
    # recurrent
    Program(
        name="keras.layers.LSTM", runs=FIT, build=recurrent("LSTM", 256), inputs=_SEQUENCE,
        batch=64,
    ),
    Program(
        name="keras.layers.GRU", runs=SAVED, build=recurrent("GRU", 256), inputs=_SEQUENCE,
        batch=256, devices=2,
    ),
    Program(
        name="keras.layers.Bidirectional", runs=FIT,
        build=recurrent("LSTM", 128, both_ways=True), inputs=_SEQUENCE, batch=64, devices=2,
        optimizer="Momentum",
    ),
    Program(
        name="keras.layers.ConvLSTM2D", runs=SAVED, build=convlstm,
        inputs=(((8, 32, 32, 3), "float32"),),
    ),
    # generative, and dense predictions
    Program(
        name="benchmarks.networks.dcgan", runs=FIT, build=dcgan,
        inputs=graphs.image(64), labels=((1,), "float32"), batch=32, devices=2,
    ),
    Program(
        name="benchmarks.networks.unet3d", runs=FIT, build=unet3d,
        inputs=(((32, 32, 32, 1), "float32"),), labels=((32, 32, 32), "int32"), batch=2,
    ),
    Program(
        name="benchmarks.graphs.unet", runs=FIT, build=graphs.unet, inputs=graphs.image(64),
        labels=((64, 64, 1), "float32"), batch=32, devices=2, capability="8.0",
    ),
    # transformers, mixers, perceptrons
    Program(
        name="benchmarks.graphs.transformer", runs=FIT,
        build=graphs.transformer(64, 192, 3, 3, vocabulary=4000, causal=True),
        inputs=(((64,), "int32"),), labels=((64,), "int32"), batch=16, devices=4, optimizer="SGD",
    ),
    Program(
        name="benchmarks.graphs.vision_transformer", runs=FIT, build=graphs.vision_transformer,
        inputs=graphs.image(64), batch=32, devices=2,
    ),
    Program(
        name="benchmarks.graphs.mixer", runs=SAVED, build=graphs.mixer, inputs=graphs.image(64),
        batch=64, capability="8.0",
    ),
    Program(
        name="benchmarks.graphs.perceptron", runs=FIT, build=graphs.perceptron(1024, 8),
        inputs=(((256,), "float32"),), batch=1024, devices=4,
    ),
    # TensorFlow 1: graphs in sessions, trained and frozen
    Program(name="benchmarks.networks.tf1_convolutions", runs=SESSION, build=tf1_convolutions,
            devices=2),
    Program(name="benchmarks.networks.tf1_perceptron", runs=SESSION, build=tf1_perceptron,
            devices=4),
    Program(name="benchmarks.networks.tf1_recurrent", runs=SESSION, build=tf1_recurrent),
    application("DenseNet201", 128, FROZEN, batch=16, devices=2, capability="8.0"),
    application("EfficientNetB2", 160, FROZEN),
)  # fmt: skip


def chosen(names: list[str]) -> list[Program]:
    """The programs whose names end so; all if none is given."""
    found = [p for p in PROGRAMS if not names or any(p.name.endswith(name) for name in names)]
    if not found:
        raise SystemExit(f"no program is called {', '.join(names)}")
    return found


if __name__ == "__main__":
    for program in PROGRAMS:
        runs = f"{program.runs} {program.loader}" if program.runs == SAVED else program.runs
        kept = "held back" if program.held_back else ""
        print(f"{program.name:44s} {runs:13s} {program.devices} x {program.capability} {kept}")
