"""Pipelines: predicted, built and run so that the devices work on different pieces at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from strategies.test_replicas import tf_sgd
from tensorflow.core.framework import graph_pb2

import placer
from placer.rendering.results import render_result

LAYERS, WIDTH, BATCH, PIECES = 4, 512, 2048, 8
CLUSTER = """
[[device]]
name = "GPU:0"
type = "GPU"
memory = "16GiB"
peak_flops = 1e11
memory_bandwidth = 1e11

[[device]]
name = "GPU:1"
type = "GPU"
memory = "16GiB"
peak_flops = 1e11
memory_bandwidth = 1e11

[[device]]
name = "CPU:0"
type = "CPU"
memory = "16GiB"
peak_flops = 1e9
memory_bandwidth = 1e11

[default_link]
bandwidth = 1e11
latency = 1e-6
"""
STAGES = {
    "*layer_0/*": "GPU:0",
    "*layer_1/*": "GPU:0",
    "*layer_2/*": "GPU:1",
    "*layer_3/*": "GPU:1",
}
REQUEST: dict[str, Any] = {"batch_size": BATCH, "time_limit": 2.0}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two equal GPUs, and a host that computes slowly."""
    path = tmp_path_factory.mktemp("cluster") / "cluster.toml"
    path.write_text(CLUSTER)
    return path


