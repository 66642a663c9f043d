"""Eight training programs, 20 steps each on three devices, held against the unplaced ones."""

import logging

import keras
import numpy as np
import pytest
import tensorflow as tf
import training_programs as programs
from long_tests import long_test, sometimes

import placer
from placer.application.devices.device_mapping import process_mapping
from placer.application.placing.fallback import foresee_moves
from placer.application.running.generated_inputs import input_values
from placer.application.running.program_runs import invent_state
from placer.application.verifying.model_files import seed_random_ops
from placer.errors import UsageError
from placer.extraction.reading.loading import load_program
from placer.extraction.reading.training_steps import keras_variables

DEVICES = "3xGPU:1GiB"


def check_run(placed, plan):
    """Ops, variables and transfers of one run are those of the plan, in TensorFlow's own graphs."""
    found = placer.verify(placed, plan).raise_for_mismatch()
    assert {row.actual for row in found.ops} >= {"GPU:0", "GPU:1", "GPU:2"}
    assert all(row.requested == row.actual for row in found.variables)
    assert {row.code for row in found.transfers} <= {"", "returned", "inside_control_flow"}
    assert sum(row.predicted and row.actual for row in found.transfers) > 0
    return found


KERAS = {
    "cnn": (programs.cnn, programs.cnn_data, 16),
    "transformer": (programs.transformer, programs.transformer_data, 4),
    "recurrent": (programs.recurrent, programs.recurrent_data, 4),
    "mixed_float16": (programs.mixed_float16, programs.cnn_data, 16),
    "accumulated": (programs.accumulated, programs.cnn_data, 16),
    "averaged": (programs.averaged, programs.cnn_data, 16),
    "shared": (programs.shared_parts, programs.shared_data, 4),
}

IN_CONDITIONALS = (programs.mixed_float16, programs.accumulated, programs.averaged)


def spread(step):
    """Pins that send the arithmetic of a step to three devices, a third of the ops each."""
    heavy = ("MatMul", "BatchMatMulV2", "Conv2D", "Mul", "AddV2")
    names = [node.name for node in load_program(step).graph_def.node if node.op in heavy]
    return {name: f"GPU:{3 * number // len(names)}" for number, name in enumerate(names)}


def spread_variables(step):
    """Pins that send weights and slots to three devices: one ``cond`` updates them all."""
    handles = [variable.handle for variable in load_program(step).variables if variable.shape]
    return {handle: f"GPU:{number % 3}" for number, handle in enumerate(handles)}


@pytest.fixture(scope="module", autouse=True)
def unoptimised():
    """Graph optimisation fuses ops that share a device, which rounds otherwise: off, for bits."""
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    yield
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})


ALWAYS = {("recurrent",), ("mixed_float16",), ("accumulated",), ("shared",)}
"""What is special about a step; the convolutions are in two of them, tests of strategies train the
transformer, and averages are updated in a conditional as what is accumulated is.  Those three with
PLACER_LONG_TESTS."""


@pytest.fixture(scope="module", params=sometimes(zip(KERAS), ALWAYS))
def keras_program(request):
    """(build, data, batch size, plan) of one Keras program."""
    build, make_data, batch = KERAS[request.param]
    data = make_data()
    step = placer.training_step(programs.fresh(build), data)
    pins = spread(step)
    if build in IN_CONDITIONALS:
        pins |= spread_variables(step)
    plan = placer.place(step, DEVICES, batch_size=batch, pins=pins, time_limit=1)
    return build, data, batch, plan


def losses_of(model, data, batch):
    """The loss after every one of the steps of ``fit``."""
    losses = []
    record = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda _, logs: losses.append(logs["loss"])
    )
    x, y = data
    x = list(x) if isinstance(x, tuple) else x
    model.fit(x, y, batch_size=batch, shuffle=False, verbose=0, callbacks=[record])
    return losses


