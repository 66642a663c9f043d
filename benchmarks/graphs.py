"""The graphs that the accuracy benchmarks run: public architectures, at two batch sizes each.

    python benchmarks/graphs.py FOLDER [NAME ...]

writes ``FOLDER/NAME-bBATCH.pb``, a flat GraphDef that runs in a session once its variables are
assigned, and ``.json`` beside it with what to fetch (``outputs``) and what ``kind`` it is.
Weights are not stored.  A graph is held back from tuning if the sha256 of its name is odd.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class BenchmarkGraph:
    """An architecture.

    ``build`` gives a Keras model; ``inputs`` and ``labels`` are shapes without the batch, and
    dtypes; ``optimizer`` makes it a training step (``""``: inference).
    """

    name: str
    kind: str
    build: Callable[[], Any]
    inputs: tuple[tuple[tuple[int, ...], str], ...]
    batches: tuple[int, int]
    optimizer: str = ""
    labels: tuple[tuple[int, ...], str] = ((), "int32")

    @property
    def held_back(self) -> bool:
        """Is it left out of all tuning?"""
        return is_held_back(self.name)


def is_held_back(name: str) -> bool:
    """Whether the sha256 of the graph's name, without the batch size, is odd."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % 2 == 1


def image(size: int) -> tuple[tuple[tuple[int, ...], str], ...]:
    return (((size, size, 3), "float32"),)


def application(name: str, size: int, **options: Any) -> Callable[[], Any]:
    """One of ``keras.applications`` without weights."""

    def build() -> Any:
        import keras

        function = getattr(keras.applications, name)
        return function(weights=None, input_shape=(size, size, 3), classes=100, **options)

    return build


def small_cnn() -> Any:
    """A residual network for images of 32 x 32 (He et al. 2016, section 4.2, n = 2)."""
    from keras import Input, Model, layers

    x = inputs = Input((32, 32, 3))
    for stage, channels in enumerate((32, 64, 128)):
        for block in range(2):
            stride = 2 if stage and not block else 1
            skip = x
            if skip.shape[-1] != channels or stride > 1:
                skip = layers.Conv2D(channels, 1, stride)(x)
            x = layers.ReLU()(layers.BatchNormalization()(x))
            x = layers.Conv2D(channels, 3, stride, "same", use_bias=False)(x)
            x = layers.ReLU()(layers.BatchNormalization()(x))
            x = layers.Add()([layers.Conv2D(channels, 3, 1, "same", use_bias=False)(x), skip])
    return Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))


def unet() -> Any:
    """An encoder and decoder with skips (Ronneberger et al. 2015), three levels deep."""
    from keras import Input, Model, layers

    def twice(x: Any, channels: int) -> Any:
        for _ in range(2):
            x = layers.Conv2D(channels, 3, padding="same", activation="relu")(x)
        return x

    x = inputs = Input((64, 64, 3))
    skips = []
    for channels in (16, 32, 64):
        x = twice(x, channels)
        skips.append(x)
        x = layers.MaxPooling2D()(x)
    x = twice(x, 128)
    for channels, skip in zip((64, 32, 16), reversed(skips), strict=True):
        x = layers.Conv2DTranspose(channels, 2, 2)(x)
        x = twice(layers.Concatenate()([x, skip]), channels)
    return Model(inputs, layers.Conv2D(1, 1)(x))


def perceptron(width: int, depth: int, activation: str = "relu") -> Callable[[], Any]:
    def build() -> Any:
        import keras

        hidden = [keras.layers.Dense(width, activation=activation) for _ in range(depth)]
        return keras.Sequential([keras.Input((256,)), *hidden, keras.layers.Dense(10)])

    return build


def transformer(
    length: int, width: int, heads: int, depth: int, *, vocabulary: int, causal: bool = False
) -> Callable[[], Any]:
    """A pre-norm transformer over token ids; one output row per token if ``causal``."""

    def build() -> Any:
        from keras import Input, Model, layers

        inputs = Input((length,), dtype="int32")
        x = layers.Embedding(vocabulary, width)(inputs)
        for _ in range(depth):
            y = layers.LayerNormalization()(x)
            y = layers.MultiHeadAttention(heads, width // heads)(y, y, use_causal_mask=causal)
            x = layers.Add()([x, y])
            y = layers.Dense(4 * width, activation="gelu")(layers.LayerNormalization()(x))
            x = layers.Add()([x, layers.Dense(width)(y)])
        x = layers.LayerNormalization()(x)
        if not causal:
            x = layers.GlobalAveragePooling1D()(x)
        return Model(inputs, layers.Dense(vocabulary if causal else 10)(x))

    return build


def vision_transformer() -> Any:
    """Patches of 8 x 8, four layers of width 192 (Dosovitskiy et al. 2021)."""
    from keras import Input, Model, layers

    inputs = Input((64, 64, 3))
    x = layers.Reshape((64, 192))(layers.Conv2D(192, 8, 8)(inputs))
    for _ in range(4):
        y = layers.LayerNormalization()(x)
        x = layers.Add()([x, layers.MultiHeadAttention(3, 64)(y, y)])
        y = layers.Dense(768, activation="gelu")(layers.LayerNormalization()(x))
        x = layers.Add()([x, layers.Dense(192)(y)])
    return Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling1D()(x)))


