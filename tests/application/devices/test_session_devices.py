"""Graphs that are built under a plan: is it the planned one?"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf
from tensorflow.python.framework import function

from placer.application.devices.session_devices import device_function
from placer.errors import UsageError

LAYERS = 100
PLANNED = {f"layer_{n}/{op}": "CPU:0" for n in range(LAYERS) for op in ("w", "MatMul")}


class Graph:
    """Takes the place of a ``tf.Graph``: only its identity counts."""


def op_of(graph, name):
    """Takes the place of an op that reads nothing."""
    return SimpleNamespace(name=name, graph=graph, inputs=(), control_inputs=())


def build(names):
    """The devices of ops that are built one after the other in one graph."""
    function, graph = device_function(PLANNED), Graph()
    return [function(op_of(graph, name)) for name in names]


def test_ops_around_the_planned_ones_are_no_other_program():
    """Initialisers stand in the scopes of variables; summaries and savers come to a few."""
    names = [
        name
        for n in range(LAYERS)
        for name in (
            *(f"layer_{n}/w/Initializer/{part}" for part in range(8)),
            f"layer_{n}/w",
            f"layer_{n}/w/Assign",
            f"layer_{n}/MatMul",
            f"summary_{n}",
        )
    ]
    devices = build(names)
    assert sum(map(bool, devices)) == 2 * LAYERS


def test_what_is_no_op_is_refused():
    """The name of one says nothing of its graph."""
    with pytest.raises(UsageError, match="a device function takes an op"):
        device_function(PLANNED)("layer_0/MatMul")


def test_one_more_scope_is_told():
    """No name is known: the graph would run without any placement, and nobody would see it."""
    with pytest.raises(UsageError, match="under one more name scope, 'outer'"):
        build(f"outer/{name}" for name in PLANNED)


def test_another_program_is_told():
    """Also where a few names are those of planned ops."""
    with pytest.raises(UsageError, match="64 of its first 65 ops are not in the plan"):
        build(["layer_0/w", *(f"generator/dense_{n}" for n in range(200))])


def test_graphs_are_judged_apart():
    """What was built before under the same plan does not count for the next graph."""
    function = device_function(PLANNED)
    for _ in range(3):
        graph = Graph()
        for number in range(50):
            assert function(op_of(graph, f"other_{number}")) == ""


def built(placement, build):
    """The devices of a graph's ops, built under a plan with that placement."""
    with tf.Graph().as_default() as graph, tf.compat.v1.device(device_function(placement)):
        build()
    return {op.name: op.device.rpartition("device:")[2] for op in graph.get_operations()}


def test_ops_that_tensorflow_does_not_ask_for_are_placed():
    """A TensorArray and its size are built under ``tf.device(None)``, as the sum of a constant is
    here: they used to be without a device, and ran where TensorFlow puts such ops."""

    def build():
        with tf.device(None):
            total = tf.add(tf.constant(1.0, name="one"), 1.0, name="two")
            tf.constant(1.0, name="unplanned")
        tf.negative(total, name="read")

    devices = built(dict.fromkeys(("one", "two", "read"), "CPU:0"), build)
    assert devices["one"] == devices["two"] == devices["read"] == "CPU:0"
    assert devices["unplanned"] == ""


def calls(count):
    """Builds a call of a function of many multiplications."""

    @tf.function
    def multiplied(value):
        for _ in range(count):
            value = value * 2.0
        return value

    return lambda: multiplied(tf.constant(1.0, name="one"))


def test_ops_of_functions_are_no_other_program():
    """Their names are those of the body: 100 of them used to be judged as another program.  The
    call has the device of what it calls."""
    call = "PartitionedCall"
    devices = built({"one": "CPU:0", "mul": "GPU:0", f"{call}/mul": "CPU:0"}, calls(100))
    assert devices == {"one": "CPU:0", call: "CPU:0"}


def test_a_function_that_is_called_by_its_name_is_placed():
    """So ``Defun`` calls; the call was in no plan, and had no device."""

    def build():
        double = function.Defun(tf.float32, func_name="double")(lambda value: value * 2.0)
        double(tf.constant(1.0, name="one"), name="call")

    assert built({"one": "CPU:0", "call/mul": "CPU:0"}, build)["call"] == "CPU:0"


def test_a_function_on_two_devices_is_refused():
    """A device function sees the call alone."""
    planned = {"PartitionedCall/mul": "CPU:0", "PartitionedCall/mul_1": "GPU:0"}
    with pytest.raises(UsageError, match="PartitionedCall calls on CPU:0, GPU:0, which a device"):
        built(planned, calls(2))
