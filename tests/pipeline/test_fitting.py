"""Training steps that do not fit are rewritten until they do; held against what they train."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from long_tests import long_test
from simulation.simulated_runs import require_simulation, with_caps

import placer
from cost_models.clusters import parse_cluster
from placer.errors import UsageError
from placer.extraction import extract
from placer.fitting.fitted_step import FitRequest
from placer.fitting.step_fitting import fit_step
from placer.pipeline import fitting as fit_pipeline
from placer.pipeline.fitting import fit_workload
from placer.pipeline.fixes import placements_of
from placer.pipeline.pipeline import _fit_instead
from placer.pipeline.preparation import prepare
from placer.pipeline.searching import find_placement
from placer.pipeline.solved_plan import fitted_plan
from placer.plan.request import Options, read_share
from placer.prediction.costs.op_costs import estimate_costs
from placer.prediction.prediction import predict
from placer.problem.status import Status
from placer.rendering.results import render_result

pytestmark = pytest.mark.slow

DEPTH, WIDTH, BATCH = 8, 64, 2048

SLOW_CARD = """
[[device]]
name = "GPU:0"
type = "GPU"
memory = "16GiB"
peak_flops = 1e10
memory_bandwidth = 1e9

[[device]]
name = "CPU:0"
type = "CPU"
memory = "16GiB"
peak_flops = 1e10
memory_bandwidth = 1e10

[[link]]
from = "GPU:0"
to = "CPU:0"
bandwidth = 12e9
latency = 10e-6