def mixer() -> Any:
    """MLP-Mixer (Tolstikhin et al. 2021): products over patches and over channels."""
    from keras import Input, Model, layers

    inputs = Input((64, 64, 3))
    x = layers.Reshape((64, 128))(layers.Conv2D(128, 8, 8)(inputs))
    for _ in range(4):
        y = layers.Permute((2, 1))(layers.LayerNormalization()(x))
        y = layers.Dense(64)(layers.Dense(128, activation="gelu")(y))
        x = layers.Add()([x, layers.Permute((2, 1))(y)])
        y = layers.Dense(512, activation="gelu")(layers.LayerNormalization()(x))
        x = layers.Add()([x, layers.Dense(128)(y)])
    return Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling1D()(x)))


def recurrent(cell: str, units: int, *, both_ways: bool = False) -> Callable[[], Any]:
    """A recurrent layer in a While loop over 40 steps of 64 features."""

    def build() -> Any:
        import keras
        from keras import layers

        layer = getattr(layers, cell)(units, return_sequences=True)
        if both_ways:
            layer = layers.Bidirectional(layer)
        last = getattr(layers, cell)(units)
        return keras.Sequential([keras.Input((40, 64)), layer, last, layers.Dense(10)])

    return build


def dilated() -> Any:
    """Causal dilated convolutions over a sequence (van den Oord et al. 2016)."""
    from keras import Input, Model, layers

    inputs = Input((512, 32))
    x = layers.Conv1D(64, 1)(inputs)
    for dilation in (1, 2, 4, 8, 16):
        y = layers.Conv1D(64, 2, padding="causal", dilation_rate=dilation, activation="tanh")(x)
        z = layers.Conv1D(64, 2, padding="causal", dilation_rate=dilation, activation="sigmoid")(x)
        x = layers.Add()([x, layers.Conv1D(64, 1)(layers.Multiply()([y, z]))])
    return Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling1D()(x)))


def recommender(rows: int, width: int) -> Callable[[], Any]:
    """Dense features, eight embedding tables and their interactions (Naumov et al. 2019)."""

    def build() -> Any:
        from keras import Input, Model, layers

        dense, ids = Input((13,)), Input((8,), dtype="int32")
        bottom = layers.Dense(width, activation="relu")(layers.Dense(256, activation="relu")(dense))
        looked_up = [layers.Embedding(rows, width)(ids[:, column]) for column in range(8)]
        pairs = [
            layers.Dot(axes=1)([a, b])
            for number, a in enumerate([bottom, *looked_up])
            for b in looked_up[number:]
        ]
        x = layers.Concatenate()([bottom, *pairs])
        for size in (512, 256):
            x = layers.Dense(size, activation="relu")(x)
        return Model([dense, ids], layers.Dense(1)(x))

    return build


_RECOMMENDED = (((13,), "float32"), ((8,), "int32"))
_SEQUENCE = (((40, 64), "float32"),)
_IMAGES = image(64)