def test_keras_training_is_the_same_bit_for_bit(keras_program):
    """20 steps of fit (of two programs also evaluate and predict): equal to unplaced ones, and all
    of it where planned."""
    build, data, batch, plan = keras_program
    x, y = list(data[0]) if isinstance(data[0], tuple) else data[0], data[1]
    plain = programs.fresh(build)
    expected = losses_of(plain, data, batch)
    assert len(expected) == 20
    model = programs.fresh(build, plan.scope())
    with plan.bind(model) as bound:
        assert losses_of(model, data, batch) == expected
        mapping = bound.functions["train_step"].mapping
        found = {v.path: mapping.planned(v.value.device) for v in keras_variables(model)}
        states = {name for name in plan.variables if "/rnn_state" in name}  # no weights to Keras
        known = {name: plan.variables[name] for name in plan.variables.keys() - states}
        assert {name: found[name] for name in known} == known
        if build in (programs.cnn, programs.recurrent):
            asked = {"batch_size": batch, "verbose": 0}
            assert model.evaluate(x, y, **asked) == plain.evaluate(x, y, **asked)
            assert np.array_equal(model.predict(x, **asked), plain.predict(x, **asked))
        check_run(bound.functions["train_step"], plan)
    for ours, theirs in zip(keras_variables(model), keras_variables(plain), strict=True):
        assert np.array_equal(ours.numpy(), theirs.numpy()), ours.path


@pytest.mark.parametrize("program", [programs.MixedPrecision, programs.Recommender])
def test_a_training_function_of_ones_own_is_the_same_bit_for_bit(program):
    """20 steps of a tf.function with its own optimizer: losses and variables are equal."""
    trainer = program()
    step = trainer.step.get_concrete_function()
    plan = placer.place(step, DEVICES, batch_size=4, pins=spread(step), time_limit=1)
    placed = placer.apply(step, plan)
    losses = [placed(*batch).numpy() for batch in trainer.batches()]
    devices = {moved.name: placed.mapping.planned(moved.copy.device) for moved in placed.moved}
    assert devices == plan.variables
    copies = {id(moved.original.handle): moved.copy.numpy() for moved in placed.moved}
    assert [step(*batch).numpy() for batch in trainer.batches()] == losses
    for variable in trainer.variables:
        assert np.array_equal(copies[id(variable.handle)], variable.numpy()), variable.name
    check_run(placed, plan)


@pytest.fixture(scope="module")
def cnn_plan():
    step = placer.training_step(programs.fresh(programs.cnn), programs.cnn_data(1))
    return placer.place(step, DEVICES, batch_size=16, pins=spread(step), time_limit=1)


def values_of(model):
    """The weights and slots of a model by path (TensorFlow's checkpoints hold no seeds)."""
    return {
        variable.path: variable.numpy().tolist()
        for variable in (*model.variables, *model.optimizer.variables)
        if "seed" not in variable.path
    }


def test_checkpoints_go_both_ways(cnn_plan, tmp_path):
    """What a bound model saves loads in an unplaced one, and the other way round: TensorFlow's
    checkpoints and Keras's files."""
    data = programs.cnn_data(3)
    model = programs.fresh(programs.cnn)
    with cnn_plan.bind(model):
        losses_of(model, data, 16)
        weights = values_of(model)
        saved = tf.train.Checkpoint(model=model).save(str(tmp_path / "placed"))
        model.save(tmp_path / "placed.keras")
    plain = programs.fresh(programs.cnn)
    losses_of(plain, programs.cnn_data(1), 16)  # builds it and its slots
    tf.train.Checkpoint(model=plain).restore(saved).assert_existing_objects_matched()
    assert values_of(plain) == weights
    one_by_one = programs.fresh(programs.cnn)
    losses_of(one_by_one, programs.cnn_data(1), 16)
    placer.load_checkpoint(tf.train.Checkpoint(model=one_by_one), saved)
    assert values_of(one_by_one) == weights
    loaded = keras.models.load_model(tmp_path / "placed.keras")
    assert list(values_of(loaded).values()) == list(weights.values())
    fresh = programs.fresh(programs.cnn)
    with cnn_plan.bind(fresh):
        tf.train.Checkpoint(model=fresh).restore(saved)
        assert values_of(fresh) == weights
        mapping = process_mapping(cnn_plan.placement.values())
        found = {v.path: mapping.planned(v.value.device) for v in fresh.variables}
        planned = {path: cnn_plan.variables.get(path, "CPU:0") for path in found}
        assert found == planned
        assert set(planned.values()) != {"CPU:0"}


