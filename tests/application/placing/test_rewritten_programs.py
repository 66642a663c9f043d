"""Plans that compute ops twice and release gradients: applied, run, verified and taken back."""

from contextlib import contextmanager
from dataclasses import asdict, replace

import keras
import numpy as np
import pytest
import tensorflow as tf
import training_programs as programs
from rewritings_by_hand import recompute_cheap_ops

import placer
from placer.application.placing.placed_programs import apply, clear
from placer.errors import UsageError
from placer.extraction.files.sources import read_source
from placer.extraction.graph_defs.rewritten_nodes import is_rewritten
from placer.extraction.reading.loading import load_program
from placer.extraction.reading.training_steps import keras_variables
from placer.graph.rewriting import Clone, Rewriting
from placer.pipeline.predicted_placement import predict_placement
from placer.pipeline.solved_plan import plan_metrics
from placer.pipeline.workload import read_workload
from placer.plan.plan import Plan
from placer.plan.request import Options
from placer.plan.rows import PlannedTransfer

GPU = "1xGPU:1GiB"


def rewritten(source, decide, devices=GPU, **options):
    """The plan of ``source`` rewritten as ``decide`` says of its graph, and the workload."""
    plan = placer.place(source, devices, time_limit=1, **options)
    workload = read_workload(source, devices, Options(**options))
    found = predict_placement(workload, plan.placement, (), decide(workload.graph))
    return replace(
        plan,
        placement=found.placement,
        rewriting=found.rewriting,
        metrics=plan_metrics(found.metrics),
        transfers=tuple(PlannedTransfer(**asdict(row)) for row in found.metrics.transfers),
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


KERAS = {
    "cnn": (programs.cnn, programs.cnn_data, 16),
    "transformer": (programs.transformer, programs.transformer_data, 4),
}


@pytest.fixture(scope="module", params=KERAS)
def trained(request):
    """(build, data, batch size, plan) of one Keras program."""
    build, make_data, batch = KERAS[request.param]
    data = make_data()
    step = placer.training_step(programs.fresh(build), data)
    return build, data, batch, rewritten(step, cheap_and_released, batch_size=batch)


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


@pytest.mark.parametrize("optimised", [False, True])
def test_fit_trains_the_same(trained, optimised):
    """20 steps with masks, normalisation and attention computed twice: losses and all variables
    (slots and moving averages too) are equal bit for bit, with TensorFlow's optimiser to 1e-6.

    There without the biases of keys, and of a convolution before a normalisation: nothing takes
    notice of them, so that their gradients are rounding alone, which Adam scales up to a step."""
    build, data, batch, plan = trained
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
        if optimised and ours.path.endswith(("key/bias", "conv2d/bias")):
            continue
        np.testing.assert_allclose(
            ours.numpy(), theirs.numpy(), rtol=tolerance, atol=tolerance, err_msg=ours.path
        )


class Tanhs(tf.Module):
    """Six layers of tanh behind each other, trained by plain gradient descent; the step is a
    signature, its loss a function of its own."""

    def __init__(self):
        super().__init__()
        start = np.random.default_rng(0)
        self.w = [
            tf.Variable(start.normal(0, 0.2, [32, 32]).astype(np.float32), name=f"w{n}")
            for n in range(6)
        ]

    @tf.function
    def loss(self, x):
        for w in self.w:
            x = tf.nn.softplus(tf.tanh(x @ w)) * tf.sigmoid(x)
        return tf.reduce_mean(tf.square(x))

    @tf.function(input_signature=[tf.TensorSpec([2048, 32], name="x")])
    def train(self, x):
        with tf.GradientTape() as tape:
            loss = self.loss(x)
        gradients = tape.gradient(loss, self.w)
        for w, gradient in zip(self.w, tf.raw_ops.IdentityN(input=gradients), strict=True):
            w.assign_sub(0.1 * gradient)
        return {"loss": loss}


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
    count = len(plan.rewriting.released)
    assert f"released early ({count} joins" in " ".join(plan.summary().split())


@pytest.mark.parametrize("optimised", [False, True])
def test_verification_agrees(saved, applied, plan, optimised):
    """Applied for the run and as it was written: every op ran where it was to, the clones too."""
    for folder in (saved, applied):
        found = placer.verify(folder, plan, optimised=optimised).raise_for_mismatch()
        assert found.counts["outputs_equal"]
        clones = [row for row in found.ops if row.op.endswith("/recomputed")]
        assert len(clones) == len(plan.rewriting.clones)
        if not optimised:
            assert all(row.actual == row.requested for row in clones)


def test_a_step_is_verified_without_its_plan(applied):
    """Against the devices in the file, the clones included."""
    found = placer.verify(applied).raise_for_mismatch()
    assert any(row.op.endswith("/recomputed") and row.actual for row in found.ops)


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
