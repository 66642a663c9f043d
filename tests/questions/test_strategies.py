"""Ways to run one program, predicted from one part, against what is built."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

import placer
from placer.errors import UsageError
from placer.questions.strategies import StrategyComparison, StrategyRow, compare_strategies
from placer.rendering.text.formats import render
from placer.rendering.text.strategies_text import strategies_blocks, strategies_csv

BATCH, WIDTH = 1024, 512
REQUEST = {"devices": "4xT4", "time_limit": 0.5}


@pytest.fixture(scope="module")
def layers() -> tuple[Any, list[Any]]:
    """Four dense layers and their weights."""
    import tensorflow as tf

    weights = [tf.Variable(tf.ones((WIDTH, WIDTH)), name=f"w{i}") for i in range(4)]

    def run(x):
        for weight in weights:
            x = tf.tanh(x @ weight)
        return x

    return run, weights


@pytest.fixture(scope="module")
def found(layers) -> StrategyComparison:
    """The strategies of the layers with an unknown batch size."""
    import tensorflow as tf

    program = tf.function(layers[0]).get_concrete_function(tf.TensorSpec((None, WIDTH)))
    return compare_strategies(program, batch_size=BATCH, **REQUEST)


def rows(found: StrategyComparison) -> dict[str, StrategyRow]:
    return {row.name: row for row in found.rows}


@pytest.mark.slow
def test_every_strategy_that_can_be_built_has_a_row(found):
    """One placement, four towers, two of two devices, three sizes of micro-batches, a pipeline."""
    assert list(rows(found)) == [
        "one-placement",
        "towers:4",
        "hybrid:2",
        "micro-batches:2",
        "micro-batches:4",
        "micro-batches:8",
        "pipeline:16",
    ]
    assert found.recommended in rows(found)


@pytest.mark.parametrize("name", ["towers:4", "hybrid:2", "micro-batches:4"])
def test_the_prediction_is_near_that_of_what_is_built(found, layers, name):
    """Step within a quarter, and the fullest device within a quarter of the memory."""
    import tensorflow as tf

    program = tf.function(layers[0]).get_concrete_function(tf.TensorSpec((None, WIDTH)))
    plan = placer.place(program, batch_size=BATCH, strategy=name, **REQUEST)
    row = rows(found)[name]
    assert row.step_seconds == pytest.approx(plan.metrics["step_seconds"], rel=0.25)
    built = max(r["peak_memory_bytes"] for r in plan.devices if r["type"] == "GPU")
    told = max(peak for device, peak in row.peak_bytes.items() if device.startswith("GPU"))
    assert told == pytest.approx(built, rel=0.25)


def test_more_pieces_hold_less_and_take_longer(found):
    """Eight pieces against two."""
    two, eight = rows(found)["micro-batches:2"], rows(found)["micro-batches:8"]
    assert max(eight.peak_bytes.values()) < max(two.peak_bytes.values())
    assert eight.step_seconds > two.step_seconds
    assert eight.samples_per_second == pytest.approx(BATCH / eight.step_seconds)


def test_tables_carry_all_rows(found):
    """Text, Markdown and CSV."""
    text = found.summary(width=100)
    assert f"Recommended: {found.recommended}" in text
    assert "batch statistics" not in text  # a program that takes them is refused
    assert render(lambda w: strategies_blocks(found, w), "markdown", width=100, colour=False)
    table = list(csv.DictReader(io.StringIO(strategies_csv(found))))
    assert [row["name"] for row in table] == list(rows(found))


def test_what_mixes_examples_has_one_placement():
    """And the reason."""
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec((None, 4))])
    def centred(x):
        return x - tf.reduce_mean(x, axis=0)

    found = compare_strategies(centred, batch_size=8, **REQUEST)
    assert [row.name for row in found.rows] == ["one-placement"]
    assert "works along the batch" in found.undivided
    assert "One placement only" in found.summary()


def test_what_cannot_be_divided_is_refused(layers):
    """No batch size, one that binds nothing, and a program that updates variables."""
    import tensorflow as tf

    run, weights = layers
    known = tf.function(run).get_concrete_function(tf.TensorSpec((8, WIDTH)))
    with pytest.raises(UsageError, match="--batch-size N"):
        compare_strategies(known, **REQUEST)
    with pytest.raises(UsageError, match="nothing to divide"):
        compare_strategies(known, batch_size=8, **REQUEST)

    @tf.function(input_signature=[tf.TensorSpec((None, WIDTH))])
    def update(x):
        weights[0].assign_add(tf.ones((WIDTH, WIDTH)))
        return run(x)

    with pytest.raises(UsageError, match=r"updates variables.*placer\.micro_batches"):
        compare_strategies(update, batch_size=8, **REQUEST)