def test_without_a_scope_variables_come_back_with_their_values(cnn_plan):
    """A model that was built anywhere is moved for the block, and is what it was afterwards."""
    data = programs.cnn_data(3)
    plain, model = programs.fresh(programs.cnn), programs.fresh(programs.cnn)
    expected = losses_of(plain, data, 16)
    originals = [variable.value for variable in model.variables]
    with cnn_plan.bind(model):
        assert losses_of(model, data, 16) == expected
    assert all(a.value is b for a, b in zip(model.variables, originals, strict=True))
    assert losses_of(model, data, 16) == losses_of(plain, data, 16)


def test_scope_creates_variables_on_their_devices(cnn_plan):
    """Weights are on their devices as soon as they exist; the rest is on the host."""
    model = programs.fresh(programs.cnn, cnn_plan.scope())
    with cnn_plan.scope():
        assert tf.Variable(1.0, name="unknown").device.endswith("CPU:0")
    mapping = process_mapping(cnn_plan.placement.values())
    for variable in model.variables:
        wanted = cnn_plan.variables.get(variable.path, "CPU:0")
        assert mapping.planned(variable.value.device) == wanted, variable.path


def test_jit_is_switched_off_with_a_warning(cnn_plan, caplog):
    """XLA would erase the placement: it is off in the block, said, and on again afterwards."""
    model = programs.fresh(programs.cnn)
    model.jit_compile = True
    with caplog.at_level(logging.WARNING, "placer"), cnn_plan.bind(model):
        assert not model.jit_compile
        losses_of(model, programs.cnn_data(2), 16)
    assert model.jit_compile
    assert "jit_compile is off" in caplog.text


def test_a_batch_larger_than_planned_is_a_warning(cnn_plan, caplog):
    """Once: the predicted peaks are of fewer examples."""
    model, (x, y) = programs.fresh(programs.cnn), programs.cnn_data(4)
    planned = cnn_plan.bindings["batch_size"]
    x, y = x[: 4 * planned], y[: 4 * planned]
    with cnn_plan.bind(model):
        losses_of(model, (x[:planned], y[:planned]), planned)
        assert "the plan was made for" not in caplog.text
        losses_of(model, (x, y), 2 * planned)
    (message,) = [r.message for r in caplog.records if "the plan was made for" in r.message]
    told = f"this batch has {2 * planned} examples, and the plan was made for {planned}: "
    assert message.startswith(told)


@pytest.mark.parametrize("what", ["uncompiled", "eager", "other"])
def test_what_cannot_be_bound_is_refused(cnn_plan, what):
    """No optimizer, eager steps, another model: the message says what to do."""
    model = programs.fresh(programs.recurrent if what == "other" else programs.cnn)
    if what == "uncompiled":
        model = keras.Sequential(model.layers)
    model.run_eagerly = what == "eager"
    words = {
        "uncompiled": "compile",
        "eager": "run_eagerly",
        "other": r"made for another program: the plan lacks .* such as",
    }
    data = programs.recurrent_data(1)
    with pytest.raises(UsageError, match=words[what]), cnn_plan.bind(model):
        losses_of(model, data, 4)


V1_GRAPHS = {
    "tfnet-lstm-crf-ner/lstm_crf_ner.meta": {
        "shapes": {
            "word_ids": (4, 8),
            "char_ids": (4, 8, 8),
            "word_lengths": (4, 8),
            "labels": (4, 8),
        },
        "outputs": ("^train_step/Adam", "Mean:0"),
        "inputs": {"lr": 1e-3, "dropout": 0.9, "sequence_lengths": [8] * 4},
    },
    "tfnet-att-rnn/att_rnn_untrained.meta": {
        "shapes": {},
        "outputs": ("^loss/Adam", "loss/Mean:0"),
        "inputs": {"is_training": False},  # its dropout draws in loops, whose steps overlap
    },
}


