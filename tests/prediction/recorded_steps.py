"""Runs small models in TensorFlow and prints what it recorded beside what is predicted, as JSON.

A program of its own: oneDNN and Grappler have to be off before TensorFlow is loaded, since both
change the graph that runs.
"""

from __future__ import annotations

import json
import os
import random
import sys

os.environ |= {
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "CUDA_VISIBLE_DEVICES": "",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}

import numpy as np
import tensorflow as tf
from tensorflow.core.config import flags

from cost_models.clusters import parse_cluster
from placer import micro_batches
from placer.application.placing.class_hints import release_hints
from placer.extraction import extract
from placer.fitting.placed_order import edges_for_low_peaks
from placer.graph.order import topological_order
from placer.prediction.costs.op_costs import estimate_costs
from placer.prediction.memory.timelines import predict_memory
from placer.prediction.orders.possible_steps import predict_peak_ranges
from placer.prediction.step import executor
from placer.prediction.step.routes import find_routes
from placer.prediction.transfers import list_transfers

v1 = tf.compat.v1
DEVICES = ("CPU:0", "CPU:1", "CPU:2")


def main() -> None:
    """Prints one JSON document: memory and transfers of every model."""
    flags.config().enable_aggressive_constant_replication.reset(False)  # as between accelerators
    models = {
        "cnn": convolutional,
        "mlp_adam": lambda: perceptron(v1.train.AdamOptimizer(0.01)),
        "mlp_adam_ref": lambda: perceptron(v1.train.AdamOptimizer(0.01), use_resource=False),
        "loop": recurrent,
        "tied": tied_embedding,
        "whole_batch": lambda: in_pieces(1),
        "four_pieces": lambda: in_pieces(4),
        "masked": masked,
        "masked_in_order": lambda: in_order(*masked()),
    }
    json.dump({name: compare(*build()) for name, build in models.items()}, sys.stdout)


def compare(feeds, fetches, targets):
    """Recorded and predicted peak of activations, and transfers over three devices."""
    graph_def = fetches[0].graph.as_graph_def()
    for node in graph_def.node:
        if node.op == "StatelessWhile":
            node.attr["_lower_using_switch_merge"].b = False  # else it runs as another graph
    names = [fetch.name for fetch in fetches], [target.name for target in targets]
    extraction = extract(fetches[0].graph, outputs=[*names[0], *names[1]])
    graph = extraction.graph
    costs = estimate_costs(graph)
    recorded = run(graph_def, feeds, names, device_count=1)
    order = recorded_order(graph, recorded)
    placement = dict.fromkeys(graph.ops, "CPU:0")
    timeline = predict_memory(graph, costs, placement, ("CPU:0",), order=order)["CPU:0"]
    peaks = predict_peak_ranges(graph, costs, placement, ("CPU:0",))["CPU:0"]
    aside = timeline.resident_bytes + sum(sum(costs[name].output_bytes) for name in graph.feeds)
    placement = scattered(graph)
    for node in graph_def.node:
        node.device = "/device:" + placement.get(node.name, "CPU:0")
        if node.name in graph.ops:  # as a placed file has it: without edges that order nothing
            kept = {f"^{name}" for name in graph.ops[node.name].control_inputs}
            node.input[:] = [text for text in node.input if text[0] != "^" or text in kept]
    release_hints(graph_def, graph.ops)
    rows = list_transfers(graph, costs, find_routes(graph, placement, "CPU:0"), "CPU:0")
    return {
        "recorded_bytes": recorded_peak(recorded),
        "predicted_bytes": timeline.peak_bytes - aside,
        "low_bytes": peaks.low_bytes - aside,
        "expected_bytes": peaks.expected_bytes - aside,
        "high_bytes": peaks.high_bytes - aside,
        "recorded_order": order,
        "followed_order": followed_order(graph, order),
        "recorded_sends": recorded_sends(run(graph_def, feeds, names, device_count=3)),
        "predicted_sends": sorted([row.tensor, row.source, row.target] for row in rows),
    }