GRAPHS: tuple[BenchmarkGraph, ...] = (
    *(
        BenchmarkGraph(
            name=name,
            kind="convolutional inference",
            build=application(function, size, **options),
            inputs=image(size),
            batches=batches,
        )
        for name, function, size, batches, options in (
            ("resnet50", "ResNet50", 128, (1, 8), {}),
            ("mobilenet_v2", "MobileNetV2", 128, (2, 16), {}),
            ("mobilenet_v3_small", "MobileNetV3Small", 160, (4, 16), {}),
            ("densenet121", "DenseNet121", 96, (2, 8), {}),
            ("efficientnet_b0", "EfficientNetB0", 128, (2, 8), {}),
            ("inception_v3", "InceptionV3", 139, (1, 8), {}),
            ("xception", "Xception", 128, (1, 4), {}),
            ("nasnet_mobile", "NASNetMobile", 128, (1, 4), {}),
            ("vgg16", "VGG16", 96, (1, 4), {}),
            ("convnext_tiny", "ConvNeXtTiny", 96, (1, 4), {}),
        )
    ),
    BenchmarkGraph(
        name="small_resnet_adam", kind="convolutional training", build=small_cnn,
        inputs=image(32), batches=(16, 64), optimizer="Adam",
    ),
    BenchmarkGraph(
        name="mobilenet_v2_sgd", kind="convolutional training",
        build=application("MobileNetV2", 64, alpha=0.5), inputs=image(64), batches=(8, 24),
        optimizer="SGD",
    ),
    BenchmarkGraph(
        name="resnet50_momentum", kind="convolutional training",
        build=application("ResNet50", 64), inputs=image(64), batches=(2, 8),
        optimizer="Momentum",
    ),
    BenchmarkGraph(
        name="unet_adam", kind="convolutional training", build=unet, inputs=image(64),
        batches=(4, 16), optimizer="Adam", labels=((64, 64, 1), "float32"),
    ),
    BenchmarkGraph(
        name="transformer_encoder", kind="transformer inference",
        build=transformer(128, 256, 4, 4, vocabulary=8000), inputs=(((128,), "int32"),),
        batches=(2, 16),
    ),
    BenchmarkGraph(
        name="transformer_decoder", kind="transformer inference",
        build=transformer(128, 384, 6, 6, vocabulary=10000, causal=True),
        inputs=(((128,), "int32"),), batches=(1, 4),
    ),
    BenchmarkGraph(
        name="transformer_adam", kind="transformer training",
        build=transformer(64, 128, 4, 2, vocabulary=4000), inputs=(((64,), "int32"),),
        batches=(8, 32), optimizer="Adam",
    ),
    BenchmarkGraph(
        name="decoder_sgd", kind="transformer training",
        build=transformer(64, 192, 3, 3, vocabulary=4000, causal=True),
        inputs=(((64,), "int32"),), batches=(4, 16), optimizer="SGD", labels=((64,), "int32"),
    ),
    BenchmarkGraph(
        name="vision_transformer", kind="transformer inference", build=vision_transformer,
        inputs=_IMAGES, batches=(4, 32),
    ),
    BenchmarkGraph(
        name="mlp_mixer", kind="transformer inference", build=mixer, inputs=_IMAGES,
        batches=(8, 32),
    ),
    BenchmarkGraph(
        name="lstm", kind="recurrent inference", build=recurrent("LSTM", 256), inputs=_SEQUENCE,
        batches=(16, 64),
    ),
    BenchmarkGraph(
        name="bidirectional_lstm_adam", kind="recurrent training",
        build=recurrent("LSTM", 128, both_ways=True), inputs=_SEQUENCE, batches=(16, 64),
        optimizer="Adam",
    ),
    BenchmarkGraph(
        name="gru", kind="recurrent inference", build=recurrent("GRU", 256), inputs=_SEQUENCE,
        batches=(8, 64),
    ),
    BenchmarkGraph(
        name="gru_momentum", kind="recurrent training", build=recurrent("GRU", 192),
        inputs=_SEQUENCE, batches=(16, 64), optimizer="Momentum",
    ),
    BenchmarkGraph(
        name="dilated_convolutions", kind="convolutional inference", build=dilated,
        inputs=(((512, 32), "float32"),), batches=(4, 16),
    ),
    BenchmarkGraph(
        name="recommender", kind="recommender inference", build=recommender(50_000, 64),
        inputs=_RECOMMENDED, batches=(256, 2048),
    ),
    BenchmarkGraph(
        name="recommender_adagrad", kind="recommender training", build=recommender(20_000, 32),
        inputs=_RECOMMENDED, batches=(256, 1024), optimizer="Adagrad",
        labels=((1,), "float32"),
    ),
    BenchmarkGraph(
        name="perceptron", kind="dense inference", build=perceptron(1024, 4),
        inputs=(((256,), "float32"),), batches=(32, 256),
    ),
    BenchmarkGraph(
        name="perceptron_adam", kind="dense training", build=perceptron(768, 4, "tanh"),
        inputs=(((256,), "float32"),), batches=(32, 256), optimizer="Adam",
    ),
)  # fmt: skip


NAMED: tuple[BenchmarkGraph, ...] = (
    BenchmarkGraph(
        name="densenet121_sgd", kind="convolutional training",
        build=application("DenseNet121", 64), inputs=image(64), batches=(4, 16), optimizer="SGD",
    ),
    BenchmarkGraph(
        name="densenet121_momentum", kind="convolutional training",
        build=application("DenseNet121", 64), inputs=image(64), batches=(2, 8),
        optimizer="Momentum",
    ),
    BenchmarkGraph(
        name="vision_transformer_adam", kind="transformer training", build=vision_transformer,
        inputs=_IMAGES, batches=(2, 8), optimizer="Adam",
    ),
)  # fmt: skip
"""Built only where they are asked for by name."""


