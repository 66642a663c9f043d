"""Servers with simulated GPUs, two each: everything but the values is as on cards."""

import numpy as np
import pytest
import tensorflow as tf
from server_processes import Cluster
from simulation.simulated_runs import require_simulation

import placer

v1 = tf.compat.v1


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    require_simulation()
    found = Cluster(tmp_path_factory.mktemp("cluster"), 2, gpus=2)
    yield found
    found.close()


def test_a_step_runs_on_the_gpus_of_two_machines(cluster, tmp_path):
    """Every op is on its GPU; what two GPUs of a task read is sent there once, and sent on."""
    gpu = "/job:worker/task:{}/device:GPU:{}".format
    with tf.Graph().as_default():
        hidden = v1.placeholder(tf.float32, [8, 16], name="x")
        for number in range(4):
            kernel = v1.get_variable(f"w{number}", [hidden.shape[1], 32], use_resource=True)
            hidden = tf.tanh(hidden @ kernel, name=f"layer{number}")
        loss = tf.reduce_mean(tf.square(hidden - 0.5), name="loss")
        v1.train.AdamOptimizer(0.01).minimize(loss, name="train")
        v1.global_variables_initializer()
        v1.train.Saver().export_meta_graph(str(tmp_path / "step.meta"))
    pins = {f"{op}{n}*": gpu(n // 2, n % 2) for n in range(4) for op in ("w", "layer")}
    plan = placer.place(
        tmp_path / "step.meta", cluster.file, outputs=("^train", "loss:0"), pins=pins, time_limit=2
    )
    placed = placer.apply(tmp_path / "step.meta", plan, tmp_path / "placed.meta")
    with placer.ClusterSession(placed, cluster.file) as session:
        session.run("init")
        session.run(["loss:0", "train"], {"x:0": np.ones((8, 16), np.float32)})
        session.restore(session.save(tmp_path / "saved"))
    found = placer.verify(tmp_path / "step.meta", plan, cluster=cluster.file)
    assert {row.code for row in found.ops} == {"", "fed"}
    assert {row.actual for row in found.ops} > {gpu(task, n) for task in (0, 1) for n in (0, 1)}
    assert {row.code for row in found.transfers} == {"", "forwarded"}
    for row in found.transfers:
        if row.code:
            assert (row.source[:18] == row.target[:18]) is row.actual, row
