"""Large training steps, structure only: no weight is ever held.

    python benchmarks/large/graphs.py FOLDER [NAME ...]

writes ``FOLDER/NAME.pb``, a flat GraphDef as TensorFlow builds it, and ``.json`` beside it with
what to fetch (``outputs``).  Batches are in the shapes.  Those made by ``tf.gradients`` have its
colocation hints (``_class``), those made by ``GradientTape`` have none.

| name | gradients by | |
|---|---|---|
| ``resnet152`` | ``tf.gradients`` | He et al. 2016, images of 224 x 224, Adam, clipped |
| ``t5_11b`` | ``GradientTape`` | Raffel et al. 2020, table "11B": 24 + 24 layers, Adam |
| ``lstm_unrolled`` | ``tf.gradients`` | eight layers (Wu et al. 2016), 60 steps, momentum |
| ``switch_moe`` | ``GradientTape`` | Fedus et al. 2022: 24 layers, 16 experts in half, Adam |
| ``recommender`` | ``tf.gradients`` | Naumov et al. 2019: 64 tables of 100 GB in all, Adagrad |
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

TAPE, GRADIENTS = "tape", "gradients"


class Program:
    """The graph of a step under construction; ``weight`` and ``table`` make its variables."""

    def __init__(self, gradients_by: str) -> None:
        import tensorflow as tf

        self.tf: Any = tf
        self.tape = tf.GradientTape() if gradients_by == TAPE else None
        self.handles: dict[str, Any] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.trained: list[str] = []
        self.updates: list[Any] = []

    def variable(self, name: str, shape: Sequence[int], *, is_trained: bool = True) -> Any:
        """The handle of a float32 variable, which is not initialised."""
        scope = self.tf.compat.v1.get_default_graph().get_name_scope()
        full = f"{scope}/{name}" if scope else name
        if full not in self.handles:
            handle = self.tf.raw_ops.VarHandleOp(
                dtype="float32", shape=shape, shared_name=full, name=name
            )
            self.handles[full], self.shapes[full] = handle, tuple(shape)
            if is_trained:
                self.trained.append(full)
                if self.tape is not None:
                    self.tape.watch(handle)
        return self.handles[full]

    def weight(self, name: str, *shape: int) -> Any:
        """The value of a weight, read where it is used."""
        handle = self.variable(name, shape)
        return self.tf.raw_ops.ReadVariableOp(resource=handle, dtype="float32")

    def looked_up(self, name: str, shape: Sequence[int], ids: Any) -> Any:
        """Rows of a table; its gradient is sparse."""
        handle = self.variable(name, shape)
        return self.tf.raw_ops.ResourceGather(resource=handle, indices=ids, dtype="float32")

    def dense(self, x: Any, name: str, outputs: int, activation: str = "") -> Any:
        """x W + b over the last axis."""
        tf = self.tf
        with tf.name_scope(name):
            rows = tf.reshape(x, (-1, x.shape[-1]))
            y = tf.matmul(rows, self.weight("kernel", x.shape[-1], outputs))
            y = tf.nn.bias_add(y, self.weight("bias", outputs))
            y = getattr(tf.nn, activation)(y) if activation else y
            return tf.reshape(y, (*x.shape[:-1], outputs))

    def norm(self, x: Any, name: str) -> Any:
        """Layer normalisation over the last axis."""
        tf = self.tf
        with tf.name_scope(name):
            mean, variance = tf.nn.moments(x, [-1], keepdims=True)
            scale = tf.math.rsqrt(variance + 1e-6) * self.weight("gamma", x.shape[-1])
            return (x - mean) * scale + self.weight("beta", x.shape[-1])

    def attention(self, x: Any, memory: Any, heads: int, size: int) -> Any:
        """Multi-head attention of ``x`` over ``memory``, both [batch, length, width]."""
        tf = self.tf
        width = x.shape[-1]

        def projected(source: Any, name: str) -> Any:
            return tf.einsum("blw,whs->bhls", source, self.weight(name, width, heads, size))

        query, key, value = (
            projected(s, n) for s, n in ((x, "query"), (memory, "key"), (memory, "value"))
        )
        logits = tf.matmul(query, key, transpose_b=True) / math.sqrt(size)
        mixed = tf.matmul(tf.nn.softmax(logits), value)
        return tf.einsum("bhls,hsw->blw", mixed, self.weight("output", heads, size, width))

    def batch_norm(self, x: Any, name: str) -> Any:
        """Batch normalisation over the last axis, with the moving averages that inference needs."""
        tf, channels = self.tf, x.shape[-1]
        with tf.name_scope(name):
            scale, offset = self.weight("gamma", channels), self.weight("beta", channels)
            y, *batch = tf.compat.v1.nn.fused_batch_norm(x, scale, offset, is_training=True)
            for kind, new in zip(("mean", "variance"), batch, strict=True):
                moving = self.variable(f"moving_{kind}", (channels,), is_trained=False)
                with tf.name_scope(f"update_{kind}"):
                    old = tf.raw_ops.ReadVariableOp(resource=moving, dtype="float32")
                    update = tf.raw_ops.AssignSubVariableOp(
                        resource=moving, value=(old - new) * 0.01
                    )
                self.updates.append(update)
            return y

    def update(self, loss: Any, apply: Callable[..., Any], most_norm: float | None) -> Any:
        """The op that all updates are control inputs of; gradients are clipped to ``most_norm``."""
        tf = self.tf
        handles = [self.handles[name] for name in self.trained]
        found = (
            tf.gradients(loss, handles) if self.tape is None else self.tape.gradient(loss, handles)
        )
        if most_norm is not None:
            found, _ = tf.clip_by_global_norm(found, most_norm)
        gradients = dict(zip(self.trained, found, strict=True))
        with tf.name_scope("training"):
            updates = [
                apply(self, name, self.handles[name], gradient)
                for name, gradient in gradients.items()
            ]
            return tf.group(*self.updates, *updates, name="step")

    def slot(self, name: str, kind: str) -> Any:
        """Optimizer state, as large as the variable called ``name``."""
        return self.tf.raw_ops.VarHandleOp(
            dtype="float32",
            shape=self.shapes[name],
            shared_name=f"{name}/{kind}",
            name=f"{name}/{kind}",
        )


def adam(program: Program, name: str, handle: Any, gradient: Any) -> Any:
    """Adam, the powers of its betas read from two variables."""
    tf = program.tf
    handles = [program.variable(f"beta{n}_power", (), is_trained=False) for n in (1, 2)]
    powers = [tf.raw_ops.ReadVariableOp(resource=each, dtype="float32") for each in handles]
    return tf.raw_ops.ResourceApplyAdam(
        var=handle, m=program.slot(name, "m"), v=program.slot(name, "v"),
        beta1_power=powers[0], beta2_power=powers[1], lr=1e-3, beta1=0.9, beta2=0.999,
        epsilon=1e-8, grad=tf.convert_to_tensor(gradient), name=f"{name}/adam",
    )  # fmt: skip


def momentum(program: Program, name: str, handle: Any, gradient: Any) -> Any:
    """Stochastic gradient descent with momentum."""
    tf = program.tf
    return tf.raw_ops.ResourceApplyMomentum(
        var=handle, accum=program.slot(name, "momentum"), lr=0.1, momentum=0.9,
        grad=tf.convert_to_tensor(gradient), name=f"{name}/momentum_update",
    )  # fmt: skip


def adagrad(program: Program, name: str, handle: Any, gradient: Any) -> Any:
    """Adagrad; a sparse gradient updates the rows that were looked up."""
    tf = program.tf
    slot = program.slot(name, "accumulator")
    given: dict[str, Any] = {"var": handle, "accum": slot, "lr": 0.01, "epsilon": 1e-7}
    if isinstance(gradient, tf.IndexedSlices):
        return tf.raw_ops.ResourceSparseApplyAdagradV2(
            grad=gradient.values, indices=gradient.indices, name=f"{name}/adagrad", **given
        )
    return tf.raw_ops.ResourceApplyAdagradV2(grad=gradient, name=f"{name}/adagrad", **given)


def cross_entropy(program: Program, labels: Any, logits: Any) -> Any:
    tf = program.tf
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    return tf.reduce_mean(losses, name="loss")


def ids(program: Program, name: str, *shape: int) -> Any:
    """A fed tensor of whole numbers."""
    return program.tf.compat.v1.placeholder("int32", shape, name=name)


def resnet152(program: Program, batch: int = 32) -> Any:
    """Bottleneck blocks of 3, 8, 36 and 3, with batch normalisation and weight decay."""
    tf = program.tf
    images = tf.compat.v1.placeholder("float32", (batch, 224, 224, 3), name="images")
    labels = ids(program, "labels", batch)
    decayed: list[Any] = []

    def convolved(x: Any, name: str, channels: int, size: int, stride: int = 1) -> Any:
        with tf.name_scope(name):
            kernel = program.weight("kernel", size, size, x.shape[-1], channels)
            decayed.append(tf.nn.l2_loss(kernel))
            return program.batch_norm(tf.nn.conv2d(x, kernel, stride, "SAME"), "norm")

    x = tf.nn.relu(convolved(images, "stem", 64, 7, 2))
    x = tf.nn.max_pool2d(x, 3, 2, "SAME")
    for stage, (blocks, channels) in enumerate(
        zip((3, 8, 36, 3), (64, 128, 256, 512), strict=True)
    ):
        for block in range(blocks):
            with tf.name_scope(f"stage_{stage}/block_{block}"):
                stride = 2 if stage and not block else 1
                skip = x if block else convolved(x, "skip", 4 * channels, 1, stride)
                y = tf.nn.relu(convolved(x, "reduce", channels, 1))
                y = tf.nn.relu(convolved(y, "conv", channels, 3, stride))
                x = tf.nn.relu(convolved(y, "expand", 4 * channels, 1) + skip)
    logits = program.dense(tf.reduce_mean(x, [1, 2]), "head", 1000)
    decay = 1e-4 * tf.add_n(decayed)
    return tf.add(cross_entropy(program, labels, logits), decay, name="whole_loss")


def t5_11b(program: Program, batch: int = 2, length: int = 512) -> Any:
    """Encoder and decoder of 24 layers, width 1,024, 128 heads of 128, 65,536 hidden."""
    tf = program.tf
    layers, width, heads, hidden, words = 24, 1024, 128, 65536, 32128
    sources, targets, labels = (
        ids(program, name, batch, length) for name in ("sources", "targets", "labels")
    )

    def embedded(tokens: Any) -> Any:
        return program.looked_up("embedding", (words, width), tokens)

    def layer(x: Any, memory: Any) -> Any:
        with tf.name_scope("self_attention"):
            y = program.norm(x, "norm")
            x += program.attention(y, y, heads, 128)
        if memory is not None:
            with tf.name_scope("cross_attention"):
                x += program.attention(program.norm(x, "norm"), memory, heads, 128)
        with tf.name_scope("feed_forward"):
            y = program.dense(program.norm(x, "norm"), "wide", hidden, "relu")
            return x + program.dense(y, "narrow", width)

    memory = embedded(sources)
    for number in range(layers):
        with tf.name_scope(f"encoder/block_{number}"):
            memory = layer(memory, None)
    with tf.name_scope("encoder"):
        memory = program.norm(memory, "last_norm")
    x = embedded(targets)
    for number in range(layers):
        with tf.name_scope(f"decoder/block_{number}"):
            x = layer(x, memory)
    logits = program.dense(program.norm(x, "decoder/last_norm"), "words", words)
    return cross_entropy(program, labels, logits)


def lstm_unrolled(program: Program, batch: int = 64, steps: int = 60) -> Any:
    """Eight layers of LSTM cells, 1,024 wide, residual from the third on, unrolled."""
    tf = program.tf
    layers, width, words = 8, 1024, 32000
    tokens, labels = ids(program, "tokens", batch, steps), ids(program, "labels", batch, steps)
    inputs = tf.unstack(program.looked_up("embedding", (words, width), tokens), axis=1)
    zero = tf.zeros((batch, width))
    for layer in range(layers):
        with tf.name_scope(f"layer_{layer}"):
            kernel = program.weight("kernel", 2 * width, 4 * width)
            bias = program.weight("bias", 4 * width)
            h, c, outputs = zero, zero, []
            for step, x in enumerate(inputs):
                with tf.name_scope(f"step_{step}"):
                    gates = tf.nn.bias_add(tf.matmul(tf.concat([x, h], 1), kernel), bias)
                    i, j, f, o = tf.split(gates, 4, 1)
                    c = tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(j)
                    h = tf.sigmoid(o) * tf.tanh(c)
                    outputs.append(h + x if layer > 1 else h)
            inputs = outputs
    logits = program.dense(tf.stack(inputs, 1), "words", words)
    return cross_entropy(program, labels, logits)


def switch_moe(program: Program, batch: int = 8, length: int = 256) -> Any:
    """Every other layer sends each token to one of 16 feed-forward experts."""
    tf = program.tf
    layers, width, heads, hidden, words, experts = 24, 1024, 16, 4096, 32000, 16
    tokens, labels = ids(program, "tokens", batch, length), ids(program, "labels", batch, length)
    room = 2 * batch * length // experts

    def feed_forward(x: Any) -> Any:
        return program.dense(program.dense(x, "wide", hidden, "relu"), "narrow", width)

    def routed(x: Any) -> Any:
        flat = tf.reshape(x, (-1, width))
        chances = tf.nn.softmax(program.dense(flat, "router", experts))
        chosen = tf.one_hot(tf.argmax(chances, 1), experts)
        rank = tf.cast(tf.reduce_sum(tf.cumsum(chosen, 0) * chosen, 1) - 1.0, "int32")
        sent = tf.einsum("te,tr->ter", chosen, tf.one_hot(rank, room))
        received = tf.unstack(tf.einsum("ter,tw->erw", sent, flat), axis=0)
        done = []
        for number, part in enumerate(received):
            with tf.name_scope(f"expert_{number}"):
                done.append(feed_forward(part))
        gate = tf.reduce_sum(chances * chosen, 1)
        joined = tf.einsum("ter,erw->tw", sent, tf.stack(done)) * gate[:, None]
        return tf.reshape(joined, x.shape)

    x = program.looked_up("embedding", (words, width), tokens)
    for number in range(layers):
        with tf.name_scope(f"layer_{number}"):
            y = program.norm(x, "attention_norm")
            x += program.attention(y, y, heads, width // heads)
            y = program.norm(x, "forward_norm")
            x += routed(y) if number % 2 else feed_forward(y)
    return cross_entropy(
        program, labels, program.dense(program.norm(x, "last_norm"), "words", words)
    )


def recommender(program: Program, batch: int = 8192, width: int = 128, hot: int = 8) -> Any:
    """Bags of ids in 64 tables whose sizes fall off, 100 GB in all; pairs of what they give."""
    tf = program.tf
    tables, table_bytes = 64, 100e9
    shares = [1 / (number + 24) for number in range(tables)]
    dense = tf.compat.v1.placeholder("float32", (batch, 13), name="dense")
    labels = tf.compat.v1.placeholder("float32", (batch, 1), name="labels")
    bottom = dense
    for number, size in enumerate((512, 256, width)):
        bottom = program.dense(bottom, f"bottom_{number}", size, "relu")
    features = [bottom]
    for number, share in enumerate(shares):
        with tf.name_scope(f"table_{number}"):
            rows = int(table_bytes * share / sum(shares) / (4 * width))
            bag = ids(program, "bag", batch, hot)
            features.append(tf.reduce_sum(program.looked_up("rows", (rows, width), bag), 1))
    stacked = tf.stack(features, 1)
    pairs = tf.matmul(stacked, stacked, transpose_b=True)
    x = tf.concat([bottom, tf.reshape(pairs, (batch, -1))], 1)
    for number, size in enumerate((1024, 1024, 512, 256)):
        x = program.dense(x, f"top_{number}", size, "relu")
    logits = program.dense(x, "click", 1)
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
    return tf.reduce_mean(losses, name="loss")


GRAPHS: dict[str, tuple[Callable[[Program], Any], str, Callable[..., Any], float | None]] = {
    "resnet152": (resnet152, GRADIENTS, adam, 1.0),
    "t5_11b": (t5_11b, TAPE, adam, None),
    "lstm_unrolled": (lstm_unrolled, GRADIENTS, momentum, None),
    "switch_moe": (switch_moe, TAPE, adam, None),
    "recommender": (recommender, GRADIENTS, adagrad, None),
}
"""What builds the loss, how gradients are made, what updates, and the norm they are clipped to."""


def write_graph(name: str, folder: Path) -> Path:
    """The GraphDef file of the graph called ``name``, with what to fetch beside it."""
    import tensorflow as tf

    build, gradients_by, apply, most_norm = GRAPHS[name]
    with tf.Graph().as_default() as graph:
        program = Program(gradients_by)
        if program.tape is None:
            loss = build(program)
        else:
            with program.tape:
                loss = build(program)
        step = program.update(loss, apply, most_norm)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    outputs = [loss.name, step.name]
    path.with_suffix(".json").write_text(json.dumps({"outputs": outputs}, indent=1))
    return path


def main() -> None:
    """Writes the graphs named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[*GRAPHS, []])
    arguments = parser.parse_args()
    for name in arguments.names or GRAPHS:
        print(write_graph(name, arguments.folder), flush=True)


if __name__ == "__main__":
    main()
