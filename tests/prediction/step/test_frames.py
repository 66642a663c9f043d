"""Loops of TensorFlow 1: how often their ops are said to run, beside how often they ran."""

from collections import Counter
from dataclasses import replace
from math import prod

import numpy as np
import pytest
from graphs_by_hand import draw

from placer.prediction.costs.op_costs import estimate_costs
from placer.prediction.step.control_flow import TripCount
from placer.prediction.step.frames import find_loops

tf = pytest.importorskip("tensorflow")

import placer  # noqa: E402

v1 = tf.compat.v1
CONTROL = {"Enter", "Exit", "Merge", "Switch", "LoopCond"}
"""Run once for every way out of a loop, or more often than its body by one."""


def drawn_loop(limit=5):
    """start -> i -> i + 1 while i < limit;  x -> square(x)"""
    graph = draw(
        "start=Const -> enter=Enter -> i=Merge -> less=Less -> cond=LoopCond",
        "limit=Const -> at=Enter -> less",
        "i -> si=Switch",
        "cond -> si",
        "si:1 -> same=Identity -> next=AddV2 -> ni=NextIteration -> i",
        "one=Const -> next",
        "same ..> one",
        "x0=Placeholder -> ex=Enter -> x=Merge -> sx=Switch",
        "cond -> sx",
        "sx:1 -> work=Square -> nx=NextIteration -> x",
        "si:0 -> count=Exit -> after=Square",
        "sx:0 -> out=Exit",
        attributes={name: {"frame_name": "loop"} for name in ("enter", "at", "ex")},
    )
    values = {"start": 0, "one": 1, "limit": limit}
    ops = dict(graph.ops)
    for name, value in values.items():
        if value is not None:
            op = ops[name]
            output = replace(op.info.outputs[0], value=(value,))
            ops[name] = replace(op, info=replace(op.info, outputs=(output,)))
    return replace(graph, ops=ops)


def test_a_drawn_loop_is_counted():
    """What lies between Enter and Exit runs five times, those and the rest once."""
    graph = drawn_loop()
    found = find_loops(graph)
    inside = {"i", "less", "cond", "si", "same", "next", "ni", "one", "x", "sx", "work", "nx"}
    assert found == dict.fromkeys(inside, (TripCount(count=5, exact=True),))
    costs = estimate_costs(graph)
    assert costs["work"].flops == 5 * costs["after"].flops
    assert costs["work"].bytes_accessed == 5 * costs["after"].bytes_accessed
    assert costs["work"].output_bytes == costs["after"].output_bytes
    assert (costs["work"].launches, costs["after"].launches) == (5, 1)


def test_an_unknown_count_is_given_or_flagged():
    """A limit that depends on data: seven times if that is given, else once and flagged."""
    graph = drawn_loop(limit=None)
    given, once = estimate_costs(graph, trip_count=7), estimate_costs(graph)
    assert given["work"].flops == 7 * given["after"].flops
    assert not given["work"].inaccurate
    assert once["work"].flops == once["after"].flops
    assert once["work"].inaccurate
    assert not once["after"].inaccurate
    assert estimate_costs(drawn_loop(), trip_count=7) == estimate_costs(drawn_loop())


def while_loop(count, x, body=None, **options):
    """x after ``count`` products, or as many of ``body``."""
    weights = tf.constant(np.eye(4, dtype=np.float32))
    body = body or (lambda x: tf.tanh(tf.matmul(x, weights)))
    return v1.while_loop(lambda i, _: i < count, lambda i, x: (i + 1, body(x)), [0, x], **options)[
        1
    ]


def nested(x):
    return while_loop(3, x, lambda x: tf.tanh(while_loop(2, x)))


def gradient(y, x):
    return tf.gradients(tf.reduce_sum(y), x)[0]


def down_with_two_counters(x):
    """Counts down by two from nine, and up to a limit that is a loop variable."""
    return v1.while_loop(
        lambda i, j, limit, x: tf.logical_and(i > 0, j < limit),
        lambda i, j, limit, x: (i - 2, j + 1, limit, tf.tanh(x)),
        [9, 0, 100, x],
    )[3]


def counted_outside(x):
    """The inner loop has the limit that the outer one does not change."""
    count = tf.shape(x)[0]
    return while_loop(2, x, lambda x: while_loop(count, x))


LOOPS = {
    "plain": lambda x: while_loop(6, x),
    "never": lambda x: while_loop(0, x),
    "nested": nested,
    "gradient": lambda x: gradient(while_loop(5, x), x),
    "nested_gradient": lambda x: gradient(nested(x), x),
    "two_counters": down_with_two_counters,
    "elements": lambda x: tf.map_fn(tf.tanh, x),
    "counted_outside": counted_outside,
    "two_loops": lambda x: while_loop(2, while_loop(3, x), name="second"),
}


def runs(graph, tensor):
    """How often each op runs in one step."""
    metadata = v1.RunMetadata()
    config = v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
    with v1.Session(graph=graph, config=config) as session:
        feeds = {"x:0": np.ones([7, 4], np.float32)}
        session.run(tensor, feeds, options=options, run_metadata=metadata)
    nodes = (node for device in metadata.step_stats.dev_stats for node in device.node_stats)
    return Counter(node.node_name for node in nodes)


def built(build):
    """A graph, its result, and what ``placer`` reads of it."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, 4], "x")
        result = tf.identity(build(x), "result")
    found = placer.extract(graph.as_graph_def(), outputs=["result"], batch_size=7)
    return graph, result, found.graph


@pytest.mark.usefixtures("v1_loops")
@pytest.mark.parametrize("name", LOOPS)
def test_the_counts_are_those_of_a_run(name):
    """Every op of the bodies, those of gradients and of loops in loops included."""
    graph, result, read = built(LOOPS[name])
    loops, ran = find_loops(read), runs(graph, result)
    types = {op.name: op.op_type for op in read.ops.values()}
    work = [op for op, kind in types.items() if kind in {"MatMul", "Tanh", "TanhGrad"}]
    assert work
    for op in work:
        assert all(trips.exact for trips in loops[op]), op
        assert prod(trips.count for trips in loops[op]) == ran[op], op


@pytest.mark.usefixtures("v1_loops")
def test_a_counter_of_the_loop_around_stands_still():
    """The inner loop's ``i < 2`` never changes in it: how often it runs is not known from that."""

    def body(i, x):
        inner = v1.while_loop(
            lambda j, x: tf.logical_and(i < 2, tf.reduce_sum(x) > j),
            lambda j, x: (j + 1.0, tf.tanh(x)),
            [0.0, x],
        )
        return i + 1, inner[1]

    _, _, read = built(lambda x: v1.while_loop(lambda i, _: i < 3, body, [0, x])[1])
    (name,) = (op.name for op in read.ops.values() if op.op_type == "Tanh")
    assert find_loops(read)[name] == (TripCount(count=3, exact=True), None)
    assert estimate_costs(read)[name].inaccurate
    assert estimate_costs(read, 4)[name].flops == 4 * estimate_costs(read)[name].flops