def build_apart(folder: Path, names: Sequence[str]) -> list[Path]:
    """The files of the graphs called ``names`` (of all, if none is), built by a process of its
    own: this one does without TensorFlow."""
    subprocess.run([sys.executable, __file__, folder, *names], check=True)
    return [
        path
        for path in sorted(folder.glob("*.pb"))
        if not names or path.stem.rpartition("-b")[0] in names
    ]


def write_graph(graph: BenchmarkGraph, batch: int, folder: Path) -> Path:
    """The GraphDef file of ``graph`` at ``batch`` in ``folder``, written if it is not there."""
    path = folder / f"{graph.name}-b{batch}.pb"
    if path.exists() and path.with_suffix(".json").exists():
        return path
    import keras

    keras.backend.clear_session()
    keras.utils.set_random_seed(0)
    model = graph.build()  # kept here: functions hold their variables weakly
    program, outputs = flat_program(_step(graph, model, batch))
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(program.SerializeToString())
    facts = {"kind": graph.kind, "outputs": outputs, "held_back": graph.held_back}
    path.with_suffix(".json").write_text(json.dumps(facts, indent=1))
    return path


def _step(graph: BenchmarkGraph, model: Any, batch: int) -> Any:
    """The ConcreteFunction of one step; its optimizer's variables live as long as the model."""
    import tensorflow as tf

    specs = [tf.TensorSpec((batch, *shape), dtype) for shape, dtype in graph.inputs]

    def call(values: Any, *, training: bool) -> Any:
        return model(values if len(values) > 1 else values[0], training=training)

    if not graph.optimizer:
        return tf.function(lambda *x: call(x, training=False)).get_concrete_function(*specs)
    optimizer = model.benchmark_optimizer = optimizer_of(graph.optimizer)
    optimizer.build(model.trainable_variables)
    shape, dtype = graph.labels

    def train(labels: Any, *values: Any) -> Any:
        with tf.GradientTape() as tape:
            logits = call(values, training=True)
            loss = tf.reduce_mean(_loss(labels, logits))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    labels = tf.TensorSpec((batch, *shape), dtype)
    return tf.function(train).get_concrete_function(labels, *specs)


def optimizer_of(name: str) -> Any:
    import keras

    if name == "Momentum":
        return keras.optimizers.SGD(0.01, momentum=0.9)
    return getattr(keras.optimizers, name)(0.01)


def _loss(labels: Any, logits: Any) -> Any:
    import tensorflow as tf

    if labels.dtype.is_integer:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    return tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)


def flat_program(function: Any) -> tuple[Any, list[str]]:
    """The flat GraphDef with handles and constants for what is captured, and what to fetch."""
    import tensorflow as tf

    from placer.extraction.reading.loading import load_program

    program = load_program(function)
    handles = {id(variable.handle): variable for variable in function.graph.variables}
    for number, node in enumerate(program.graph_def.node):
        if node.name not in program.captures:
            continue
        captured = program.captures[node.name]
        variable = handles.get(id(captured))
        with tf.Graph().as_default():
            if variable is None:
                op = tf.constant(captured.numpy(), name="captured").op
            else:
                op = tf.raw_ops.VarHandleOp(
                    dtype=variable.dtype, shape=variable.shape, shared_name=f"v{number}"
                ).op
            replacement = op.node_def
        node.op = replacement.op
        node.attr.clear()
        for key, value in replacement.attr.items():
            node.attr[key].CopyFrom(value)
    outputs = [tensor for _, tensor in program.outputs]
    return program.graph_def, [*outputs, *program.targets]


def chosen(names: list[str]) -> Iterator[tuple[BenchmarkGraph, int]]:
    """Every graph (or those named) with each of its batch sizes."""
    known: Mapping[str, BenchmarkGraph] = {graph.name: graph for graph in (*GRAPHS, *NAMED)}
    for name in names or [graph.name for graph in GRAPHS]:
        if name not in known:
            raise SystemExit(f"there is no graph {name!r}; known are {', '.join(known)}")
        for batch in known[name].batches:
            yield known[name], batch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    for graph, batch in chosen(arguments.names):
        print(write_graph(graph, batch, arguments.folder), flush=True)


if __name__ == "__main__":
    main()
