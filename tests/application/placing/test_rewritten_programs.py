"""Plans that compute ops twice and release gradients: applied, run, verified and taken back."""

from contextlib import contextmanager
from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf
import training_programs as programs
from long_tests import sometimes
from rewritings_by_hand import recompute_cheap_ops
from simulation.simulated_runs import require_simulation

import placer
from placer.application.placing.placed_programs import apply, clear
from placer.errors import UsageError
from placer.extraction.files.sources import read_source
from placer.extraction.graph_defs.rewritten_nodes import is_rewritten
from placer.extraction.reading.loading import load_program
from placer.extraction.reading.training_steps import keras_variables
from placer.fitting.fitted_step import FitRequest
from placer.fitting.step_fitting import fit_step
from placer.graph.rewriting import Clone, Rewriting
from placer.pipeline.predicted_placement import predict_placement
from placer.pipeline.solved_plan import plan_metrics, step_memory
from placer.pipeline.workload import read_workload
from placer.plan.plan import Plan
from placer.plan.request import Options

GPU = "1xGPU:1GiB"


def rewritten(source, decide, **options):
    """The plan of ``source`` rewritten as ``decide`` says of its graph."""
    plan = placer.place(source, GPU, time_limit=1, **options)
    workload = read_workload(source, GPU, Options(**options))
    return with_step(plan, workload, (), decide(workload.graph))


def with_step(plan, workload, edges, rewriting):
    """``plan`` with the step rewritten."""
    found = predict_placement(workload, plan.placement, edges, rewriting)
    return replace(
        plan,
        placement=found.placement,
        control_edges=found.control_edges,
        rewriting=found.rewriting,
        metrics=plan_metrics(found.metrics),
        devices=tuple(replace(row, **step_memory(found.metrics, row.name)) for row in plan.devices),
        transfers=found.metrics.transfers,
    )


def cheap_and_released(graph):
    """Everything cheap a second time, every join of gradients released."""
    joins = tuple(name for name, op in graph.ops.items() if op.op_type == "IdentityN")
    return recompute_cheap_ops(graph, released=joins)


@contextmanager
def optimisation(enabled):
    """Grappler on or off for what is traced inside."""
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": not enabled})
    yield
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})


def by_gradient_descent(build):
    """The model of ``build`` with another optimizer: where a gradient is rounding alone (the bias
    before a normalisation), Adam scales that up to a whole step."""

    def built():
        model = build()
        model.compile(keras.optimizers.SGD(1e-3, momentum=0.9), model.loss)
        return model

    return built


KERAS = {
    "cnn": (programs.cnn, programs.cnn_data, 16),
    "transformer": (programs.transformer, programs.transformer_data, 4),
}


PROGRAMS = [("cnn", False), ("cnn", True)]
LONG = [("transformer", False), ("transformer", True)]
"""Keras programs, with TensorFlow's graph optimiser off and on."""


@pytest.fixture(scope="module", params=sometimes(zip(PROGRAMS + LONG), [*zip(PROGRAMS)]))
def trained(request):
    """(build, data, batch size, plan, optimised) of one Keras program."""
    name, optimised = request.param
    build, make_data, batch = KERAS[name]
    if optimised:
        build = by_gradient_descent(build)
    data = make_data()
    step = placer.training_step(programs.fresh(build), data)
    return build, data, batch, rewritten(step, cheap_and_released, batch_size=batch), optimised


def fitted(model, data, batch):
    """The losses of the steps of ``fit``."""
    losses = []
    record = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda _, logs: losses.append(logs["loss"])
    )
    x, y = data
    x = list(x) if isinstance(x, tuple) else x
    model.fit(x, y, batch_size=batch, shuffle=False, verbose=0, callbacks=[record])
    return losses


