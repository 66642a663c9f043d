"""How long does ``placer.auto`` take for training steps of about 130, 3,000 and 10,000 ops?

    python benchmarks/auto/seconds.py [NAME ...]

Seconds on the clock and of the processor, those of all child processes that have ended included.
"""

import os
import sys
import time

import keras
from keras import layers

import placer
from placer.extraction.reading.loading import load_program
from placer.extraction.reading.training_steps import model_specs, trace_step

WIDTH, HEADS, LENGTH, WORDS, BATCH = 256, 4, 64, 8000, 64


def perceptron(count: int) -> keras.Model:
    """Dense layers, trained without momentum."""
    hidden = [layers.Dense(256, "relu") for _ in range(count)]
    model = keras.Sequential([keras.Input((64,)), *hidden, layers.Dense(10)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def transformer(blocks: int) -> keras.Model:
    """Blocks of attention and two dense layers, with dropout, trained by Adam."""
    x = inputs = keras.Input((LENGTH,), dtype="int32")
    x = layers.Embedding(WORDS, WIDTH)(x)
    for _ in range(blocks):
        y = layers.LayerNormalization()(x)
        y = layers.MultiHeadAttention(HEADS, WIDTH // HEADS)(y, y)
        x = layers.Add()([x, layers.Dropout(0.1)(y)])
        y = layers.Dense(4 * WIDTH, "gelu")(layers.LayerNormalization()(x))
        x = layers.Add()([x, layers.Dropout(0.1)(layers.Dense(WIDTH)(y))])
    model = keras.Model(inputs, layers.Dense(WORDS)(layers.LayerNormalization()(x)))
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


MODELS = {
    "perceptron": lambda: perceptron(3),
    "transformer of 2": lambda: transformer(2),
    "transformer of 8": lambda: transformer(8),
}


def main() -> None:
    """Prints a line for each model."""
    for name in sys.argv[1:] or MODELS:
        model = MODELS[name]()
        step = trace_step(model, model_specs(model), "train_step", values=False)
        ops = len(load_program(step, fingerprinted=False).graph_def.node)
        begin, before = time.perf_counter(), sum(os.times()[:4])
        found = placer.auto(model, "2xT4", batch_size=BATCH)
        seconds = time.perf_counter() - begin
        time.sleep(1)  # children that were told to end have ended then
        work = sum(os.times()[:4]) - before
        print(f"{name}: {ops:,} ops, {found.chosen}: {seconds:.1f} s, {work:.1f} s of processor")
        for row in found.rows:
            print(f"    {row.name}: {row.note}")


if __name__ == "__main__":
    main()