def layers(x: Any, weights: Any) -> Any:
    for number, weight in enumerate(weights):
        with tf.name_scope(f"layer_{number}"):
            x = tf.nn.relu(x @ weight)
    return x


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GraphDef of equal layers of unknown batch size."""
    random = np.random.default_rng(1)
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, (None, WIDTH), name="x")
        shape = (LAYERS, WIDTH, WIDTH)
        weights = random.normal(scale=WIDTH**-0.5, size=shape).astype(np.float32)
        tf.identity(layers(x, list(weights)), name="y")
    path = tmp_path_factory.mktemp("stack") / "stack.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return path


@pytest.fixture(scope="module")
def plan(stack: Path, cluster: Path) -> placer.Plan:
    """The stack as a pipeline."""
    return placer.place(stack, cluster, strategy=f"pipeline:{PIECES}", pins=STAGES, **REQUEST)


def test_the_predicted_step_is_that_of_a_full_pipeline(stack: Path, cluster: Path, plan):
    """Of the work on two devices, nine sixteenths: eight pieces and one to fill.  One placement
    takes all of it."""
    work = sum(device.busy_seconds for device in plan.devices)
    assert plan.metrics.step_seconds == pytest.approx(work * (PIECES + 1) / (2 * PIECES), rel=0.1)
    whole = placer.place(stack, cluster, objective="step-time", **REQUEST)
    assert whole.metrics.step_seconds > 1.5 * plan.metrics.step_seconds


def test_a_stage_works_on_the_next_piece_while_the_next_stage_works_on_this_one(
    stack: Path, plan, tmp_path: Path
):
    """What is built: the first stage begins a piece when it is done with the one before, whatever
    the second stage still does of that.  What runs, by TensorFlow's step stats: each stage one
    piece after the other, and two pieces at once on the two devices."""
    path = tmp_path / "placed.pb"
    placer.apply(stack, plan, path)
    placed = graph_pb2.GraphDef.FromString(path.read_bytes())
    for node in placed.node:  # two CPU devices in place of the GPUs
        node.device = node.device.replace("GPU", "CPU")
    for piece in range(PIECES - 1):
        waits_for = ancestors(placed, f"piece_{piece + 1}/layer_0/matmul")
        assert f"piece_{piece}/layer_1/Relu" in waits_for
        assert f"piece_{piece}/layer_2/matmul" not in waits_for
        waits_for = ancestors(placed, f"piece_{piece + 1}/layer_2/matmul")
        assert f"piece_{piece}/layer_3/Relu" in waits_for
    overlaps = 0
    for spans in stage_spans(placed, steps=12):
        for piece in range(PIECES - 1):
            for stage in (0, 1):
                assert spans[piece + 1, stage][0] >= spans[piece, stage][1]
            overlaps += spans[piece + 1, 0][0] < spans[piece, 1][1]
    assert overlaps  # on a busy machine, only now and then


def ancestors(graph_def: Any, name: str) -> set[str]:
    """All ops that an op waits for, directly or not."""
    inputs = {
        node.name: {text.lstrip("^").partition(":")[0] for text in node.input}
        for node in graph_def.node
    }
    found: set[str] = set()
    stack = [name]
    while stack:
        new = inputs[stack.pop()] - found
        found |= new
        stack.extend(new)
    return found


Spans = dict[tuple[int, int], tuple[int, int]]


def stage_spans(graph_def: Any, steps: int) -> Iterator[Spans]:
    """Of every step: when each piece begins and ends on each of two devices with a thread each
    (microseconds)."""
    v1 = tf.compat.v1
    config = v1.ConfigProto(
        device_count={"CPU": 2},
        intra_op_parallelism_threads=1,
        inter_op_parallelism_threads=2,
        use_per_session_threads=True,
    )
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(graph_def, name="")
        with v1.Session(graph=graph, config=config) as session:
            feeds = {"x:0": np.ones((BATCH, WIDTH), np.float32)}
            for _ in range(steps):
                metadata = v1.RunMetadata()
                traced = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
                session.run("y:0", feeds, options=traced, run_metadata=metadata)
                yield spans_of(metadata.step_stats)


def spans_of(step_stats: Any) -> Spans:
    """By piece and device, from the first op of a layer to the last."""
    spans: Spans = {}
    for device in step_stats.dev_stats:
        stage = int(device.device.rpartition(":")[2])
        for node in device.node_stats:
            if not node.node_name.endswith(("/matmul", "/Relu")):
                continue  # such as what is received
            piece = int(node.node_name.partition("piece_")[2].partition("/")[0])
            begin = node.all_start_micros + node.op_start_rel_micros
            end = node.all_start_micros + node.op_end_rel_micros
            first, last = spans.get((piece, stage), (begin, end))
            spans[piece, stage] = min(first, begin), max(last, end)
    return spans


def test_a_training_step_is_a_pipeline_too():
    """With the layers on two devices and pieces in flight, forward and backward: nearly twice as
    fast as piece by piece, in fewer activations than with all pieces at once."""
    weights = [tf.Variable(tf.ones((WIDTH, WIDTH))) for _ in range(LAYERS)]
    seconds, peaks = {}, {}
    for in_flight in (1, 3, PIECES):
        step = placer.micro_batches(
            lambda x: tf.reduce_mean(layers(x, weights)),
            PIECES,
            in_flight=in_flight,
            optimizer=tf_sgd(weights),
            variables=weights,
        )
        program = step.get_concrete_function(tf.TensorSpec((16 * BATCH, WIDTH)))
        stages = dict(STAGES)
        plan = placer.place(program, "2xT4", pins=stages, time_limit=30.0)
        assert plan.solver.status == "OPTIMAL"  # within a second, but for a busy machine
        assert bool(plan.control_edges) == (in_flight > 1)
        seconds[in_flight] = plan.metrics.step_seconds
        peaks[in_flight] = plan.peak_bytes["GPU:0"]
    assert seconds[3] < 0.7 * seconds[1]
    assert peaks[1] < peaks[3] < peaks[PIECES]


def test_the_pieces_of_a_training_step_share_their_devices():
    """What one piece does on a device, the others do there as well, though nothing asks for it."""
    weights = [tf.Variable(tf.ones((64, 64))) for _ in range(LAYERS)]
    step = placer.micro_batches(
        lambda x: tf.reduce_mean(layers(x, weights)),
        4,
        in_flight=3,
        optimizer=tf_sgd(weights),
        variables=weights,
    )
    program = step.get_concrete_function(tf.TensorSpec((64, 64)))
    plan = placer.place(program, "2xT4", objective="throughput", time_limit=2.0)
    for layer in range(LAYERS):
        names = [n for n in plan.placement if n.endswith(f"/layer_{layer}/matmul")]
        assert len(names) == 4
        assert len({plan.placement[name] for name in names}) == 1


def recurrent(x: Any, weights: Any) -> Any:
    """Two loops over time with a layer before each."""
    for weight in weights:
        x = tf.tanh(x @ weight)
        for _ in tf.range(3):
            x = tf.tanh(x * 0.5)
    return x


def test_a_pipeline_of_loops_gives_what_the_whole_gives():
    """Control edges end and begin where they may: not at the loops."""
    weights = [tf.Variable(tf.random.stateless_normal((16, 16), (1, i))) for i in range(2)]
    spec = [tf.TensorSpec((None, 16))]
    function = tf.function(lambda x: recurrent(x, weights), input_signature=spec)
    plan = placer.place(
        function, "2xT4", batch_size=8, strategy="pipeline:4", pins={"*matmul_1": "GPU:1"},
        time_limit=1.0,
    )  # fmt: skip
    placer.verify(function, plan).raise_for_mismatch()


def test_a_plan_that_divides_the_batch_says_that_the_whole_was_not_tried(stack: Path):
    """In the JSON and the page of a plan; not where the number of pieces shows it."""
    plan = placer.place(stack, "2xT4", strategy="micro-batches:4", **REQUEST)
    told = "The whole batch may be faster than "
    rows = json.loads(render_result(plan, "json", width=80))["warnings"]
    assert [told in row["message"] for row in rows if row["code"] == "whole_instead"] == [True]
    assert told in render_result(plan, "html", width=80)
    plan = placer.place(stack, "2xT4", strategy="micro-batches", **REQUEST)
    assert "whole_instead" not in [warning.code for warning in plan.warnings]