def test_fit_trains_the_same(trained):
    """20 steps with masks, normalisation and attention computed twice: losses and all variables
    (slots and moving averages too) are equal bit for bit, with TensorFlow's optimiser to 1e-6."""
    build, data, batch, plan, optimised = trained
    assert len(plan.rewriting.clones) > 10
    with optimisation(optimised):
        plain = programs.fresh(build)
        expected = fitted(plain, data, batch)
        model = programs.fresh(build, plan.scope())
        with plan.bind(model) as bound:
            found = fitted(model, data, batch)
            graph = bound.functions["train_step"].concrete_function.graph
            assert sum("/recomputed" in op.name for op in graph.get_operations()) == len(
                plan.rewriting.clones
            )
    assert len(expected) == 20
    tolerance = 1e-6 if optimised else 0.0
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    for ours, theirs in zip(keras_variables(model), keras_variables(plain), strict=True):
        np.testing.assert_allclose(
            ours.numpy(), theirs.numpy(), rtol=tolerance, atol=tolerance, err_msg=ours.path
        )


class Layers(tf.Module):
    """Six layers behind each other, trained by plain gradient descent; the loss is a function of
    its own."""

    def __init__(self, width=32):
        super().__init__()
        start = np.random.default_rng(0)
        self.w = [
            tf.Variable(start.normal(0, 1 / width, [width, width]).astype(np.float32), name=f"w{n}")
            for n in range(6)
        ]

    @tf.function
    def loss(self, x):
        for w in self.w:
            x = tf.nn.softplus(tf.tanh(x @ w)) * tf.sigmoid(x)
        return tf.reduce_mean(tf.square(x))

    def step(self, x):
        with tf.GradientTape() as tape:
            loss = self.loss(x)
        gradients = tape.gradient(loss, self.w)
        for w, gradient in zip(self.w, tf.raw_ops.IdentityN(input=gradients), strict=True):
            w.assign_sub(0.1 * gradient)
        return {"loss": loss}


class Tanhs(Layers):
    """Small layers; the step is a signature."""

    @tf.function(input_signature=[tf.TensorSpec([2048, 32], name="x")])
    def train(self, x):
        return self.step(x)


def decide_tanhs(graph):
    """All but the products of matrices twice."""
    joins = tuple(name for name, op in graph.ops.items() if op.op_type == "IdentityN")
    assert joins
    return recompute_cheap_ops(graph, "gradients", released=joins)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    model = Tanhs()
    tf.saved_model.save(model, folder, signatures=model.train)
    return folder


@pytest.fixture(scope="module")
def plan(saved, tmp_path_factory):
    """The plan of the saved step, through its file."""
    file = tmp_path_factory.mktemp("plan") / "plan.json"
    rewritten(saved, decide_tanhs).save(file)
    return Plan.load(file)


@pytest.fixture(scope="module")
def applied(saved, plan, tmp_path_factory):
    return apply(saved, plan, tmp_path_factory.mktemp("placed") / "model")


def graph_of(folder):
    return read_source(folder, as_written=True).meta_graphs[0].graph_def


def losses_of(folder, steps=20):
    step = tf.saved_model.load(folder).signatures["serving_default"]
    x = tf.reshape(tf.linspace(-1.0, 1.0, 2048 * 32), [2048, 32])
    return [step(x=x)["loss"].numpy() for _ in range(steps)]


def test_a_saved_step_is_the_same_program(saved, plan, applied):
    """The clones are in its function, its fingerprint is as before, 20 losses are equal."""
    bodies = [node for f in graph_of(applied).library.function for node in f.node_def]
    released = {name.rpartition("/")[2] for name in plan.rewriting.released}
    flat = next(f for f in graph_of(applied).library.function if "wrapper" in f.signature.name)
    assert released.isdisjoint(node.name.rpartition("/")[2] for node in flat.node_def)
    assert sum(node.name.endswith("/recomputed") for node in bodies) == len(plan.rewriting.clones)
    assert plan.rewriting.released
    assert load_program(applied).fingerprint == load_program(saved).fingerprint
    with optimisation(False):
        losses = losses_of(applied)
        assert losses == losses_of(saved)
        assert len(set(losses)) == 20


