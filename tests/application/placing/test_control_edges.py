"""Plans with control edges, applied, verified and taken back."""

import numpy as np
import pytest
import tensorflow as tf

import placer
from placer.application.placing.placed_programs import apply, clear
from placer.errors import UsageError
from placer.extraction.graph_defs.added_control import added_control
from placer.extraction.reading.loading import load_program
from placer.plan.plan import Plan

DEVICES = "1xT4"


class Masked(tf.Module):
    """Eight layers, each with a mask of 1 MB that could be made before anything else."""

    def __init__(self):
        super().__init__()
        self.w = tf.Variable(tf.eye(64) / 2, name="w")

    @tf.function(input_signature=[tf.TensorSpec([4096, 64], name="x")])
    def serve(self, x):
        for number in range(8):
            mask = tf.random.stateless_uniform([4096, 64], seed=[number, 1])
            x = tf.tanh((x * mask) @ self.w)
        return {"y": tf.reduce_sum(x, 1)}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    model = Masked()
    tf.saved_model.save(model, folder, signatures=model.serve)
    return folder


@pytest.fixture(scope="module")
def plan(exported, tmp_path_factory):
    """The plan, through its file."""
    file = tmp_path_factory.mktemp("plan") / "plan.json"
    placer.place(exported, DEVICES, order="memory", time_limit=5.0).save(file)
    return Plan.load(file)


@pytest.fixture(scope="module")
def placed(exported, plan, tmp_path_factory):
    return apply(exported, plan, tmp_path_factory.mktemp("placed") / "model")


def _waits(graph_def):
    nodes = [*graph_def.node, *(n for f in graph_def.library.function for n in f.node_def)]
    return sum(len(added_control(node)) for node in nodes)


def _message(folder):
    from placer.extraction.files.sources import read_source

    return read_source(folder).meta_graphs[0].graph_def


def test_the_plan_holds_the_edges_and_the_lower_peak(exported, plan):
    """The masks are made one after the other, which takes less than half."""
    free = placer.place(exported, DEVICES, time_limit=5.0)
    assert free.control_edges == ()
    assert plan.control_edges
    assert plan.peak_bytes["GPU:0"] < 0.5 * free.peak_bytes["GPU:0"]


def test_the_applied_model_is_the_same_program(exported, plan, placed):
    """The edges are in the file and marked, the fingerprint is as before, outputs are equal."""
    assert _waits(_message(placed)) == len(plan.control_edges)
    assert load_program(placed).fingerprint == load_program(exported).fingerprint
    x = tf.reshape(tf.linspace(-1.0, 1.0, 4096 * 64), [4096, 64])
    outputs = [
        tf.saved_model.load(folder).signatures["serving_default"](x=x)["y"].numpy()
        for folder in (exported, placed)
    ]
    np.testing.assert_array_equal(*outputs)


def test_verification_agrees(placed, plan):
    """What ran sat where the plan says, and nothing else was sent."""
    placer.verify(placed, plan).raise_for_mismatch()


def test_clear_and_a_new_plan_take_the_edges_out(exported, placed, tmp_path):
    """Without devices there are no edges either; a plan without edges removes those of the old."""
    cleared = clear(placed, tmp_path / "cleared")
    assert _waits(_message(cleared)) == 0
    free = placer.place(exported, DEVICES, time_limit=5.0)
    again = apply(placed, free, tmp_path / "again")
    assert _waits(_message(again)) == 0


def test_a_placed_function_waits_too():
    """A live function gets the edges of its plan, and gives the same."""
    model = Masked()
    function = model.serve.get_concrete_function()
    plan = placer.place(function, DEVICES, order="memory", time_limit=5.0)
    placed = apply(function, plan)
    graph_def = placed.concrete_function.graph.as_graph_def()
    assert _waits(graph_def) == len(plan.control_edges) > 0
    x = tf.ones([4096, 64])
    np.testing.assert_array_equal(placed(x=x)["y"], model.serve(x)["y"])


def test_an_edge_of_an_op_that_is_not_there(exported, plan, tmp_path):
    """A plan that was edited is refused with the op it names."""
    from dataclasses import replace

    with pytest.raises(UsageError, match="control edge of nowhere"):
        apply(
            exported,
            replace(plan, control_edges=(("nowhere", plan.control_edges[0][1]),)),
            tmp_path / "out",
        )
