"""What a CPU that stands in for a GPU needs, and that a rehearsal allows it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

import placer
from placer.application.running.program_runs import RunOptions
from placer.application.verifying.memory_rehearsal import rehearse_memory
from placer.application.verifying.stand_in_needs import stand_in_needs
from placer.extraction.reading.loading import load_program
from placer.prediction.memory.allocator import CHUNK_BYTES

v1 = tf.compat.v1
BELOW = 0.97


def with_caps(plan, **caps):
    """The plan with other caps, by device (``GPU_1``)."""
    found = {name.replace("_", ":"): cap for name, cap in caps.items()}
    return replace(
        plan,
        devices=tuple(
            replace(row, memory_limit_bytes=found.get(row.name, row.memory_limit_bytes))
            for row in plan.devices
        ),
    )


def gpu(plan, name):
    return next(row for row in plan.devices if row.name == name)


@pytest.fixture(scope="module")
def convolutions(tmp_path_factory):
    """The gradient of a filter on GPU:1, of images that GPU:0 makes: unfolded, they take 30 MiB on
    a CPU and nothing on a GPU."""
    with tf.Graph().as_default() as graph:
        images = v1.placeholder(tf.float32, [32, 64, 64, 8], "images")
        doubled = tf.add(images, images, name="doubled")
        gradient = tf.raw_ops.Conv2DBackpropFilter(
            input=doubled,
            filter_sizes=[3, 3, 8, 8],
            out_backprop=doubled,
            strides=[1, 1, 1, 1],
            padding="SAME",
            name="gradient",
        )
        tf.reduce_sum(gradient, name="total")
    path = tmp_path_factory.mktemp("convolutions") / "graph.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    pins = {"doubled": "GPU:0", "gradient": "GPU:1"}
    # a CPU tunes no convolution: with red zones the card's need would leave it room
    options = {"pins": pins, "time_limit": 10.0, "red_zones": False}
    return path, placer.place(path, "2xGPU:1GiB", **options)


def test_a_plan_is_served_at_what_its_cards_need(convolutions):
    """The process of GPU:1 may have what a CPU's kernel needs more, and the answer says so; with
    0.97 of what the card needs it may not, and the device and the op are named."""
    path, plan = convolutions
    need = gpu(plan, "GPU:1").need_bytes
    at_need = with_caps(plan, GPU_1=need)
    found = placer.verify(path, at_need, memory=True).raise_for_mismatch()
    (row,) = (row for row in found.memory.devices if row.device == "GPU:1")
    assert row.cap_bytes == need < row.peak_bytes <= row.limit_bytes
    assert 0 <= row.stand_in_need_bytes - row.limit_bytes < CHUNK_BYTES
    assert "more is needed there than is planned" in " ".join(found.summary().split())

    below = with_caps(plan, GPU_1=int(BELOW * need))
    program, images = load_program(path), {"images": np.zeros([32, 64, 64, 8], np.float32)}
    out = rehearse_memory(program, below, images, RunOptions()).out_of_memory
    assert (out.device, out.op) == ("GPU:1", "gradient")


def test_caps_with_room_are_not_looked_into(convolutions):
    """Nor are those that do not serve as planned."""
    path, plan = convolutions
    need = gpu(plan, "GPU:1").need_bytes
    program = load_program(path)
    assert stand_in_needs(program, plan) == {}
    assert stand_in_needs(program, with_caps(plan, GPU_1=need - 256)) == {}
    assert stand_in_needs(program, with_caps(plan, GPU_1=need))["GPU:1"] > need