[[link]]
from = "CPU:0"
to = "GPU:0"
bandwidth = 12e9
latency = 10e-6
"""


def training_step():
    """The step of a deep perceptron whose activations take 8 times as much as all else, and the
    function that builds it anew with the same values."""
    import tensorflow as tf

    rng = np.random.default_rng(0)
    weights = [
        tf.Variable(rng.normal(0, 0.1, (WIDTH, WIDTH)).astype(np.float32)) for _ in range(DEPTH)
    ]

    @tf.function(input_signature=[tf.TensorSpec((BATCH, WIDTH), tf.float32)])
    def step(x):
        with tf.GradientTape() as tape:
            h = x
            for weight in weights:
                h = tf.nn.softplus(tf.tanh(tf.matmul(h, weight)) * 1.5)
            loss = tf.reduce_mean(h * h)
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.01 * gradient)
        return loss

    return step, weights


def needed(plan) -> int:
    return next(row.need_bytes for row in plan.devices if row.name == "GPU:0")


@pytest.fixture(scope="module")
def step():
    return training_step()


@pytest.fixture(scope="module")
def free(step):
    return placer.place(step[0], "1xT4", time_limit=10)


def fitted(step, free, share: float, **options):
    """The plan for a share of what the free step needs."""
    cap = int(share * needed(free))
    given = {"fit": "recompute", "offload": "never", "time_limit": 90, **options}
    return placer.place(step[0], "1xT4", max_memory={0: cap}, **given), cap


def test_what_does_not_fit_is_computed_again(step, free):
    """At three quarters and at 0.6 of what the step needs, all on the accelerator; a smaller budget
    takes no less time.  Without ``fit`` nothing fits, as is proven."""
    large, cap = fitted(step, free, 0.75)
    assert large.fits
    assert needed(large) <= cap
    assert large.rewriting.clones
    assert large.metrics.fit_extra_seconds > 0
    # the optimum and its bound were those of the step as it was
    assert (large.solver.status, large.solver.lower_bound) == ("FEASIBLE", None)
    assert json.loads(large.to_json())["solver"]["relative_gap"] is None
    assert "no lower bound proven" in render_result(large, "text", width=80)
    assert "no lower bound proven" in render_result(large, "html", width=80)
    small, cap = fitted(step, free, 0.6)
    assert small.fits
    assert needed(small) <= cap
    assert len(small.rewriting.clones) >= len(large.rewriting.clones)
    assert small.metrics.step_seconds >= free.metrics.step_seconds
    text = small.summary()
    assert "computed twice" in text
    assert "made to fit" in text
    without, _ = fitted(step, free, 0.6, fit="", time_limit=4)
    assert without.solver.status == "INFEASIBLE"


def test_a_busy_machine_finds_a_step_too(step):
    """With no time given: six budgets are tried however long that takes; with too little the
    search ends before them, and says so."""
    graph = extract(step[0]).graph
    costs, placement = estimate_costs(graph), dict.fromkeys(graph.ops, "CPU:0")
    free = parse_cluster("CPU:64GiB", None, None)
    peak = predict(graph, costs, placement, free, with_needs=False).peaks["CPU:0"].high_bytes
    cluster = parse_cluster(f"CPU:{round(0.7 * peak)}B", None, None)
    request = FitRequest(means=("recompute",), seconds=0.0, with_needs=False)
    found = fit_step(graph, costs, placement, cluster, request)
    assert found.fits
    assert not found.is_cut
    assert found.rewriting.clones
    smaller = parse_cluster(f"CPU:{round(0.2 * peak)}B", None, None)
    late = fit_step(graph, costs, placement, smaller, replace(request, seconds=1e-9))
    assert not late.fits
    assert late.is_cut


@pytest.mark.parametrize(("card", "is_hidden"), [("T4", False), ("slow", True)])
def test_of_both_what_takes_less_time_is_done(step, tmp_path, card, is_hidden):
    """Beside recomputation a step takes no longer than with either alone: on a quick card some
    tensors wait on the host and others are computed again; on one that is slow beside its link all
    wait there, which takes no time at all."""
    slow = tmp_path / "cluster.toml"
    slow.write_text(SLOW_CARD)
    devices = "1xT4" if card == "T4" else str(slow)
    graph = extract(step[0]).graph
    costs, placement = estimate_costs(graph), dict.fromkeys(graph.ops, "GPU:0")
    free = parse_cluster(devices, None, None)
    peak = predict(graph, costs, placement, free, with_needs=False).peaks["GPU:0"].high_bytes
    cluster = parse_cluster(devices, {"GPU:0": f"{round(0.7 * peak)}B"}, "0")
    swap, recompute, both = (
        fit_step(
            graph, costs, placement, cluster, FitRequest(means=m, seconds=0.0, with_needs=False)
        )
        for m in (("swap",), ("recompute",), ("recompute", "swap"))
    )
    assert swap.fits
    assert recompute.fits
    assert swap.rewriting.swaps
    assert recompute.rewriting.clones
    assert both.rank <= min(swap.rank, recompute.rank)
    assert (swap.slowdown < 0.001) == is_hidden
    assert bool(both.rewriting.clones) != is_hidden
    assert both.rewriting.swaps


def test_a_step_within_its_caps_fits(step, free, monkeypatch):
    """Where ops were placed for more memory, and are over that, what counts is what they are made
    to fit."""
    told = ("peak_over_cap", "above a cap that nobody gave")
    monkeypatch.setattr(
        fit_pipeline,
        "find_placement",
        lambda asked: replace(find_placement(asked), status=Status.UNKNOWN, warnings=(told,)),
    )
    cap = {0: int(0.75 * needed(free))}
    wanted = Options(fit="recompute", offload="never", max_memory=cap, time_limit=5)
    fitted = fit_workload(prepare(step[0], "1xT4", wanted))
    plan = fitted_plan(fitted)
    assert plan is not None
    assert plan.solver.seconds == fitted.seconds > fitted.solution.seconds  # rewriting is counted
    assert plan.fits
    assert plan.rewriting.clones
    assert told[0] not in [row.code for row in plan.warnings]


def test_another_batch_is_tried_with_the_step_as_it_is(step):
    """What would fit where nothing does is looked for without rewriting: a limit of what that may
    take is no contradiction."""
    wanted = Options(fit="auto", max_slowdown="30%", time_limit=2)
    attempt = placements_of(prepare(step[0], "1xT4", wanted))
    plan = attempt("1xT4", replace(wanted, batch_size=64))
    assert plan.fits
    assert not plan.rewriting


def test_it_trains_the_same(step, free):
    """Losses and weights after three steps are those of the function as it is, bit for bit."""
    peak = placer.place(step[0], "CPU:64GiB", time_limit=10).devices[0].need_bytes
    cap = {"cpu": int(0.8 * peak)}
    plan = placer.place(step[0], "CPU:64GiB", max_memory=cap, fit="recompute", time_limit=90)
    assert plan.fits
    assert plan.rewriting.clones
    x = np.random.default_rng(1).normal(size=(BATCH, WIDTH)).astype(np.float32)
    plain, weights = training_step()
    expected = [float(plain(x)) for _ in range(3)], [weight.numpy() for weight in weights]
    other, weights = training_step()
    placed = placer.apply(other, plan)
    losses = [float(np.asarray(placed(x)).reshape(())) for _ in range(3)]
    assert losses == expected[0]
    for mine, his in zip(weights, expected[1], strict=True):
        np.testing.assert_array_equal(mine.numpy(), his)


def test_what_fits_stays_as_it_is(step, free):
    plan, _ = fitted(step, free, 1.05)
    assert plan.fits
    assert not plan.rewriting
    assert not plan.control_edges
    assert plan.metrics.fit_extra_seconds is None


def test_more_time_than_allowed_is_not_taken(step, free):
    """The plan says by how much the nearest step is over."""
    plan, _ = fitted(step, free, 0.6, max_slowdown="0%", time_limit=8)
    assert not plan.fits
    (warning,) = [row for row in plan.warnings if row.code == "fit_not_enough"]
    assert "within 0% more time" in warning.message


def test_a_cap_below_the_working_set_names_the_op(step, free):
    plan, _ = fitted(step, free, 0.05, time_limit=4)
    assert (plan.solver.status, plan.proof) == ("UNKNOWN", "proven without --fit")
    assert plan.conflict is not None
    (warning,) = [row for row in plan.warnings if row.code == "fit_not_enough"]
    assert "with any rewriting, GPU:0 requires at least" in warning.message
    assert "longer" not in warning.message  # it would be in vain
    assert warning.ops


def test_inference_is_told_that_there_is_nothing_to_recompute():
    import tensorflow as tf

    weight = tf.Variable(tf.ones((WIDTH, WIDTH)))

    @tf.function(input_signature=[tf.TensorSpec((BATCH, WIDTH), tf.float32)])
    def infer(x):
        return tf.nn.softplus(tf.tanh(tf.matmul(x, weight)))

    plan = placer.place(infer, "1xT4", fit="recompute", time_limit=10)
    assert "nothing_to_recompute" in [row.code for row in plan.warnings]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"fit": "recompute,shrink"}, "fit must be auto alone, .* got 'recompute,shrink'"),
        ({"max_slowdown": "30%"}, "requires fit"),
        ({"fit": "auto", "max_slowdown": "much"}, "max_slowdown must be a share .* got 'much'"),
        ({"fit": "auto", "order": "memory"}, "leave out order"),
        ({"fit": ","}, "fit must be auto alone, .* got ','"),
        ({"fit": "auto", "strategy": "micro-batches:2"}, "leave out one"),
    ],
)
def test_requests_that_make_no_sense_are_refused(options, told):
    with pytest.raises(UsageError, match=told):
        Options(**options)
    assert read_share("12.5%") == 0.125


@long_test
def test_two_devices_and_recomputation_together(step, free):
    """At 0.31 of what the step needs it fits neither two devices, as is proven, nor one that
    computes again, but two that do: applied, and served by two simulated GPUs with a tenth more,
    since small gradients come at other moments there and leave other gaps."""
    cap = int(0.31 * needed(free))
    caps, fit = {0: cap, 1: cap}, "release,order,recompute"
    place = functools.partial(placer.place, step[0], offload="never")
    assert place("2xT4", max_memory=caps, time_limit=4).solver.status == "INFEASIBLE"
    assert not place("1xT4", max_memory={0: cap}, fit=fit, time_limit=10).fits
    plan = place("2xT4", max_memory=caps, fit=fit, time_limit=40)
    assert plan.fits
    assert plan.rewriting.clones
    assert {"GPU:0", "GPU:1"} <= {*plan.placement.values()}
    assert plan.solver.status == "FEASIBLE"  # the extra time is not proven to be the least
    require_simulation()
    roomy = with_caps(plan, dict.fromkeys(("GPU:0", "GPU:1"), int(1.1 * cap)))
    found = placer.verify(step[0], roomy, memory=True).raise_for_mismatch().memory
    assert found.out_of_memory is None
    assert max(row.peak_bytes for row in found.devices) <= 1.1 * cap


def test_two_devices_and_what_one_alone_would_swap(step, free):
    """At 0.4 of what the step needs, where no placement alone fits two devices: a little over each
    is made to fit, so that the step takes at most a third longer than with memory for all."""
    cap = int(0.4 * needed(free))
    options = {"max_memory": {0: cap, 1: cap}, "fit": "auto", "offload": "never"}
    plan = placer.place(step[0], "2xT4", time_limit=20, **options)
    assert plan.fits
    assert {"GPU:0", "GPU:1"} <= {*plan.placement.values()}
    assert plan.rewriting.swaps or plan.rewriting.clones
    assert plan.metrics.step_seconds < 1.34 * free.metrics.step_seconds


def test_a_plan_that_spills_names_the_other_way(step, free):
    """Where ops of a training step are spilled, that it may be rewritten instead is said, and that
    this was not tried."""
    cap = int(0.6 * needed(free))
    plan = placer.place(step[0], "1xT4", max_memory={0: cap}, time_limit=20)
    assert any(device.spilled_bytes for device in plan.devices)
    (warning,) = [row for row in plan.warnings if row.code == "fit_instead"]
    assert "--fit auto" in warning.message
    assert "(not tried)" in warning.message
    roomy = [replace(row, usable_bytes=16 << 30) for row in plan.devices]  # no limit is why then
    assert (
        _fit_instead(replace(plan, devices=tuple(roomy)), SimpleNamespace(wanted=Options())) is None
    )
