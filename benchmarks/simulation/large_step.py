"""Training steps of a GPT of 13 billion parameters on eight A100-80GB: what does the host hold?

    python benchmarks/simulation/large_step.py [--layers 40] [--width 5120] [--limit-gigabytes 24]

Variables and Adam's slots are made on the cards, layers lie on them in order, and the step is
TensorFlow's own.  A process that holds more of the host than the limit is ended; what each card and
the host held at most is printed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from large_load import GIB, run_held

CARDS, DEVICES = 8, "8xA100-80GB"
WORDS, HEAD_WIDTH, BATCH, LENGTH, STEPS = 50_257, 128, 1, 1024, 2


def train(layers: int, width: int) -> None:
    """Two steps; prints how many parameters were trained."""
    import tensorflow as tf

    heads = width // HEAD_WIDTH
    rows: list[tuple[Any, Any, Any]] = []

    def weight(*shape: int) -> Any:
        one, *slots = (tf.Variable(tf.zeros(shape)) for _ in range(3))
        rows.append((one, *slots))
        return one

    def normal(x: Any, scale: Any) -> Any:
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        return (x - mean) * tf.math.rsqrt(variance + 1e-5) * scale

    def block(x: Any, first: Any, second: Any, joined: Any, out: Any, up: Any, down: Any) -> Any:
        parts = tf.reshape(normal(x, first) @ joined, (BATCH * LENGTH, 3, heads, HEAD_WIDTH))
        query, key, value = tf.unstack(tf.transpose(parts, (1, 2, 0, 3)))
        scores = tf.matmul(query, key, transpose_b=True) / HEAD_WIDTH**0.5
        mixed = tf.transpose(tf.nn.softmax(scores) @ value, (1, 0, 2))
        x += tf.reshape(mixed, (BATCH * LENGTH, width)) @ out
        return x + tf.nn.gelu(normal(x, second) @ up) @ down

    cards = [f"GPU:{number * CARDS // layers}" for number in range(layers)]
    with tf.device("GPU:0"):
        embedding = weight(WORDS, width)
    blocks = []
    for card in cards:
        with tf.device(card):
            shapes = ((width,), (width,), (width, 3 * width), (width, width))
            shapes += ((width, 4 * width), (4 * width, width))
            blocks.append([weight(*shape) for shape in shapes])
    with tf.device(cards[-1]):
        last = weight(width, WORDS)

    @tf.function
    def step(tokens: Any, following: Any) -> Any:
        with tf.device("GPU:0"):
            x = tf.gather(embedding, tokens)
        for card, weights in zip(cards, blocks, strict=True):
            with tf.device(card):
                x = block(x, *weights)
        with tf.device(cards[-1]):
            errors = tf.nn.sparse_softmax_cross_entropy_with_logits(following, x @ last)
            loss = tf.reduce_mean(errors)
        found = tf.compat.v1.gradients(
            loss, [one for one, *_ in rows], colocate_gradients_with_ops=True
        )
        for (one, mean, square), gradient in zip(rows, found, strict=True):
            with tf.device(one.device):
                tf.raw_ops.ResourceApplyAdam(
                    **{"var": one.handle, "m": mean.handle, "v": square.handle},
                    **{"beta1_power": 0.9, "beta2_power": 0.999, "lr": 1e-4},
                    **{"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8},
                    grad=tf.convert_to_tensor(gradient),
                )
        return loss

    with tf.device("CPU:0"):
        tokens = tf.zeros((BATCH * LENGTH,), tf.int32)
    for _ in range(STEPS):
        step(tokens, tokens).numpy()
    print(sum(one.shape.num_elements() for one, *_ in rows))


def main() -> None:
    """Prints the parameters, the seconds, and what each card and the host held at most."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=40)
    parser.add_argument("--width", type=int, default=5120)
    parser.add_argument("--limit-gigabytes", type=float, default=24)
    parser.add_argument("step", nargs="?", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        return train(arguments.layers, arguments.width)
    size = ["--layers", str(arguments.layers), "--width", str(arguments.width)]
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "run.json"
        options = ["--devices", DEVICES, "-q", "--format", "json", "-o", str(record)]
        script = [sys.executable, str(Path(__file__).resolve()), *size, "train"]
        began = time.monotonic()
        command = [sys.executable, "-m", "placer", "simulate", *options, "--", *script]
        printed, most = run_held(command, int(arguments.limit_gigabytes * GIB))
        seconds = time.monotonic() - began
        cards = json.loads(record.read_text())["peak_bytes"]
    held = ", ".join(f"{size / GIB:.1f}" for size in cards.values())
    print(f"{int(printed.split()[-1]):,} parameters, {STEPS} steps, {seconds:.0f} s")
    print(f"cards held {held} GiB at most, the process {most / GIB:.2f} GiB of the host")


if __name__ == "__main__":
    main()
