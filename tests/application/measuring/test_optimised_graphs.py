"""What Grappler makes of a placed graph, asked ahead, beside what a session of it really runs."""

import re

import numpy as np
import pytest

from placer.application.measuring.optimised_graphs import optimise_graph
from placer.extraction import extract
from placer.pipeline.pipeline import place

tf = pytest.importorskip("tensorflow")
v1 = tf.compat.v1

CPUS = [
    (f"/job:localhost/replica:0/task:0/device:CPU:{n}", "CPU", 1e12, 50e9, 8 << 30)
    for n in range(2)
]
_GPU = "/job:localhost/replica:0/task:0/device:GPU:0"
_MOVED = {"_Send", "_Recv", "_HostSend", "_HostRecv", "_Arg", "_Retval", "Placeholder"}
_RUNTIME = re.compile(r".+/_\d+")
"""What cutting the graph adds after Grappler: copies of constants, control transfers."""


def _training_step(devices=("/device:CPU:0", "/device:CPU:1")):
    """A step of a small network over two devices, with something to fold and something to fuse."""
    x = v1.placeholder(tf.float32, (8, 12, 12, 3), name="x")
    labels = v1.placeholder(tf.int64, (8,), name="labels")
    with tf.device(devices[0]):
        filters = v1.get_variable("filters", (3, 3, 3, 8), use_resource=True)
        bias = v1.get_variable("bias", (8,), use_resource=True)
        h = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, filters, 1, "SAME"), bias), name="h")
        h = tf.reshape(tf.nn.max_pool2d(h, 2, 2, "SAME"), (8, -1))
    with tf.device(devices[1]):
        weights = v1.get_variable("weights", (6 * 6 * 8, 10), use_resource=True)
        scale = tf.add(tf.constant(2.0), tf.constant(1.0), name="scale")
        logits = tf.identity(h @ weights) * scale
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        loss = tf.reduce_mean(losses, name="loss")
        v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss, name="train")


@pytest.fixture(scope="module")
def graph():
    """The graph of a training step, with its initialisers."""
    with tf.Graph().as_default() as graph:
        _training_step()
        v1.global_variables_initializer()
    return graph


def _ran(graph):
    """(op type, device) by name of what a session with Grappler on ran."""
    config = v1.ConfigProto(device_count={"CPU": 2}, allow_soft_placement=True)
    config.graph_options.optimizer_options.opt_level = -1  # Grappler, and nothing after it
    metadata = v1.RunMetadata()
    options = v1.RunOptions(output_partition_graphs=True)
    feeds = {"x:0": np.zeros((8, 12, 12, 3)), "labels:0": np.zeros(8)}
    with v1.Session(graph=graph, config=config) as session:
        session.run("init")
        session.run(["loss:0", "train"], feeds, options=options, run_metadata=metadata)
    nodes = [node for part in metadata.partition_graphs for node in part.node]
    return {node.name: (node.op, node.device) for node in nodes if not _added(node)}


def _added(node):
    return node.op in _MOVED or _RUNTIME.fullmatch(node.name)


def _placed(graph):
    """What runs, every op with its full device name."""
    nodes = v1.graph_util.extract_sub_graph(graph.as_graph_def(), ["loss", "train"])
    devices = {op.name: op.device for op in graph.get_operations()}
    for node in nodes.node:
        handle = next((i for i in node.input if devices[i.partition(":")[0].strip("^")]), "")
        own = devices[node.name]
        if node.op in ("ReadVariableOp", "ResourceApplyMomentum"):  # follow their variable
            own = devices[handle.partition(":")[0]] or own
        node.device = f"/job:localhost/replica:0/task:0{own or '/device:CPU:0'}"
    return nodes


def test_the_graph_is_the_one_that_a_session_runs(graph):
    """Op for op and device for device, but for what the runtime adds after Grappler."""
    found = optimise_graph(_placed(graph), ["loss", "train"], CPUS)
    ahead = {node.name: (node.op, node.device) for node in found.node if not _added(node)}
    ran = _ran(graph)
    replicated = {
        name for name, (op, _) in ahead.items() if op == "Const" and name not in ran
    }  # of which every reader has a copy of its own
    assert {name: kind for name, kind in ahead.items() if name not in replicated} == ran
    assert len(ran) > 30
    assert {op for op, _ in ran.values()} & {"_FusedConv2D"}


def test_swaps_are_what_the_default_adds_where_a_gpu_is_small():
    """With little memory Grappler copies tensors to the host; without its memory optimiser not."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (512, 512), name="x")
        y = x
        for number in range(6):
            weights = v1.get_variable(f"w{number}", (512, 512), use_resource=True)
            y = tf.tanh(y @ weights)
        v1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(y), name="train")
    nodes = v1.graph_util.extract_sub_graph(graph.as_graph_def(), ["train"])
    for node in nodes.node:
        node.device = _GPU
    host = ("/job:localhost/replica:0/task:0/device:CPU:0", "CPU", 1e12, 50e9, 8 << 30)
    for size, expected in ((16 << 30, False), (3 << 20, True)):
        devices = [(_GPU, "GPU", 1e10, 1e9, size), host]  # short-lived tensors are not swapped
        swapped = optimise_graph(nodes, ["train"], devices, swaps=True)
        plain = optimise_graph(nodes, ["train"], devices)
        assert any(node.name.startswith("swap_in_") for node in swapped.node) is expected
        assert not any("swap" in node.name for node in plain.node)


def test_a_plan_has_the_peaks_of_the_optimised_graph(graph, tmp_path):
    """Fewer ops, some of them fused and folded, each device's peaks, the plan's ops untouched."""
    with tf.Graph().as_default() as bare:
        _training_step(("", ""))
    path = tmp_path / "step.pb"
    path.write_bytes(bare.as_graph_def().SerializeToString())
    asked = {"devices": "2xGPU:64MiB,CPU:1GiB", "outputs": ("loss", "^train"), "spill": "never"}
    plan = place(str(path), **asked, optimised=True)
    found = plan.optimised
    assert found.op_count < found.file_op_count == len(plan.placement)
    assert found.fused + found.folded > 0
    assert set(found.peaks) == {device.name for device in plan.devices}
    assert found.peaks["GPU:0"]["high_bytes"] > 0
    again = type(plan).from_json(plan.to_json())
    assert again.optimised == found
    assert set(plan.placement) == set(extract(str(path), outputs=asked["outputs"]).graph.ops)
    assert place(str(path), **asked).optimised is None
