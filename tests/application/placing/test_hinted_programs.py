"""Programs full of colocation hints run where plans that leave hints out say, bit for bit."""

import numpy as np
import pytest
import tensorflow as tf
from hinted_programs import batches, transformer

import placer
from placer.application.devices.device_mapping import process_mapping
from placer.application.devices.graph_optimisers import switch_optimisers_off
from placer.errors import UsageError

v1 = tf.compat.v1

DEVICES, OUTPUTS, STEPS = "2xGPU:1GiB", ("loss:0", "^train"), 5
PINS = {"layer_0/*": "GPU:0", "layer_1/*": "GPU:0", "layer_[23]/*": "GPU:1"}


def session_of(graph):
    """A session with three CPUs, nothing optimised, in which no op may be moved."""
    config = v1.ConfigProto(device_count={"CPU": 3}, allow_soft_placement=False)
    switch_optimisers_off(config)
    return v1.Session(graph=graph, config=config)


def losses_of(session):
    """The losses of a few steps."""
    tokens = batches(STEPS)
    return [session.run(("loss:0", "train"), {"tokens:0": batch})[0] for batch in tokens]


def graph_losses(graph_def):
    """The losses of a GraphDef, from its own initialiser on."""
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(graph_def, name="")
        with session_of(graph) as session:
            session.run("init")
            return losses_of(session)


def classes(graph_def):
    """(op, op that its ``_class`` names, both devices) of a GraphDef and its functions."""
    found = []
    for nodes in (graph_def.node, *(f.node_def for f in graph_def.library.function)):
        devices = {node.name: node.device for node in nodes}
        for node in nodes:
            for entry in node.attr["_class"].list.s if "_class" in node.attr else ():
                other = entry.decode().removeprefix("loc:@")
                found.append((node.name, other, node.device, devices.get(other)))
    return found


@pytest.mark.parametrize(("resources", "keep"), [(True, False), (False, True)])
def test_a_transformer_runs_as_planned(resources, keep):
    """A training step on two devices that hold half or two thirds of its peak: ops, variables and
    transfers are the plan's in TensorFlow's own graphs, and losses are equal bit for bit.  With the
    hints for law all of them stay in the graph; without, those that the placement parts are gone,
    and more is sent with them than without."""
    graph = transformer(3, resources=resources)
    source = graph.as_graph_def()
    request = {"outputs": OUTPUTS, "offload": "never", "time_limit": 60, "work_limit": 1}
    plan = placer.place(graph, "2xGPU:120KiB", keep_colocation=keep, **request)
    assert plan.fits
    assert {"GPU:0", "GPU:1"} <= set(plan.placement.values())
    assert (plan.hints_apart == 0) == keep
    assert plan.request.get("keep_colocation", False) == keep
    found = placer.verify(source, plan).raise_for_mismatch()
    assert {row.actual == row.requested for row in found.ops if row.code != "fed"} == {True}
    assert all(row.predicted and row.actual for row in found.transfers)
    placed = placer.apply(source, plan, rehearse=True)
    assert all(device == other for _, _, device, other in classes(placed))
    assert graph_losses(placed) == graph_losses(source)
    unplaced = placer.extract(source, outputs=OUTPUTS).graph
    again = placer.extract(placed, outputs=OUTPUTS).graph
    assert again.fingerprint == unplaced.fingerprint == plan.model["fingerprint"]
    assert (len(again.colocation_hints) == len(unplaced.colocation_hints)) == keep


def hinted_chain(device=None):
    """a -> b -> c -> d, of which ``c`` has a hint to ``a``."""
    with tf.Graph().as_default() as graph, v1.device(device):
        a = tf.negative(v1.placeholder(tf.float32, [64], name="x"), name="a")
        b = tf.negative(a, name="b")
        with v1.colocate_with(a.op):
            c = tf.negative(b, name="c")
        tf.negative(c, name="d")
    return graph


def test_a_device_function_does_not_part_what_hints_tie():
    """TensorFlow puts hints over device functions, so a plan that leaves some out gives none, and
    says what to do; one that keeps them does, and the graph that is built under it runs as
    planned."""
    pins = {"a": "GPU:0", "[bd]": "GPU:1"}
    plan = placer.place(hinted_chain(), DEVICES, pins=pins | {"c": "GPU:1"}, time_limit=2)
    assert plan.hints_apart == 1
    with pytest.raises(
        UsageError, match=r"colocation hints .* placer\.apply.*keep_colocation=True"
    ):
        plan.device_function  # noqa: B018
    kept = placer.place(hinted_chain(), DEVICES, pins=pins, keep_colocation=True, time_limit=2)
    assert [kept.placement[op] for op in "abcd"] == ["GPU:0", "GPU:1", "GPU:0", "GPU:1"]
    options, metadata = v1.RunOptions(output_partition_graphs=True), v1.RunMetadata()
    graph = hinted_chain(kept.device_function)
    with session_of(graph) as session:
        session.run("d:0", {"x:0": [1.0] * 64}, options, metadata)
    nodes = [node for part in metadata.partition_graphs for node in part.node]
    stand_in = process_mapping(kept.placement.values()).stand_in
    assert {node.name: node.device for node in nodes if node.name in "abcd"} == {
        op: stand_in(kept.placement[op]) for op in "abcd"
    }


def two_counters(device_function=None):
    """Two variables that count, grouped into one step."""
    with tf.Graph().as_default() as graph, v1.device(device_function):
        x = v1.placeholder(tf.float32, [64], "x")
        counters = [v1.get_variable(name, [64], use_resource=True) for name in ("u", "v")]
        updates = [
            tf.raw_ops.AssignAddVariableOp(resource=counter.handle, value=x, name=f"add_{n}")
            for n, counter in enumerate(counters)
        ]
        tf.group(*updates, name="step")
    return graph