@pytest.mark.parametrize(
    "name",
    [
        "tfnet-lstm-crf-ner/lstm_crf_ner.meta",
        pytest.param("tfnet-att-rnn/att_rnn_untrained.meta", marks=long_test),  # half a minute
    ],
)
def test_v1_training_graphs_train_on_three_devices(name, test_data, tmp_path):
    """20 steps of a TensorFlow 1 graph with reference variables, from a placed ``.meta``."""
    shapes, outputs, given = V1_GRAPHS[name].values()
    source = tmp_path / "source.meta"
    source.write_bytes(with_fewer_words(test_data / "graphs" / name))
    options = {"outputs": outputs, "batch_size": 4, "shapes": shapes}
    program = load_program(source, outputs=outputs)
    kernels = [v.handle for v in program.variables if v.handle.endswith("kernel")]
    pins = {name: f"GPU:{3 * number // len(kernels)}" for number, name in enumerate(kernels)}
    plan = placer.place(source, "3xGPU:1GiB", pins=pins, time_limit=1, **options)
    assert not foresee_moves(program, plan.placement)
    placed = placer.apply(source, plan, tmp_path / "placed.meta", rehearse=True)
    inputs = input_values(program, given, plan.bindings)
    feeds = {item.tensor: inputs[item.key] for item in program.inputs}
    expected, _ = train_v1(source, feeds, outputs)
    losses, devices = train_v1(placed, feeds, outputs)
    assert np.isfinite(losses).all()
    assert losses == expected
    assert len(set(losses)) > 10
    stand_ins = {"CPU:0": "CPU:0", "GPU:0": "CPU:1", "GPU:1": "CPU:2", "GPU:2": "CPU:3"}
    handles = {v.name: v.handle for v in program.variables}
    wanted = {handles[name]: stand_ins[device] for name, device in plan.variables.items()}
    assert {name: devices[name] for name in wanted} == wanted
    check_run(source, plan)


def with_fewer_words(path):
    """The ``.meta``, random ops seeded, with a vocabulary of 1,000 words: 563,354 take 1.7 GB
    with their slots."""
    meta_graph = tf.compat.v1.MetaGraphDef.FromString(path.read_bytes())
    many, few = 563354, 1000
    for node in meta_graph.graph_def.node:
        for value in node.attr.values():
            for proto in (value.shape, *value.list.shape):
                for dim in (dim for dim in proto.dim if dim.size == many):
                    dim.size = few
        if node.op == "Const":
            content = node.attr["value"].tensor
            array = tf.make_ndarray(content) if content.dtype in (3, 9) else None
            if array is not None and (array == many).any():
                changed = np.where(array == many, few, array).astype(array.dtype)
                content.CopyFrom(tf.make_tensor_proto(changed, shape=array.shape))
    seed_random_ops(meta_graph.graph_def)
    return meta_graph.SerializeToString()


def train_v1(path, feeds, outputs):
    """(20 losses, the logical CPU of every op) of a ``.meta``, from its own first values (made-up
    ones where it has none)."""
    v1 = tf.compat.v1
    config = v1.ConfigProto(device_count={"CPU": 4})
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    step, loss = (name.lstrip("^") for name in outputs)
    with tf.Graph().as_default() as graph, v1.Session(config=config) as session:
        v1.train.import_meta_graph(str(path))
        invent_state(session, graph)
        variables = {f"{op.name}/Assign" for op in graph.get_operations() if "Variable" in op.type}
        session.run([op for op in graph.get_operations() if op.name in variables])
        options, metadata = v1.RunOptions(output_partition_graphs=True), v1.RunMetadata()
        losses = [float(session.run([loss, step], feeds)[0].mean()) for _ in range(19)]
        losses += [float(session.run([loss, step], feeds, options, metadata)[0].mean())]
    graphs = metadata.partition_graphs
    return losses, {node.name: node.device[-5:] for part in graphs for node in part.node}


def test_gradients_share_the_device_of_their_forward_ops():
    """Asked for, the backward pass of a layer sits with the layer; the run is as planned."""
    trainer = programs.MixedPrecision()
    step = trainer.step.get_concrete_function()
    pins = {"matmul": "GPU:0", "matmul_1": "GPU:1", "*Square": "GPU:2"}
    options = {"batch_size": 4, "pins": pins, "time_limit": 1}
    plan = placer.place(step, DEVICES, colocate_gradients=True, **options)
    gradients = {name: device for name, device in plan.placement.items() if "gradient_tape" in name}
    for op in ("matmul", "matmul_1"):
        there = {d for name, d in gradients.items() if name.startswith(f"gradient_tape/{op}/")}
        assert there == {plan.placement[op]}
    placer.verify(step, plan).raise_for_mismatch()
