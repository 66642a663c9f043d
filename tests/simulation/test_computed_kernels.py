"""Kernels whose results the host reads are computed: each against NumPy."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from simulation.simulated_runs import answer_of, run_script

import placer.simulation

SOURCES = Path(placer.simulation.__file__).parent / "sources"

COMPARED = """
import json, sys
import numpy as np, tensorflow as tf
from tensorflow.python.framework import op_callbacks

rng = np.random.default_rng(0)
wrong, ran = [], set()
op_callbacks.add_op_callback(lambda name, *_, **__: ran.add(tf.compat.as_str(name)))

def check(name, got, want):
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape or got.dtype != want.dtype or not (got == want).all():
        wrong.append([name, str(got)[:80], str(want)[:80]])

def on_gpu(array):
    with tf.device("GPU:0"):
        found = tf.identity(tf.constant(array))
    assert "GPU" in found.device
    return found

def compare_moved(shape, x, a):
    rows, columns = a.shape
    kind = a.dtype.type
    check(f"steps {shape}", x[1::2, ::3], a[1::2, ::3])
    check(f"backwards {shape}", x[::-1, :], a[::-1, :])
    check(f"column {shape}", x[:, 0], a[:, 0])
    check(f"tile {shape}", tf.tile(x, [2, 3]), np.tile(a, (2, 3)))
    check(f"broadcast {shape}", tf.broadcast_to(x[:1], a.shape), np.broadcast_to(a[:1], a.shape))
    check(f"transposed {shape}", tf.transpose(x), a.T)
    cube = np.stack([a, a + 1, a + 2])
    dice = tf.stack([x, x + 1, x + 2])
    for order in ((1, 0, 2), (0, 2, 1), (2, 1, 0), (1, 2, 0)):
        check(f"transposed {order} {shape}", tf.transpose(dice, order), cube.transpose(order))
    codes = np.eye(64, dtype=kind)
    for on, off in ((1, 0), (5, 3)):
        coded = tf.one_hot(x[0], 64, kind(on), kind(off))
        check(f"one hot {shape}", coded, np.where(codes[a[0]] == 1, kind(on), kind(off)))
    check(f"one hot of floats {shape}", tf.one_hot(x[0], 64, axis=0), codes[a[0]].T.astype("f"))
    pairs = np.stack([rng.integers(0, rows, 9), rng.integers(0, columns, 9)], 1).astype(kind)
    check(f"gather by two {shape}", tf.gather_nd(x, pairs), a[pairs[:, 0], pairs[:, 1]])
    check(f"gather rows {shape}", tf.gather_nd(x, pairs[:, :1]), a[pairs[:, 0]])
    check(f"running sum {shape}", tf.cumsum(x, 1), a.cumsum(1, kind))
    check(f"running sum of columns {shape}", tf.cumsum(x, 0), a.cumsum(0, kind))
    check(f"sum before {shape}", tf.cumsum(x, 1, exclusive=True), a.cumsum(1, kind) - a)
    check(f"sum behind {shape}", tf.cumsum(x, 1, reverse=True), a[:, ::-1].cumsum(1, kind)[:, ::-1])
    check(f"sorted {shape}", tf.sort(x), np.sort(a))
    check(f"sorted down {shape}", tf.sort(x, direction="DESCENDING"), np.sort(a)[:, ::-1])
    order = np.argsort(a, kind="stable").astype(np.int32)
    check(f"order {shape}", tf.argsort(x, stable=True), order)
    most = tf.math.top_k(x, 1)
    check(f"top {shape}", most.values, a.max(1, keepdims=True))
    check(f"place of top {shape}", most.indices[:, 0], a.argmax(1).astype(np.int32))
    check(f"place of the most {shape}", tf.argmax(x, 1), a.argmax(1))
    flat, values = tf.reshape(x, [-1]), a.reshape(-1)
    segments = values % 3
    sums = np.array([values[segments == i].sum() for i in range(3)], kind)
    given = tf.math.unsorted_segment_sum(flat, on_gpu(segments), 3)
    check(f"sums of segments {shape}", given, sums)
    unique, first, ids, counts = np.unique(values, True, True, True)
    order = np.argsort(first)
    y, idx, count = tf.unique_with_counts(flat)
    check(f"unique {shape}", y, unique[order])
    check(f"which unique {shape}", idx, np.argsort(order)[ids].reshape(-1).astype(np.int32))
    check(f"unique counts {shape}", count, counts[order].astype(np.int32))
    check(f"masked {shape}", tf.boolean_mask(x, x > 20), a[a > 20])
    parts = tf.dynamic_partition(flat, tf.cast(on_gpu(segments), tf.int32), 3)
    for number, part in enumerate(parts):
        check(f"part {number} {shape}", part, values[segments == number])
    check(f"repeated {shape}", tf.repeat(x, 2, 0), np.repeat(a, 2, 0))