def run(graph_def, feeds, names, device_count):
    """The metadata of the third step, with nothing optimised and one op at a time."""
    config = v1.ConfigProto(
        device_count={"CPU": device_count},
        inter_op_parallelism_threads=1,
        intra_op_parallelism_threads=1,
    )
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE, output_partition_graphs=True)
    with tf.Graph().as_default() as graph, v1.Session(config=config) as session:
        tf.import_graph_def(graph_def, name="")
        session.run("init")
        fetches = [*names[0], *(graph.get_operation_by_name(name) for name in names[1])]
        for _ in range(3):
            metadata = v1.RunMetadata()
            session.run(fetches, feeds, options=options, run_metadata=metadata)
    return metadata


def recorded_order(graph, metadata):
    """The ops of ``graph`` by the time at which they started."""
    start = {
        fed_name(node.node_name): node.all_start_nanos
        for device in metadata.step_stats.dev_stats
        for node in device.node_stats
    }
    by_start = sorted(graph.ops, key=lambda name: start.get(name, 0))
    return topological_order({name: graph.ops[name] for name in by_start})


def followed_order(graph, order):
    """The executor's order where it knows of ``order`` only what differs between processes: the
    order of the source's consumers, and of those of ops with many of them."""
    prepared = executor.prepare(graph)
    position = {name: number for number, name in enumerate(order)}

    def told(edge):
        _, consumer, is_control = edge
        place = position[prepared.names[consumer]]
        return is_control, place if prepared.inexpensive[consumer] else -place

    successors = [
        [
            consumer
            for _, consumer, _ in sorted(
                edges, key=told if len(edges) > executor.INLINE_EDGES else lambda edge: edge[2]
            )
        ]
        for edges in prepared.successors
    ]
    return [prepared.names[op] for op in executor.run(prepared, successors)]


def recorded_peak(metadata):
    """The most bytes that were allocated at once, feeds, constants and variables aside."""
    changes = sorted(
        (record.alloc_micros, record.alloc_bytes)
        for device in metadata.step_stats.dev_stats
        for node in device.node_stats
        for memory in node.memory
        for record in memory.allocation_records
    )
    peak = in_use = 0
    for _, size in changes:
        in_use += size
        peak = max(peak, in_use)
    return peak


def recorded_sends(metadata):
    """[tensor, source device, target device] of every ``_Send`` of the partition graphs."""
    return sorted(
        [sent_tensor(node), short(node.attr["send_device"].s), short(node.attr["recv_device"].s)]
        for partition in metadata.partition_graphs
        for node in partition.node
        if node.op == "_Send"
    )


def fed_name(name):
    """The op that a session replaces by ``_arg_op_0_number``, or the name itself."""
    return name.removeprefix("_arg_").rsplit("_", 2)[0] if name.startswith("_arg_") else name


def sent_tensor(node):
    """``op:0``, or ``^op`` for a control edge; a fed value is sent by ``_arg_op_0_number``."""
    name, _, index = node.input[0].partition(":")
    if "/ctrl/_" in name:
        return "^" + name.rpartition("/ctrl/_")[0]
    if name.startswith("_arg_"):
        return fed_name(name) + ":0"
    return f"{name}:{index or 0}"


def short(device):
    return device.decode().rpartition("device:")[2]


def scattered(graph):
    """Random devices, the same for all ops of a colocation group."""
    rng = random.Random(0)
    placement = {name: rng.choice(DEVICES) for name in graph.ops}
    for group in graph.colocation_groups:
        placement |= dict.fromkeys(group.ops, placement[group.ops[0]])
    return placement


def variable(shape, use_resource=True):
    name = f"v{len(v1.global_variables())}"
    return v1.get_variable(name, shape, use_resource=use_resource)


def convolutional():
    """Convolutions with a residual connection, normalisation, pooling and a classifier."""
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, (8, 32, 32, 3), name="x")
        h = x
        for channels in (16, 32):
            h = tf.nn.conv2d(h, variable((3, 3, h.shape[-1], channels)), 1, "SAME")
            statistics = [variable((channels,)) for _ in range(4)]
            h = tf.nn.relu(v1.nn.fused_batch_norm(h, *statistics, is_training=False)[0])
            h = tf.nn.relu(h + tf.nn.conv2d(h, variable((3, 3, channels, channels)), 1, "SAME"))
            h = tf.nn.max_pool2d(h, 2, 2, "SAME")
        y = tf.nn.softmax(tf.reduce_mean(h, (1, 2)) @ variable((32, 10)))
        v1.global_variables_initializer()  # an op called "init"
        return {"x:0": np.zeros(x.shape, np.float32)}, [y], []


