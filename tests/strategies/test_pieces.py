"""Micro-batches against the whole batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from strategies.test_replicas import Recorded, tf_sgd
from strategies.training_programs import PROGRAMS

import placer
from placer.errors import NoSolutionError, UsageError


def test_a_piece_begins_when_the_one_before_has_ended():
    """Every op of the second piece that computes something comes after the first one's gradient."""
    loss_of, variables, data = PROGRAMS["recommender"](8)
    step = placer.micro_batches(loss_of, 2, optimizer=Recorded(), variables=variables)
    graph = placer.extract(step.get_concrete_function(*data)).graph
    first = [op for op in graph.ops if "piece_0/" in op]
    second = {op for op in graph.ops if "piece_1/" in op and graph.ops[op].inputs}
    assert len(first) > 5
    assert len(second) > 5
    after: dict[str, set[str]] = {}
    for op in graph.ops.values():
        before = {name.rpartition(":")[0] for name in op.inputs} | set(op.control_inputs)
        after[op.name] = before.union(*(after.get(name, set()) for name in before))
    computing = {op for op in first if graph.ops[op].op_type == "MatMul"}
    for op in second:
        if graph.ops[op].op_type == "MatMul":
            assert computing <= after[op]


def test_pieces_in_flight_are_a_pipeline():
    """Two layers on two devices, four pieces: with two in flight the devices overlap, and the
    predicted step is shorter; the losses are the same."""
    weights = [tf.Variable(tf.random.stateless_normal((512, 512), seed=(i, 0))) for i in range(2)]
    x = tf.random.stateless_normal((4096, 512), seed=(5, 6))

    def loss_of(part):
        with tf.device("/GPU:0"):
            part = tf.tanh(part @ weights[0])
        with tf.device("/GPU:1"):
            return tf.reduce_mean(tf.square(part @ weights[1]))

    seconds, losses = {}, {}
    for in_flight in (1, 2):
        step = placer.micro_batches(
            loss_of, 4, in_flight=in_flight, optimizer=tf_sgd(weights), variables=weights
        )
        program = step.get_concrete_function(x)
        plan = placer.place(program, devices="2xT4", time_limit=3.0)
        seconds[in_flight] = plan.metrics.step_seconds
        placed = placer.apply(program, plan)
        placer.verify(placed, plan, [x]).raise_for_mismatch()
        losses[in_flight] = float(placed(x))
    assert seconds[2] < 0.8 * seconds[1]
    assert losses[1] == pytest.approx(losses[2], rel=1e-5)


def test_outputs_of_inference_in_pieces_are_those_of_the_whole():
    """Bit for bit, for a function of each example."""
    weights = tf.random.stateless_normal((16, 4), seed=(1, 2))
    x = tf.random.stateless_normal((10, 16), seed=(3, 4))
    whole = tf.function(lambda x: tf.nn.relu(x) * weights[:, 0])(x)
    pieces = placer.micro_batches(lambda x: tf.nn.relu(x) * weights[:, 0], 4)(x)
    assert np.array_equal(whole, pieces)


def test_the_fewest_pieces_that_fit_are_found():
    """One device with room for the weights and a part of the activations: so many pieces fit, one
    less does not, and where not even the weights fit nothing does."""
    weights = [tf.Variable(tf.zeros((64, 64)), name=f"w{i}") for i in range(4)]

    def loss_of(part):
        for weight in weights:
            part = tf.tanh(part @ weight)
        return tf.reduce_mean(part)

    def build(pieces):
        step = placer.micro_batches(loss_of, pieces, optimizer=tf_sgd(weights), variables=weights)
        return step.get_concrete_function(tf.TensorSpec((512, 64)))

    request = {"offload": "never", "time_limit": 2.0}
    pieces, plan = placer.fewest_pieces(build, "GPU:500KiB", **request)
    assert plan.fits
    assert 1 < pieces < 32
    assert not placer.place(build(pieces - 1), "GPU:500KiB", **request).fits
    with pytest.raises(NoSolutionError, match=r"do not shrink with them; .*most="):
        placer.fewest_pieces(build, "GPU:60KiB", most=4, **request)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: placer.micro_batches(abs, 0), "pieces is 0; give a whole number"),
        (lambda: placer.micro_batches(abs, 3)(tf.zeros((2, 2))), "at least 3"),
        (lambda: placer.micro_batches(abs, 2, outputs="max"), "can be concat, mean, sum"),
    ],
)
def test_wrong_requests_are_refused(call: Any, told: str):
    """With what was found and what would work."""
    with pytest.raises(UsageError, match=told):
        call()
