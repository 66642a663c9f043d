"""Predictions beside what TensorFlow itself recorded."""

import json
from pathlib import Path

import pytest
from fuzzing.warm_children import run_python

MODELS = ("cnn", "mlp_adam", "mlp_adam_ref", "loop", "tied", "whole_batch", "four_pieces")
MASKED = ("masked", "masked_in_order")


@pytest.fixture(scope="module")
def steps():
    """Recorded and predicted values of every model, from one run of ``recorded_steps.py``."""
    program = Path(__file__).with_name("recorded_steps.py")
    found = run_python([program])
    assert found.returncode == 0, found.stderr[-2000:]
    return json.loads(found.stdout)


@pytest.mark.parametrize("model", MODELS + MASKED)
def test_the_peak_agrees_with_the_allocation_records(steps, model):
    """In the order that ran, the predicted peak is within 0.5% of the recorded one."""
    step = steps[model]
    assert step["predicted_bytes"] == pytest.approx(step["recorded_bytes"], rel=0.005)


@pytest.mark.parametrize("model", MODELS + MASKED)
def test_the_range_of_peaks_covers_what_ran(steps, model):
    """Without knowing the order, the recorded peak is between the low and the high one."""
    step = steps[model]
    assert step["low_bytes"] <= step["recorded_bytes"] <= step["high_bytes"]
    assert step["high_bytes"] < 1.5 * step["low_bytes"]


@pytest.mark.parametrize("model", MODELS)
def test_the_executor_is_followed_op_by_op(steps, model):
    """Given only in which order the ops that wait for nothing came, and the consumers of ops with
    more than eight of them, the whole recorded order follows."""
    assert steps[model]["followed_order"] == steps[model]["recorded_order"]


@pytest.mark.parametrize("model", MODELS)
def test_transfers_agree_with_the_partition_graphs(steps, model):
    """For random placements on three devices every send was predicted, and nothing else."""
    step = steps[model]
    assert len(step["recorded_sends"]) >= 3
    assert step["predicted_sends"] == step["recorded_sends"]


def test_control_edges_and_feeds_are_among_them(steps):
    """The comparison covers data, control edges, fed and fetched values."""
    sends = [tuple(send) for model in MODELS for send in steps[model]["recorded_sends"]]
    assert any(tensor.startswith("^") for tensor, _, _ in sends)
    assert any(tensor in ("x:0", "labels:0") for tensor, _, _ in sends)


def test_pieces_of_a_batch_cut_the_recorded_peak_by_what_was_predicted(steps):
    """Four pieces hold little more than a quarter of the activations, and the prediction says so
    within 10%."""
    whole, pieces = steps["whole_batch"], steps["four_pieces"]
    saved = whole["recorded_bytes"] - pieces["recorded_bytes"]
    assert saved > 0.5 * whole["recorded_bytes"]
    assert whole["expected_bytes"] - pieces["expected_bytes"] == pytest.approx(saved, rel=0.1)


def test_control_edges_cut_the_recorded_peak_by_what_was_predicted(steps):
    """With its masks made one at a time, the step holds less than half, as predicted within 10%."""
    free, ordered = steps["masked"], steps["masked_in_order"]
    saved = free["recorded_bytes"] - ordered["recorded_bytes"]
    assert saved > 0.5 * free["recorded_bytes"]
    assert free["expected_bytes"] - ordered["expected_bytes"] == pytest.approx(saved, rel=0.1)
