"""Strategies side by side."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import replace
from functools import partial

import pytest
import tensorflow as tf
from questions.conftest import CAPS

import placer.pipeline.placement
import placer.questions.comparison
from placer.errors import UsageError
from placer.pipeline.pipeline import place
from placer.plan.status_words import status_words
from placer.questions.comparison import EXPERT, OURS, ComparedPlacement, Comparison, compare
from placer.questions.explanation import explain
from placer.rendering.json_text import to_json
from placer.rendering.text.comparison_text import comparison_blocks, comparison_csv
from placer.rendering.text.formats import render
from placer.solving.baselines import BASELINES, SMALLEST_TABLES
from placer.solving.baselines.tasks import ending_by


@pytest.fixture(scope="module")
def found(network) -> Comparison:
    """All strategies on two GPUs that can hold the layers only together, and two of our own."""
    functions = {
        "all-on-one": lambda op: "/GPU:1",
        "halves": lambda op: "/GPU:1" if "layer_0" in op.name else "/GPU:0",
    }
    with pytest.MonkeyPatch.context() as patch:
        formulated = []
        for module in (placer.questions.comparison, placer.pipeline.placement):
            counted = partial(_counted, module.formulate, formulated)
            patch.setattr(module, "formulate", counted)
        comparison = compare(network, **CAPS, functions=functions)
    assert len(formulated) == 1 + len(functions)  # the solver and all baselines see one problem
    return comparison


def _counted(function, calls, *arguments):
    calls.append(arguments)
    return function(*arguments)


def strategies(found: Comparison) -> dict[str, ComparedPlacement]:
    return {strategy.name: strategy for strategy in found.strategies}


@pytest.mark.slow
def test_every_strategy_has_a_row_and_the_solver_is_first(found):
    """The solver, all baselines, then the functions of the user."""
    names = [name for name in BASELINES if name != SMALLEST_TABLES]  # there are no tables
    assert [s.name for s in found.strategies] == [OURS, *names, "all-on-one", "halves"]


def test_the_solver_is_never_above_what_fits(found):
    """It transfers no more than any other strategy that fits, and its figures are the plan's."""
    rows = strategies(found)
    ours = rows[OURS]
    assert ours.fits
    assert ours.transfer_bytes == found.plan.metrics.transfer_bytes
    assert ours.note == status_words(found.plan)
    others = [row.transfer_bytes for row in found.strategies if row.fits]
    assert len(others) > 3
    assert min(others) == ours.transfer_bytes


def test_what_does_not_fit_is_said(found):
    """No single GPU holds the layers; TensorFlow's default does not ask, and is over the cap."""
    rows = strategies(found)
    assert rows["one-device"].transfer_bytes is None
    assert "no single accelerator" in rows["one-device"].note
    default = rows["tensorflow-default"]
    assert not default.fits
    assert default.peak_bytes["GPU:0"] - found.caps["GPU:0"] == default.over_bytes["GPU:0"] > 0


@pytest.mark.slow
def test_the_default_is_over_a_cap_that_one_table_breaks():
    """TensorFlow does not look whether a table fits; the solver keeps it on the host."""
    table = tf.Variable(tf.zeros([1600, 64]), name="table")

    @tf.function(input_signature=[tf.TensorSpec((8,), tf.int32, name="ids")])
    def look_up(ids):
        return tf.nn.relu(tf.gather(table, ids))

    look_up.kept = table
    rows = strategies(compare(look_up, "1xGPU:300KiB", time_limit=2.0))
    assert rows[OURS].fits
    assert not rows["tensorflow-default"].fits
    assert rows["tensorflow-default"].over_bytes["GPU:0"] >= 100 << 10


