"""Conditionals become Switch and Merge, and do what they did."""

import pytest
import tensorflow as tf

import placer
from placer.extraction.reading.loading import load_program


def _run_both(make, values):
    """Asserts that a function does the same flattened as before; its flat program.

    ``make`` gives a tf.function of one float and the variables that it changes, anew each time.
    """
    outcomes = []
    for placed in (False, True):
        function, variables = make()
        if placed:
            plan = placer.place(function, "CPU:1GiB", time_limit=1)
            run = placer.apply(function, plan)
            changed = {m.original.ref(): m.copy for m in run.moved}
        else:
            run, changed = function, {}
        results = [tf.nest.map_structure(lambda t: t.numpy(), run(tf.constant(v))) for v in values]
        state = [changed.get(v.ref(), v).numpy() for v in variables]
        outcomes.append((str(results), str(state)))
    assert outcomes[0] == outcomes[1]
    return load_program(make()[0])


def _types(program):
    return [node.op for node in program.graph_def.node]


def _signature(function):
    return tf.function(function, input_signature=[tf.TensorSpec([], tf.float32)])


def _updates_in_both():
    """Branches without results: each updates one variable, and a third is read afterwards."""
    up, down = tf.Variable(0.0, name="up"), tf.Variable(0.0, name="down")

    def step(x):
        tf.cond(x > 0, lambda: up.assign_add(x), lambda: down.assign_sub(x))
        return up + 10 * down

    return _signature(step), [up, down]


def _nested():
    """A conditional in a branch, with effects on both levels."""
    v, count = tf.Variable(1.0, name="v"), tf.Variable(0, name="count")

    def inner(x):
        count.assign_add(1)
        return tf.cond(x > 10, lambda: v.assign(v * 2.0), lambda: v.assign(v + x))

    def step(x):
        return tf.cond(x > 0, lambda: inner(x) + 1.0, lambda: x)

    return _signature(step), [v, count]


def _passed_through():
    """A branch that gives its argument back, one that gives a constant; a second, unread result."""

    def step(x):
        y, _ = tf.cond(x > 0, lambda: (x, x * 2.0), lambda: (tf.constant(5.0), x))
        return y

    return _signature(step), []


def _in_a_call():
    """A conditional in a function that a branch calls, and one that waits for an assertion."""
    v = tf.Variable(3.0, name="v")

    @tf.function
    def called(x):
        with tf.control_dependencies([tf.debugging.Assert(x < 1000.0, [x])]):
            return tf.cond(x > 5, lambda: v.assign_add(x), lambda: v.read_value())

    def step(x):
        return tf.cond(x > 0, lambda: called(x), lambda: called(-x) * 2.0) + v

    return _signature(step), [v]


@pytest.mark.parametrize("make", [_updates_in_both, _nested, _passed_through, _in_a_call])
def test_both_branches_do_what_they_did(make):
    """Results and variables are equal after several calls, whichever branch is taken."""
    program = _run_both(make, [1.0, -2.0, 20.0, -30.0, 7.0])
    types = _types(program)
    assert "Switch" in types
    assert "Merge" in types
    assert "If" not in types
    assert "StatelessIf" not in types


def test_updates_of_one_conditional_are_ops_apart():
    """Two variables that one conditional updates may sit on two devices."""
    first, second = tf.Variable(tf.ones([1000])), tf.Variable(tf.ones([1000]))

    @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
    def step(x):
        def update():
            first.assign_add(first * x)
            second.assign_add(second * x)

        tf.cond(x > 0, update, lambda: None)
        return tf.reduce_sum(first)

    caps = {0: "14KiB", 1: "14KiB"}
    plan = placer.place(step, "2xGPU:1GiB", max_memory=caps, reserve="0", offload="never")
    assert set(plan.variables.values()) == {"GPU:0", "GPU:1"}


def test_what_tensorflow_does_not_lower_stays_one_op():
    """``switch_case``, conditionals in a loop, and those of a GraphDef, whose names are known."""

    def step(x):
        x = tf.switch_case(tf.cast(x, tf.int32), [lambda: x + 1.0, lambda: x - 1.0])
        body = lambda i, y: (i + 1, tf.cond(y > 3, lambda: y / 2.0, lambda: y + 1.0))  # noqa: E731
        return tf.while_loop(lambda i, _: i < 3, body, (0, x))[1]

    types = _types(load_program(_signature(step)))
    assert {"Switch", "Merge"}.isdisjoint(types)
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [], name="x")
        y = tf.cond(x > 0, lambda: x * 2.0, lambda: x, name="y")
    assert y.op.type in ("If", "StatelessIf", "Identity", "Merge")
    program = load_program(graph, outputs=[y.name])
    assert dict(program.outputs)[y.name] == y.name