def test_the_plan_says_what_is_computed_twice(plan):
    """In the summary, with the number."""
    assert f"{len(plan.rewriting.clones)} ops computed twice" in plan.summary()
    assert "gradients released early" in " ".join(plan.summary().split())


@pytest.mark.parametrize("optimised", [False, True])
def test_verification_agrees(saved, applied, plan, optimised):
    """Applied for the run and as it was written: every op ran where it was to, the clones too."""
    for folder in (saved, applied):
        found = placer.verify(folder, plan, optimised=optimised).raise_for_mismatch()
        assert found.counts["outputs_equal"]
        assert found.applied == (folder == saved)
        assert f"of the plan, {len(plan.rewriting.released)} op" in " ".join(found.notes)
        clones = [row for row in found.ops if row.added == "recomputed"]
        ran = sum(bool(row.actual) for row in clones)
        assert f"{ran} of {len(clones)} clones ran" in found.summary()
        assert len(clones) == len(plan.rewriting.clones)
        if not optimised:
            assert all(row.actual == row.requested for row in clones)


def test_a_step_is_verified_without_its_plan(applied):
    """Against the devices in the file, the clones included."""
    found = placer.verify(applied).raise_for_mismatch()
    assert any(row.added and row.actual for row in found.ops)


def test_clear_takes_it_out(saved, applied, tmp_path):
    """The function is again what a plan without clones makes of it; the losses are the same."""
    cleared = clear(applied, tmp_path / "cleared")
    assert is_rewritten(graph_of(applied))
    assert not is_rewritten(graph_of(cleared))
    assert b"_placer" not in graph_of(cleared).SerializeToString()
    assert load_program(cleared).fingerprint == load_program(saved).fingerprint
    with optimisation(False):
        assert losses_of(cleared, 3) == losses_of(saved, 3)


def test_applied_twice_is_applied_once(applied, plan, tmp_path):
    """The same plan on its own result; then a plan without clones."""
    again = apply(applied, plan, tmp_path / "again")
    names = [
        sorted(n.name for f in graph_of(p).library.function for n in f.node_def)
        for p in (applied, again)
    ]
    assert names[0] == names[1]
    free = placer.place(applied, GPU, time_limit=1)
    assert not is_rewritten(graph_of(apply(applied, free, tmp_path / "free")))


def test_another_graph_is_refused(plan, tmp_path):
    """A plan with clones names the program that it is of."""
    other = tf.function(lambda x: {"y": tf.tanh(x)}, input_signature=[tf.TensorSpec([2])])
    module = tf.Module()
    module.f = other
    tf.saved_model.save(module, tmp_path / "other", signatures=other)
    with pytest.raises(UsageError, match="made for another program"):
        apply(tmp_path / "other", plan, tmp_path / "out")


def test_a_read_of_a_variable_is_not_computed_twice(saved, plan, tmp_path):
    """A plan that was edited is refused with the op; nothing is written."""
    read = next(
        node for node in load_program(saved).graph_def.node if node.op == "ReadVariableOp"
    ).name
    reader = next(n.name for n in load_program(saved).graph_def.node if read in n.input)
    edited = Rewriting(clones=(Clone(op=read),), late_readers={reader: (read,)})
    placement = plan.placement | {f"{read}/recomputed": "GPU:0"}
    placement = {
        name: placement[name]
        for name in placement
        if name not in plan.rewriting.sources or name.startswith(read)
    }
    with pytest.raises(UsageError, match=r"ReadVariableOp\) twice"):
        apply(saved, replace(plan, rewriting=edited, placement=placement), tmp_path / "out")
    assert not (tmp_path / "out").exists()