def test_what_the_allocator_needs_counts_for_every_row():
    """Tensors of uneven sizes leave gaps: under a cap between peak and need one GPU is not enough
    for any baseline, as for the solver."""

    @tf.function(input_signature=[tf.TensorSpec((4096, 256), name="x")])
    def program(x):
        y = tf.tanh(x @ tf.ones((256, 700)))
        z = tf.tanh(y @ tf.ones((700, 300)))
        return tf.reduce_sum(tf.tanh(z @ tf.ones((300, 900))))

    alone = place(program, "1xGPU:1GiB", time_limit=1).devices[0]
    cap = (alone.peak_memory_bytes + alone.need_bytes) // 2
    row = strategies(compare(program, "1xGPU", max_memory={0: cap}, time_limit=1))["one-device"]
    assert row.peak_bytes["GPU:0"] < cap
    assert not row.fits
    assert row.over_bytes == {"GPU:0": alone.need_bytes - cap}
    caps = {0: cap, 1: cap}  # a second run with lower limits has two to fill
    rows = strategies(compare(program, "2xGPU", max_memory=caps, time_limit=1))
    assert rows["one-device"].required_bytes["GPU:1"] == 0
    assert rows["one-device"].over_bytes == row.over_bytes
    assert rows["balanced"].required_bytes["GPU:1"] > 0


def test_a_proof_is_of_placements_where_the_program_fits_as_it_is(tmp_path):
    """Loaders of a placed program put what no op uses on the host, TensorFlow on the first GPU."""
    module = tf.Module()
    module.used, module.unused = tf.Variable(tf.ones((64, 64))), tf.Variable(tf.ones((512, 1024)))
    serve = tf.function(
        lambda x: {"y": x @ module.used}, input_signature=[tf.TensorSpec((8, 64), name="x")]
    )
    tf.saved_model.save(module, tmp_path / "m", signatures=serve)
    asked = {"devices": "1xGPU:8MiB,CPU:1MiB", "time_limit": 1}
    rows = strategies(found := compare(tmp_path / "m", **asked))
    assert rows[OURS].note == "no placement fits (proven)"
    assert rows["tensorflow-default"].fits
    text = found.summary(width=120)
    assert "1 of the 10 other methods fits" in text
    assert "nothing fits" not in text
    text = found.plan.summary(width=120)
    assert text.startswith("No placement fits on 1x GPU (proven): CPU:0 ")
    assert "nothing fits" not in text
    assert placer.auto(tmp_path / "m", **asked).chosen == "as-it-is"


def test_a_baseline_that_does_not_end_in_time_is_said_not_to(network, monkeypatch):
    """Without any time nothing that looks at the caps ends, neither anew nor with less room; the
    solver is as good as ever."""
    monkeypatch.setattr(placer.questions.comparison, "ending_by", lambda _: ending_by(-math.inf))
    rows = strategies(compare(network, **{**CAPS, "time_limit": 5.0}))
    assert rows[OURS].fits
    for name in ("heft", "m-etf", "balanced", "one-device"):
        assert rows[name].note == "did not end within 5 s"
        assert rows[name].transfer_bytes is None
    assert rows["tensorflow-default"].transfer_bytes is not None


def test_a_device_function_is_followed_under_soft_placement(found):
    """All on GPU:1 but what has no kernel there; what is fed stays on the host."""
    row = strategies(found)["all-on-one"]
    assert row.over_bytes.keys() == {"GPU:1"}
    assert row.peak_bytes["GPU:0"] == 0
    assert "not where it asks" in row.note


def test_a_device_function_can_be_kept_by_the_solver(network):
    """What it asks for is where it asks, as far as there is a kernel; the rest is chosen."""
    plan = place(
        network, **CAPS, device_function=lambda op: "/GPU:1" if "layer_2" in op.name else ""
    )
    asked = {op: device for op, device in plan.placement.items() if "layer_2" in op}
    assert len(asked) >= 2
    assert set(asked.values()) == {"GPU:1"}
    assert len(set(plan.placement.values())) > 1
    assert plan.request["device_function"] == "given"
    with pytest.raises(UsageError, match="made with a device function, which it does not keep"):
        explain(plan, next(iter(asked)), network)


def test_a_plan_of_measured_costs_is_explained_with_them(network):
    """The plan keeps no costs; without them every difference would be of other times."""
    measured = {next(iter(place(network, **CAPS).placement)): 0.5}
    plan = place(network, **CAPS, costs=measured)
    with pytest.raises(UsageError, match=r"keep: give them \(costs\)"):
        explain(plan, None, network)
    assert explain(plan, None, network, costs=measured).plan == plan