def test_a_graph_that_was_built_under_a_plan_is_verified_as_it_is():
    """``tf.group`` makes an op for each device, which no plan has: the others are judged."""
    pins = {"u*": "GPU:0", "v*": "GPU:1", "add_0": "GPU:0", "add_1": "GPU:1"}
    plan = placer.place(two_counters(), DEVICES, outputs=("^step",), pins=pins, time_limit=2)
    built = two_counters(plan.device_function)
    grouped = [op.name for op in built.get_operations() if op.name.startswith("step/")]
    assert len(grouped) == 2
    found = placer.verify(built, plan)
    found.raise_for_mismatch()
    assert {row.op for row in found.ops} == set(plan.placement)


def test_a_meta_graph_trains_saves_and_restores(tmp_path):
    """Initialisers, slots and the saver of a MetaGraphDef follow their variables without the hints:
    imported, it starts, saves and restores with soft placement off."""
    meta, checkpoint = tmp_path / "step.meta", str(tmp_path / "weights")
    with transformer().as_default():
        saver = v1.train.Saver()
        v1.train.export_meta_graph(str(meta), saver_def=saver.as_saver_def())
    plan = placer.place(meta, DEVICES, outputs=OUTPUTS, pins=PINS, time_limit=2)
    assert plan.hints_apart
    written = placer.apply(meta, plan, tmp_path / "placed.meta", rehearse=True)
    losses = {}
    for path in (meta, written):
        with tf.Graph().as_default() as graph:
            saver = v1.train.import_meta_graph(str(path))
            with session_of(graph) as session:
                session.run("init")
                losses[path] = losses_of(session)
                saver.save(session, checkpoint)
                losses[path] += losses_of(session)
                saver.restore(session, checkpoint)
                assert losses_of(session) == losses[path][STEPS:]
            handles = {op.name: op.device for op in graph.get_operations()}
    assert losses[meta] == losses[written]
    mapping = process_mapping(plan.placement.values())
    assert {n: handles[n] for n in handles if n in plan.variables} == {
        n: mapping.stand_in(d) for n, d in plan.variables.items()
    }
    placer.verify(written, plan).raise_for_mismatch()


def test_a_saved_model_of_version_1_restores_and_runs(tmp_path):
    """A signature in a main graph with hints: written, loaded by a session, it restores its
    weights and gives the same loss."""
    source, out = tmp_path / "model", tmp_path / "placed"
    with transformer(resources=True).as_default() as graph, session_of(graph) as session:
        session.run("init")
        losses_of(session)
        tokens = {"tokens": graph.get_tensor_by_name("tokens:0")}
        v1.saved_model.simple_save(
            session, str(source), tokens, {"loss": graph.get_tensor_by_name("loss:0")}
        )
        expected = session.run("loss:0", {"tokens:0": batches(1)[0]})
    plan = placer.place(source, DEVICES, pins=PINS, time_limit=2)
    placer.apply(source, plan, out, rehearse=True)
    with tf.Graph().as_default() as graph, session_of(graph) as session:
        v1.saved_model.load(session, ["serve"], str(out))
        assert session.run("loss:0", {"tokens:0": batches(1)[0]}) == expected
        devices = {op.name: op.device for op in graph.get_operations()}
    placer.verify(out, plan).raise_for_mismatch()
    mapping = process_mapping(plan.placement.values())
    assert all(devices[op] == mapping.stand_in(plan.placement[op]) for op in plan.placement)


class Step(tf.Module):
    """Three layers and their gradients by ``tf.gradients``, in a function."""

    def __init__(self):
        rng = np.random.default_rng(3)
        self.weights = [
            tf.Variable(rng.normal(size=[8, 8]).astype(np.float32), name=f"w{n}") for n in range(3)
        ]

    @tf.function(input_signature=[tf.TensorSpec([4, 8], tf.float32, name="x")])
    def step(self, x):
        hidden = x
        for number, weight in enumerate(self.weights):
            hidden = hidden + tf.tanh(tf.matmul(hidden, weight, name=f"layer_{number}"))
        loss = tf.reduce_mean(tf.square(hidden))
        gradients = tf.gradients(loss, self.weights)
        for weight, gradient in zip(self.weights, gradients, strict=True):
            weight.assign_sub(0.1 * gradient)
        return {"loss": loss}


@pytest.mark.parametrize("saved", [False, True])
def test_hints_in_functions_are_left_out(tmp_path, saved):
    """What ``tf.gradients`` writes into a function's body: placed as a function, and as a
    SavedModel that TensorFlow 2 loads."""
    module, x = Step(), tf.constant(np.random.default_rng(5).normal(size=[4, 8]), tf.float32)
    pins = {"*layer_0": "GPU:0", "*layer_1": "GPU:1", "*layer_2": "GPU:0"}
    source = module.step
    if saved:
        source = tmp_path / "model"
        tf.saved_model.save(module, str(source), signatures=module.step)
    plan = placer.place(source, DEVICES, pins=pins, time_limit=2)
    assert plan.hints_apart
    if saved:
        out = placer.apply(source, plan, tmp_path / "placed", rehearse=True)
        placed = tf.saved_model.load(str(out)).signatures["serving_default"]
        graph_defs = [placed.graph.as_graph_def()]
    else:
        placed = out = placer.apply(source, plan)
        graph_defs = [placed.concrete_function.graph.as_graph_def()]
    assert all(a == b for graph_def in graph_defs for _, _, a, b in classes(graph_def))
    expected = [module.step(x)["loss"].numpy() for _ in range(STEPS)]
    assert [placed(x=x)["loss"].numpy() for _ in range(STEPS)] == expected
    placer.verify(out if not saved else source, plan).raise_for_mismatch()