class Wide(Layers):
    """Wide layers: an activation takes 4 MiB, and the products of matrices longer than
    its copies."""

    @tf.function(input_signature=[tf.TensorSpec([2048, 512], name="x")])
    def train(self, x):
        return self.step(x)


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wide") / "model"
    model = Wide(512)
    tf.saved_model.save(model, folder, signatures=model.train)
    return folder


@pytest.fixture(scope="module")
def unswapped(wide):
    """The plan without a cap."""
    return placer.place(wide, GPU, time_limit=1)


@pytest.fixture(scope="module")
def swapped(wide, unswapped):
    """The plan for 0.6 of what that needs, by what waits on the host alone."""
    cap = {0: int(0.6 * unswapped.devices[0].need_bytes)}
    return placer.place(wide, GPU, max_memory=cap, fit="swap", offload="never", time_limit=10)


@pytest.fixture(scope="module")
def trained_wide(wide):
    """What the step as it was trains."""
    with optimisation(False):
        return trained_by(wide)


def test_swaps_go_out_and_come_back(wide, trained_wide, swapped, tmp_path):
    """Every tensor goes to the host and comes back late; what is trained is the same."""
    assert len(swapped.rewriting.swaps) > 3
    assert_swapped(apply(wide, swapped, tmp_path / "model"), trained_wide, swapped, "GPU:0")


def test_two_accelerators_swap(wide, trained_wide, tmp_path):
    """Each of two has tensors of its own layers on the host meanwhile, so that 0.6 of what the step
    needs there beside what stays is enough."""
    devices = "2xGPU:1GiB"
    pins = dict.fromkeys(("*/matmul", "*_[12]"), "GPU:0")
    pins |= dict.fromkeys(("*_[345]", "*_[345]_grad/*"), "GPU:1")
    free = placer.place(wide, devices, pins=pins, time_limit=1)
    caps = {
        row.name: row.resident_bytes + int(0.6 * (row.need_bytes - row.resident_bytes))
        for row in free.devices[:2]
    }
    workload = read_workload(wide, devices, Options(max_memory=caps))
    request = FitRequest(means=("swap",), seconds=0.0)
    step = fit_step(workload.graph, workload.costs, free.placement, workload.cluster, request)
    assert step.fits
    plan = with_step(free, workload, step.control_edges, step.rewriting)
    assert_swapped(apply(wide, plan, tmp_path / "model"), trained_wide, plan, "GPU:0", "GPU:1")


def assert_swapped(folder, trained, plan, *accelerators):
    """TensorFlow's partition graphs have every copy out, every copy back, the zero-byte message
    that delays it and that which says that a copy out is done, of each accelerator, and nothing
    else is sent; what is trained is the same bit for bit."""
    found = placer.verify(folder, plan).raise_for_mismatch()
    sent = {(row.tensor, row.source, row.target) for row in found.transfers if row.actual}
    waited_for = {before for before, _ in plan.control_edges}
    for device in accelerators:
        swaps = [swap for swap in plan.rewriting.swaps if plan.placement[swap.op] == device]
        assert swaps
        for swap in swaps:
            assert (swap.tensor, device, "CPU:0") in sent
            assert (f"{swap.name}:0", "CPU:0", device) in sent
            assert swap.after
            assert {(f"^{op}", device, "CPU:0") for op in swap.after} <= sent
        arrivals = {f"^{swap.arrival}" for swap in swaps if swap.arrival in waited_for}
        assert arrivals & {tensor for tensor, _, reader in sent if reader == device}
    count = len(plan.rewriting.swaps)
    assert f"{count} of {count} tensors held on CPU:0" in found.summary()
    with optimisation(False):
        assert trained_by(folder) == trained


def trained_by(folder, steps=3):
    """The losses of some steps, and all weights after them."""
    model = tf.saved_model.load(folder)
    x = tf.reshape(tf.linspace(-1.0, 1.0, 2048 * 512), [2048, 512])
    losses = [model.signatures["serving_default"](x=x)["loss"].numpy() for _ in range(steps)]
    assert len(set(losses)) == steps
    return losses, [weight.numpy().tobytes() for weight in model.w]