def test_the_row_of_the_solver_names_another_one(network):
    """The row is that of ``--solver``, which is no search of ours then."""
    found = compare(network, **CAPS, solver="heft")
    assert found.strategies[0].note.startswith("by heft (--solver)")
    heft = next(row for row in found.strategies if row.name == "heft")
    assert found.strategies[0].sent_bytes == heft.sent_bytes


def test_a_device_that_is_not_there_is_refused(network):
    """The message names the op and the devices that exist."""
    with pytest.raises(UsageError, match=r"the device function returned '/GPU:7' for op x"):
        compare(network, **CAPS, functions={"wrong": lambda op: "/GPU:7"})


def test_names_of_strategies_are_taken(network):
    """A function cannot pass for the solver."""
    with pytest.raises(UsageError, match="'placer' is the name of a strategy"):
        compare(network, **CAPS, functions={OURS: lambda op: ""})


def test_device_strings_of_the_graph_are_an_expert():
    """A graph with device strings has one row more; cleared, the solver need not follow them."""
    import tensorflow as tf

    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, [64, 64], name="x")
        with tf.device("/GPU:0"):
            y = tf.matmul(x, x, name="y")
        with tf.device("/GPU:1"):
            tf.matmul(y, y, name="z")
    options = {"clear_devices": True, "offload": "never", "time_limit": 3.0}
    found = compare(graph, "2xGPU:1GiB", outputs=("z",), **options)
    rows = strategies(found)
    tensor = 64 * 64 * 4
    assert rows[EXPERT].transfer_bytes == 2 * tensor
    assert rows[OURS].transfer_bytes == tensor


def test_all_formats_carry_the_same_figures(found):
    """Text marks the best, Markdown has a table, CSV and JSON have plain numbers."""
    text = found.summary(width=100)
    assert OURS in text
    others, fitting = found.strategies[1:], [row for row in found.strategies[1:] if row.fits]
    first = " ".join(text.partition("\n\n")[0].split())
    told = rf"{len(fitting)} of the {len(others)} other methods fit; the best of them, \S+, sends"
    assert re.search(rf"^{OURS} sends [^;,]+ a step\. {told}.*\(step .+; {OURS} .+\)\.$", first)
    assert "no single accelerator" in text
    markdown = render(lambda w: comparison_blocks(found, w), "markdown", width=80, colour=False)
    assert "| Method | Fits |" in markdown
    rows = list(csv.DictReader(io.StringIO(comparison_csv(found))))
    data = json.loads(to_json(found))
    assert data["schema"] == "placer.comparison/1"
    for row, strategy, entry in zip(rows, found.strategies, data["strategies"], strict=True):
        assert row["strategy"] == entry["name"] == strategy.name
        known = strategy.transfer_bytes is not None
        assert row["transfer_bytes"] == (str(entry["transfer_bytes"]) if known else "")
        assert row["fits"] == str(entry["fits"])


def test_rows_of_one_placement_and_other_figures_stay_apart(found):
    """TensorFlow's default may not fit where the same placement, loaded as planned, does."""
    rows = strategies(found)
    alike = replace(rows["halves"], name="alike")
    more = {**alike.required_bytes, "GPU:0": 1 << 40}
    loaded = replace(alike, name="as-loaded", required_bytes=more)
    known = replace(found, strategies=(rows[OURS], rows["halves"], alike, loaded))
    text = render(lambda w: comparison_blocks(known, w), "text", width=100, colour=False)
    assert re.search(r"^  halves +.*same figures: alike$", text, re.M)
    assert re.search(r"^as-loaded +", text, re.M)


def test_the_best_of_each_column_is_marked(found):
    """Of strategies that fit only, in bold in Markdown."""
    markdown = render(lambda w: comparison_blocks(found, w), "markdown", width=80, colour=False)
    bold = [line for line in markdown.splitlines() if line.startswith("|") and "**" in line]
    assert bold
    names = {line.split("|")[1].strip().replace("\\", "") for line in bold}
    fitting = {strategy.name for strategy in found.strategies if strategy.fits}
    assert names <= fitting
