"""The library: steps that do not fit their accelerators, or only if they are split.

    python benchmarks/spilling/problems.py FOLDER [NAME ...]

writes ``FOLDER/NAME.json`` (``placer.problem/1``), what ``placer solve`` and other solvers read.
"""

from __future__ import annotations

import argparse
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from drawing import MIB, Step, backward

from placer.problem.placement_problem import PlacementProblem, to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A step on ``accelerators`` of ``share`` of what one alone would hold at its peak."""

    name: str
    draw: Callable[[], Step]
    accelerators: int
    share: float

    def problem(self) -> tuple[PlacementProblem, list[list[int]]]:
        """The problem, and what a person would move as a whole."""
        step = self.draw()
        return step.problem(self.accelerators, self.share * step.peak()), step.parts


def two_tower(candidates: int, width: int = 64) -> Step:
    """Retrieval: a query embedded, and scored against all candidates."""
    step = Step()
    ids = step.feed("ids", 8 * 64)
    users = step.add("users", output=0, resident=40_000 * width * 4)
    user = step.add("lookup", ids, users, output=64 * width * 4, flops=64 * width)
    query = _mlp(step, user, [width, 128, width], 64)
    table = step.add("candidates", output=candidates * width * 4, resident=candidates * width * 4)
    scores = step.add(
        "scores", query, table, output=candidates * 4 * 8, flops=2 * 8 * candidates * width
    )
    top = step.add("top_k", scores, output=8 * 100 * 4, flops=8 * candidates)
    step.fetched.append(step.add("names", top, output=8 * 100 * 16))
    step.part(users, user)
    step.part(table, scores, top)
    return step


def recurrent_recommender(items: int, width: int, length: int = 20, batch: int = 64) -> Step:
    """A recurrent network over what a user saw, with scores for all items."""
    step = Step()
    ids = step.feed("ids", 8 * batch * length)
    table = step.add("items", output=items * width * 4, resident=items * width * 4)
    seen = step.add("lookup", ids, table, output=batch * length * width * 4)
    weights = step.add("gru", output=6 * width * width * 4, resident=6 * width * width * 4)
    state = step.add("zeros", output=batch * width * 4)
    for _ in range(length):
        now = step.add("slice", seen, output=batch * width * 4)
        gates = step.add(
            "gates", now, state, weights, output=3 * batch * width * 4,
            flops=12 * batch * width * width,
        )  # fmt: skip
        state = step.add("state", gates, state, output=batch * width * 4, flops=8 * batch * width)
    bias = step.add("bias", output=items * 4, resident=items * 4)
    logits = step.add(
        "logits", state, table, output=batch * items * 4, flops=2 * batch * items * width
    )
    scores = step.add("scores", logits, bias, output=batch * items * 4, flops=batch * items)
    step.fetched.append(step.add("top_k", scores, output=batch * 50 * 8, flops=batch * items))
    return step


def tables(count: int, batch: int, seed: int, slots: int = 0) -> Step:
    """Embedding tables of all sizes under an interaction and a perceptron; with ``slots``, a
    training step that keeps so many beside every weight."""
    rng, step = random.Random(seed), Step()
    dense = step.feed("dense", batch * 13 * 4)
    layers: list[tuple[int, int, float]] = []
    bottom = _mlp(step, dense, [13, 512, 256, 64], batch, layers)
    rows, lookups = [], []
    for _ in range(count):
        ids = step.feed("ids", batch * 8)
        size = int(10 ** rng.uniform(3.5, 6.0)) * 64 * 4
        table = step.add("table", output=0, resident=size)
        many = rng.choice((1, 1, 1, 4, 10))
        found = step.add(
            "lookup", ids, table, output=batch * many * 64 * 4, flops=batch * many * 64
        )
        pooled = step.add("pool", found, output=batch * 64 * 4, flops=batch * many * 64)
        rows.append(table)
        lookups.append((found, pooled))
    pooled_all = [pooled for _, pooled in lookups]
    pairs = (count + 1) ** 2 // 2
    dots = step.add(
        "interact", bottom, *pooled_all, output=batch * pairs * 4, flops=batch * pairs * 128
    )
    top = _mlp(step, dots, [pairs, 512, 256, 1], batch, layers)
    if not slots:
        step.fetched.append(top)
        for table, (found, pooled) in zip(rows, lookups, strict=True):
            step.part(table, found, pooled)
        return step
    loss = step.add("loss", top, output=batch * 4, flops=batch * 10)
    step.fetched.append(loss)
    backward(step, layers, loss, slots)
    for table, (found, pooled) in zip(rows, lookups, strict=True):
        slices = step.add("grad_pool", loss, dots, output=step.ops[found].output)
        update = step.add(
            "apply", slices, output=4, flops=step.ops[found].output,
            resident=slots * step.ops[table].resident, beside=table,
        )  # fmt: skip
        step.part(table, found, pooled, slices, update)
    return step


def dense_layers(count: int, width: int, batch: int) -> Step:
    """A training step of wide layers, with Adam."""
    step = Step()
    layers: list[tuple[int, int, float]] = []
    out = _mlp(step, step.feed("x", batch * width * 4), [width] * (count + 1), batch, layers)
    loss = step.add("loss", out, output=4, flops=batch * width)
    step.fetched.append(loss)
    backward(step, layers, loss, 2)
    return step


def convolutions(blocks: int, batch: int, size: int, *, skips: bool = False) -> Step:
    """A training step of residual blocks that halve the image from time to time; with ``skips``,
    one that goes down and up again, with what was seen on the way down."""
    step = Step()
    layers: list[tuple[int, int, float]] = []
    image, channels = size, 64
    out = step.feed("images", batch * size * size * 3 * 4)
    out = _conv(step, out, 3, channels, image, batch, layers)
    seen = []
    for block in range(blocks):
        if block and block % max(1, blocks // 4) == 0:
            seen.append((out, channels, image))
            image, channels = max(4, image // 2), channels * 2
            out = _conv(step, out, channels // 2, channels, image, batch, layers)
        inner = _conv(step, out, channels, channels, image, batch, layers)
        inner = _conv(step, inner, channels, channels, image, batch, layers)
        out = step.add("add", inner, out, output=batch * image * image * channels * 4)
        layers.append((out, -1, batch * image * image * channels))
    for before, channels_, image_ in reversed(seen) if skips else ():
        up = _conv(step, out, channels, channels_, image_, batch, layers)
        out = step.add("concat", up, before, output=2 * batch * image_ * image_ * channels_ * 4)
        out = _conv(step, out, 2 * channels_, channels_, image_, batch, layers)
        channels = channels_
    loss = step.add("loss", out, output=4, flops=1e6)
    step.fetched.append(loss)
    backward(step, layers, loss, 2)
    return step


def transformer(
    layers_: int, width: int, tokens: int, slots: int, vocabulary: int = 32_000
) -> Step:
    """A decoder, or with ``slots`` a training step of one."""
    step = Step()
    layers: list[tuple[int, int, float]] = []
    size = tokens * width * 4
    ids = step.feed("ids", tokens * 4)
    table = step.add("embedding", output=vocabulary * width * 4, resident=vocabulary * width * 4)
    out = step.add("lookup", ids, table, output=size)
    for _ in range(layers_):
        begun = len(step.ops)
        into = out
        qkv = _matmul(step, out, width, 3 * width, tokens, layers)
        heads = max(1, width // 64)
        scores = step.add(
            "scores", qkv, output=heads * tokens * 128 * 4, flops=2 * tokens * 128 * width
        )
        layers.append((scores, -1, 4 * tokens * 128 * width))
        mixed = step.add("mix", scores, qkv, output=size, flops=2 * tokens * 128 * width)
        layers.append((mixed, -1, 4 * tokens * 128 * width))
        out = step.add("add", _matmul(step, mixed, width, width, tokens, layers), into, output=size)
        layers.append((out, -1, tokens * width))
        hidden = _matmul(step, out, width, 4 * width, tokens, layers)
        out = step.add(
            "add", _matmul(step, hidden, 4 * width, width, tokens, layers), out, output=size
        )
        layers.append((out, -1, tokens * width))
        step.part(*range(begun, len(step.ops)))
    logits = step.add(
        "logits", out, table, output=tokens * vocabulary * 4, flops=2 * tokens * width * vocabulary
    )
    last = step.add("softmax", logits, output=tokens * 16, flops=3 * tokens * vocabulary)
    step.fetched.append(last)
    if slots:
        layers.append((logits, -1, 2 * tokens * width * vocabulary))
        backward(step, layers, last, slots)
        step.add("apply", len(step.ops) - 1, output=4, resident=slots * vocabulary * width * 4,
                 beside=table)  # fmt: skip
        step.parts.clear()
    return step


def experts(count: int, width: int, tokens: int) -> Step:
    """Layers of experts, of which every token sees one."""
    step = Step()
    out = step.feed("tokens", tokens * width * 4)
    for _ in range(4):
        gate = step.add("gate", out, output=tokens * 4, flops=2 * tokens * width * count)
        seen = []
        for _ in range(count):
            share = tokens // count
            some = step.add("pick", out, gate, output=share * width * 4)
            weights = 8 * width * width * 4
            variable = step.add("expert", output=weights, resident=weights)
            each = step.add(
                "matmul", some, variable, output=share * width * 4,
                flops=16 * share * width * width,
            )  # fmt: skip
            step.part(some, variable, each)
            seen.append(each)
        out = step.add("combine", *seen, out, output=tokens * width * 4, flops=tokens * width)
    step.fetched.append(out)
    return step


def host_loop(steps: int, width: int, vocabulary: int) -> Step:
    """A decoding loop, unrolled, in which the host chooses the next words."""
    step = Step()
    weights = step.add("decoder", output=8 * width * width * 4, resident=8 * width * width * 4)
    table = step.add("words", output=vocabulary * width * 4, resident=vocabulary * width * 4)
    words, state = step.feed("start", 64), step.add("zeros", output=8 * width * 4)
    for _ in range(steps):
        rows = step.add("lookup", words, table, output=8 * width * 4)
        state = step.add(
            "decode", rows, state, weights, output=8 * width * 4, flops=128 * width * width
        )
        logits = step.add(
            "logits", state, table, output=8 * vocabulary * 4, flops=16 * width * vocabulary
        )
        best = step.add("top_k", logits, output=8 * 16 * 8, flops=8 * vocabulary)
        words = step.add("choose", best, words, output=64, on_host=True)
    step.fetched.append(words)
    return step


def _mlp(
    step: Step,
    out: int,
    widths: list[int],
    batch: int,
    layers: list[tuple[int, int, float]] | None = None,
) -> int:
    """Layers of these widths, each a matrix, a bias and an activation."""
    layers = [] if layers is None else layers
    for into, width in itertools.pairwise(widths):
        begun = len(step.ops)
        out = _matmul(step, out, into, width, batch, layers)
        out = step.add("relu", out, output=batch * width * 4, flops=batch * width)
        layers.append((out, -1, batch * width))
        step.part(*range(begun, len(step.ops)))
    return out


def _matmul(
    step: Step,
    out: int,
    into: int,
    width: int,
    rows: int,
    layers: list[tuple[int, int, float]],
) -> int:
    """A matrix that is kept, and its product."""
    weights = into * width * 4
    variable = step.add("kernel", output=weights, resident=weights)
    flops = 2.0 * rows * into * width
    product = step.add("matmul", out, variable, output=rows * width * 4, flops=flops)
    layers.append((product, variable, flops))
    return product


def _conv(
    step: Step,
    out: int,
    into: int,
    channels: int,
    image: int,
    batch: int,
    layers: list[tuple[int, int, float]],
) -> int:
    """A convolution of three by three, normalised."""
    weights = 9 * into * channels * 4
    variable = step.add("filter", output=weights, resident=weights)
    size = batch * image * image * channels * 4
    flops = 18.0 * batch * image * image * into * channels
    seen = step.add("conv", out, variable, output=size, flops=flops)
    layers.append((seen, variable, flops))
    normal = step.add("norm", seen, output=size, flops=size)
    layers.append((normal, -1, size))
    return normal


def _case(name: str, draw: Callable[[], Step], accelerators: int, share: float) -> Case:
    title = f"{name}-{accelerators}x{share:.0%}".replace("%", "")
    return Case(name=title, draw=draw, accelerators=accelerators, share=share)


CASES = (
    _case("two_tower", partial(two_tower, 1_000_000), 1, 0.9),
    _case("two_tower_wide", partial(two_tower, 400_000, 256), 1, 0.5),
    _case("recurrent", partial(recurrent_recommender, 300_000, 128), 1, 0.6),
    _case("recurrent_long", partial(recurrent_recommender, 100_000, 256, 50), 2, 0.35),
    _case("tables12", partial(tables, 12, 1024, 1), 1, 0.5),
    _case("tables20", partial(tables, 20, 1024, 2), 1, 0.6),
    _case("tables20", partial(tables, 20, 1024, 3), 1, 0.3),
    _case("tables20_pair", partial(tables, 20, 1024, 3), 2, 0.3),
    _case("tables60", partial(tables, 60, 2048, 4), 1, 0.5),
    _case("tables200", partial(tables, 200, 512, 5), 2, 0.3),
    _case("tables8_training", partial(tables, 8, 4096, 6, 1), 1, 0.5),
    _case("tables26_training", partial(tables, 26, 4096, 7, 1), 2, 0.3),
    _case("tables26_training", partial(tables, 26, 4096, 7, 1), 4, 0.2),
    _case("dense6", partial(dense_layers, 6, 2048, 256), 1, 0.85),
    _case("dense6", partial(dense_layers, 6, 2048, 256), 1, 0.5),
    _case("dense6", partial(dense_layers, 6, 2048, 256), 2, 0.4),
    _case("dense16", partial(dense_layers, 16, 2048, 1024), 2, 0.3),
    _case("dense40", partial(dense_layers, 40, 1024, 512), 1, 0.7),
    _case("residual", partial(convolutions, 16, 32, 56), 1, 0.7),
    _case("residual", partial(convolutions, 16, 32, 56), 2, 0.55),
    _case("residual", partial(convolutions, 16, 32, 56), 2, 0.35),
    _case("residual_deep", partial(convolutions, 48, 16, 56), 4, 0.27),
    _case("down_and_up", partial(convolutions, 8, 8, 128, skips=True), 1, 0.6),
    _case("down_and_up", partial(convolutions, 8, 8, 128, skips=True), 2, 0.4),
    _case("decoder12", partial(transformer, 12, 768, 1024, 0), 1, 0.7),
    _case("decoder12", partial(transformer, 12, 768, 1024, 0), 2, 0.3),
    _case("decoder12_training", partial(transformer, 12, 768, 1024, 2), 1, 0.8),
    _case("decoder12_training", partial(transformer, 12, 768, 1024, 2), 2, 0.4),
    _case("decoder24_training", partial(transformer, 24, 1024, 2048, 2), 4, 0.3),
    _case("decoder48_training", partial(transformer, 48, 1600, 1024, 2), 8, 0.15),
    _case("experts", partial(experts, 16, 1024, 4096), 1, 0.5),
    _case("experts", partial(experts, 64, 512, 4096), 4, 0.2),
    _case("host_loop", partial(host_loop, 20, 512, 30_000), 1, 0.6),
    _case("host_loop_long", partial(host_loop, 60, 1024, 30_000), 2, 0.5),
)
"""Accelerators with a share of what one alone would hold each."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for case in CASES:
        if case.name in arguments.names or not arguments.names:
            problem, _ = case.problem()
            (arguments.folder / f"{case.name}.json").write_text(to_json(problem))
            cap = problem.capacity_bytes[0] / MIB
            print(f"{case.name}: {len(problem.op_names):,} ops, {cap:,.0f} MiB each")


if __name__ == "__main__":
    main()