def test_the_accelerator_holds_less(wide, unswapped, swapped):
    """On a simulated GPU, limited to the cap, is in use at its peak what is predicted, and so less
    than without swaps."""
    require_simulation()
    rows = {}
    for name, plan in {"plain": unswapped, "swapped": swapped}.items():
        found = placer.verify(wide, plan, memory=True).raise_for_mismatch().memory
        rows[name] = {row.device: row for row in found.devices}
    before, after = rows["plain"]["GPU:0"], rows["swapped"]["GPU:0"]
    assert after.predicted_bytes < 0.65 * before.predicted_bytes
    assert after.peak_bytes == pytest.approx(after.predicted_bytes, rel=0.1)
    assert before.peak_bytes == pytest.approx(before.predicted_bytes, rel=0.1)


def build_first_version():
    """A training step of TensorFlow 1: reference variables, ``tf.gradients``, initialisers."""
    v1 = tf.compat.v1
    x = v1.placeholder(tf.float32, [512, 16], "x")
    start = np.random.default_rng(0)
    y, ws = x, []
    for number in range(4):
        value = start.normal(0, 0.3, [16, 16]).astype(np.float32)
        ws.append(v1.get_variable(f"w{number}", initializer=value, use_resource=number % 2 == 0))
        y = tf.nn.softplus(tf.tanh(tf.matmul(y, ws[-1]))) * tf.sigmoid(y)
    loss = tf.reduce_mean(tf.square(y), name="loss")
    gradients = tf.gradients(loss, ws)
    with tf.control_dependencies(gradients):
        updates = [v1.assign_sub(w, 0.1 * g) for w, g in zip(ws, gradients, strict=True)]
    train = tf.group(*updates, name="train")
    v1.global_variables_initializer()
    v1.add_to_collection("train_op", train)
    v1.add_to_collection("losses", loss)


@pytest.fixture(scope="module")
def first_version(tmp_path_factory):
    path = tmp_path_factory.mktemp("first") / "step.meta"
    with tf.Graph().as_default() as graph:
        build_first_version()
        tf.compat.v1.train.export_meta_graph(str(path), graph=graph)
    return path


def run_in_session(path, steps=20):
    """The losses of a GraphDef or MetaGraphDef in a session, unoptimised."""
    v1 = tf.compat.v1
    config = v1.ConfigProto(allow_soft_placement=True)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    message = read_source(path, as_written=True)
    graph_def = message if message.DESCRIPTOR.name == "GraphDef" else message.graph_def
    with tf.Graph().as_default(), v1.Session(config=config) as session:
        tf.import_graph_def(graph_def, name="")
        session.run("init")
        x = np.linspace(-1, 1, 512 * 16, dtype=np.float32).reshape(512, 16)
        return [session.run(["loss:0", "train"], {"x:0": x})[0] for _ in range(steps)], graph_def


@pytest.mark.parametrize("suffix", [".meta", ".pb"])
def test_a_step_of_the_first_version(first_version, suffix, tmp_path):
    """The whole ``.meta``, initialisers too, and the GraphDef: the clones are in it, 20 losses are
    equal, and cleared it is the same program."""
    plan = rewritten(first_version, lambda graph: recompute_cheap_ops(graph, "gradients"))
    assert len(plan.rewriting.clones) > 8
    out = apply(first_version, plan, tmp_path / f"placed{suffix}")
    expected, _ = run_in_session(first_version)
    found, graph_def = run_in_session(out)
    names = {node.name for node in graph_def.node}
    assert plan.rewriting.sources.keys() <= names
    assert found == expected
    assert len(set(found)) == 20
    placer.verify(out, plan).raise_for_mismatch()
    cleared = clear(out, tmp_path / f"cleared{suffix}")
    assert plan.rewriting.sources.keys().isdisjoint(n.name for n in run_in_session(cleared)[1].node)