def compare_all(rows, columns):
    shape = f"{rows}x{columns}"
    for kind in (np.int64, np.int32):
        a, b = (rng.integers(1, 50, (rows, columns)).astype(kind) for _ in "ab")
        x, y, row = on_gpu(a), on_gpu(b), on_gpu(a[:1])
        with tf.device("GPU:0"):
            if kind is np.int64:
                check(f"add {shape}", x + y, a + b)
                check(f"subtract {shape}", x - y, a - b)
                check(f"multiply {shape}", x * y, a * b)
                check(f"floor division {shape}", x // y, a // b)
                check(f"absolute {shape}", abs(x - y), abs(a - b))
                check(f"scalar {shape}", x + 3, a + 3)
                check(f"maximum {shape}", tf.maximum(x, y), np.maximum(a, b))
                check(f"minimum {shape}", tf.minimum(x, y), np.minimum(a, b))
                check(f"modulo {shape}", x % y, a % b)
                check(f"row {shape}", y + row, b + a[:1])
                for name in ("equal", "not_equal", "less", "less_equal"):
                    check(f"{name} {shape}", getattr(tf, name)(x, y), getattr(np, name)(a, b))
                for name in ("greater", "greater_equal"):
                    check(f"{name} {shape}", getattr(tf, name)(x, y), getattr(np, name)(a, b))
                for name in ("negative", "sign", "square"):
                    check(f"{name} {shape}", getattr(tf, name)(x - y), getattr(np, name)(a - b))
                check(f"bits of both {shape}", tf.bitwise.bitwise_and(x, y), a & b)
                check(f"bits of either {shape}", tf.bitwise.bitwise_or(x, y), a | b)
                check(f"sum {shape}", tf.reduce_sum(x), a.sum())
                check(f"sum of rows {shape}", tf.reduce_sum(x, 1), a.sum(1))
                check(f"sum of columns {shape}", tf.reduce_sum(x, 0), a.sum(0))
                check(f"slice {shape}", x[1:, :3], a[1:, :3])
                check(f"most of rows {shape}", tf.reduce_max(x, 1), a.max(1))
                check(f"most {shape}", tf.reduce_max(x), a.max())
                check(f"least of columns {shape}", tf.reduce_min(x, 0), a.min(0))
                check(f"running product {shape}", tf.math.cumprod(x, 1), a.cumprod(1))
                check(f"product {shape}", tf.reduce_prod(x[:1, :3] + 0), np.prod(a[:1, :3] + 0))
                variable = tf.Variable(x)
                variable.assign_add(y).assign_sub(row + 0 * y)
                check(f"assigned {shape}", variable.read_value(), a + b - a[:1])
            for other in (np.int32, np.int64, np.float32, np.bool_):
                if not (kind is np.int32 and other is np.int64):
                    check(f"cast {shape}", tf.cast(x, other), a.astype(other))
            indices = rng.integers(0, rows, 7)
            check(f"gather {shape}", tf.gather(x, indices), a[indices])
            columns_of = rng.integers(0, columns, 5).astype(np.int32)
            check(f"gather columns {shape}", tf.gather(x, columns_of, axis=1), a[:, columns_of])
            check(f"stack {shape}", tf.stack([x, y]), np.stack([a, b]))
            check(f"stack within {shape}", tf.stack([x, y], 1), np.stack([a, b], 1))
            check(f"concat {shape}", tf.concat([x, y], 0), np.concatenate([a, b]))
            many, copies = [x[:, :1]] * 20, [a[:, :1]] * 20
            check(f"concat many {shape}", tf.concat(many, 1), np.concatenate(copies, 1))
            many, copies = [*many, x[:, 1:3]], [*copies, a[:, 1:3]]
            check(f"concat unlike {shape}", tf.concat(many, 1), np.concatenate(copies, 1))
            chosen = tf.where(x > y[:1], x, y[:1])
            check(f"where either {shape}", chosen, np.maximum(a, b[:1]))
            check(f"where one {shape}", tf.where(x > y, x, kind(7)), np.where(a > b, a, kind(7)))
            check(f"fill {shape}", tf.fill([rows], x[0, 0]), np.full(rows, a[0, 0]))
            parts = [np.arange(rows, dtype=np.int32), np.arange(rows, 2 * rows, dtype=np.int32)]
            check(f"stitch {shape}", tf.dynamic_stitch(parts, [x, y]), np.concatenate([a, b]))
            compare_moved(f"{kind.__name__} {shape}", x[:40, :80], a[:40, :80])
    flags = rng.integers(0, 2, (rows, columns)).astype(bool)
    c = on_gpu(flags)
    with tf.device("GPU:0"):
        check(f"and {shape}", tf.logical_and(c, c), flags)
        check(f"or {shape}", tf.logical_or(c, c[:1]), flags | flags[:1])
        check(f"not {shape}", tf.logical_not(c), ~flags)
        odd = rng.choice(np.array([np.inf, -np.inf, np.nan, 1], "f"), (rows, columns))
        for name in ("finite", "inf", "nan"):
            of_numpy = getattr(np, f"is{name}")(odd)
            check(f"is {name} {shape}", getattr(tf.math, f"is_{name}")(on_gpu(odd)), of_numpy)
        check(f"all {shape}", tf.reduce_all(c), flags.all())
        check(f"any {shape}", tf.reduce_any(c), flags.any())
        check(f"any of rows {shape}", tf.reduce_any(c, 1), flags.any(1))
        check(f"flags stacked {shape}", tf.stack([c[0], c[1]]), flags[:2])
        check(f"flags cast {shape}", tf.cast(c, tf.int32), flags.astype(np.int32))
        check(f"where {shape}", tf.where(c), np.argwhere(flags))
        check(f"where of one {shape}", tf.where(c[0]), np.argwhere(flags[0]))
        flat = rng.integers(0, 40 * rows, rows * columns)
        for kind in (np.int32, np.int64):
            found = tf.unique(on_gpu(flat.astype(kind))).y
            check(f"unique count {shape}", len(found), len(np.unique(flat)))
        check(f"nonzero {shape}", tf.math.count_nonzero(x - y), np.count_nonzero(a - b))

compare_all(4, 6)
compare_all(2, 1)
compare_all(int(sys.argv[1]) if len(sys.argv) > 1 else 90, 170)
print(json.dumps({"wrong": wrong, "ran": sorted(ran)}))
"""


def rules() -> list[tuple[str, ...]]:
    """The texts that names of computed kernels have, in the order in which they are tried."""
    rows: list[str] = []
    for name in ("moving", "tensors", "sorting", "elementwise"):
        rows += re.findall(
            r"^    \{\{(\".*\")\}, \w+\},$", (SOURCES / f"{name}.c").read_text(), re.M
        )
    return [tuple(re.findall(r'"([^"]+)"', row)) for row in rows]


def elementwise_ops() -> set[str]:
    """The ops on elements that are computed."""
    return set(re.findall(r'\{"(\w+)", [A-Z_]+, [123]\}', (SOURCES / "elementwise.c").read_text()))


@pytest.mark.slow
def test_computed_kernels_give_what_numpy_gives() -> None:
    """Every kernel that is computed runs and gives what NumPy gives, of int32, int64 and bool,
    small and large."""
    done = run_script(COMPARED, "1xT4", TF_CPP_MIN_LOG_LEVEL="3", PLACER_SIMULATION_LOG="1")
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout)
    assert found["wrong"] == []
    assert elementwise_ops() - set(found["ran"]) == set()
    launched = set(re.findall(r"^kernel (\S+)$", done.stderr, re.M))
    patterns = [(rule, re.compile(".*".join(map(re.escape, rule)))) for rule in rules()]
    used = {next((rule for rule, text in patterns if text.search(name)), None) for name in launched}
    assert set(rules()) - used == set()


REPEATED = """
import numpy as np, tensorflow as tf
with tf.device("GPU:0"):
    x = tf.random.stateless_normal((64, 64), (1, 2))
    print(float(tf.reduce_sum(tf.matmul(x, x))), tf.matmul(x, x).numpy().any())
    kept, left = tf.Variable(tf.range(1000, dtype=tf.int64)), tf.Variable(np.ones(10**6, "float32"))
    print(kept.numpy().sum(), left.numpy().sum())
"""


@pytest.mark.slow
def test_what_is_not_computed_reads_as_zeros() -> None:
    """A product that nobody computes is zeros, and so is a large copy, which takes no memory; a
    small one is kept."""
    found = answer_of(REPEATED, "1xT4", TF_CPP_MIN_LOG_LEVEL="3").splitlines()
    assert found[0] == "0.0 False"
    assert found[1].split()[1] == "0.0"