def perceptron(optimizer, use_resource=True):
    """A training step of two dense layers."""
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, (64, 256), name="x")
        labels = v1.placeholder(tf.int32, (64,), name="labels")
        h = tf.nn.relu(tf.nn.bias_add(x @ variable((256, 512), use_resource), variable((512,))))
        logits = h @ variable((512, 10), use_resource)
        loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        )
        step = optimizer.minimize(loss)
        v1.global_variables_initializer()
        feeds = {"x:0": np.zeros(x.shape, np.float32), "labels:0": np.zeros(64, np.int32)}
        return feeds, [loss], [step]


def in_pieces(pieces):
    """A training step of six dense layers whose batch is run in pieces."""

    class Descent:
        def apply_gradients(self, pairs):
            self.step = v1.train.GradientDescentOptimizer(0.1).apply_gradients(list(pairs))

    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, (512, 64), name="x")
        weights = [variable((64, 64)) for _ in range(6)]

        def loss_of(part):
            for weight in weights:
                part = tf.tanh(part @ weight)
            return tf.reduce_mean(tf.square(part))

        descent = Descent()
        step = micro_batches(loss_of, pieces, optimizer=descent, variables=weights)
        loss = step.python_function(x)
        v1.global_variables_initializer()
        return {"x:0": np.zeros(x.shape, np.float32)}, [loss], [descent.step]


def masked():
    """Eight layers, each with a random mask that could be made before anything else."""
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, (512, 64), name="x")
        weights = variable((64, 64)).read_value()
        h = x
        for number in range(8):
            mask = tf.random.stateless_uniform((512, 64), seed=(number, 1))
            h = tf.tanh((h * mask) @ weights)
        y = tf.reduce_sum(h, 1)
        v1.global_variables_initializer()
        return {"x:0": np.zeros(x.shape, np.float32)}, [y], []


def in_order(feeds, fetches, targets):
    """The same with the control edges for its lowest peak."""
    graph_def = fetches[0].graph.as_graph_def()
    graph = extract(fetches[0].graph, outputs=[fetches[0].name]).graph
    placement, cluster = dict.fromkeys(graph.ops, "CPU:0"), parse_cluster("CPU:64GiB")
    nodes = {node.name: node for node in graph_def.node}
    edges = edges_for_low_peaks(graph, estimate_costs(graph), placement, cluster)
    for before, after in edges:
        nodes[after].input.append(f"^{before}")
    with tf.Graph().as_default() as ordered:
        tf.import_graph_def(graph_def, name="")
        return feeds, [ordered.get_tensor_by_name(fetches[0].name)], targets


def tied_embedding():
    """A table that is gathered from and read as a whole."""
    with tf.Graph().as_default():
        x = v1.placeholder(tf.int32, (64,), name="x")
        table = variable((1000, 64))
        y = tf.nn.softmax(tf.gather(table, x) @ tf.transpose(table))
        v1.global_variables_initializer()
        return {"x:0": np.zeros(64, np.int32)}, [y], []


def recurrent():
    """A loop of 30 steps that cuts its input into a list and gathers its states in another."""
    v1.enable_control_flow_v2()
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, (30, 16, 64), name="x")
        weights = variable((64 + 128, 128)).read_value()
        inputs = tf.TensorArray(tf.float32, 30).unstack(x)
        states = tf.TensorArray(tf.float32, 30)

        def body(time, state, states):
            state = tf.tanh(tf.concat([inputs.read(time), state], 1) @ weights)
            return time + 1, state, states.write(time, state)

        loop = (0, tf.zeros((16, 128)), states)
        _, _, states = tf.while_loop(lambda time, *_: time < 30, body, loop)
        y = tf.transpose(states.stack(), (1, 0, 2))
        v1.global_variables_initializer()
        return {"x:0": np.zeros(x.shape, np.float32)}, [tf.nn.relu(y)], []


if __name__ == "__main__":
    main()
