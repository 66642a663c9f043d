"""Programs with a divided batch against the whole: refused where examples mix, else the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import placer
from placer.__main__ import main
from placer.application.placing.function_graphs import build_function, find_ends
from placer.errors import ShapeError, UsageError
from placer.extraction.divisibility.divisibility import require_divisible, with_inputs
from placer.extraction.division.dividing import divided
from placer.extraction.division.division import REPLICA, Division
from placer.extraction.graph_defs.loop_reads import with_reads_before_loops
from placer.extraction.reading.loading import load_program
from placer.extraction.shapes.binding import capture_states

BATCH, WIDTH = 7, 6
RANDOM = np.random.default_rng(7)
WEIGHTS = RANDOM.normal(size=(WIDTH, 5)).astype(np.float32)
TABLE = RANDOM.normal(size=(9, 4)).astype(np.float32)
KERNEL = RANDOM.normal(size=(2, 3, 1, 2)).astype(np.float32)


def rows(x: Any) -> Any:
    return tf.cast(tf.math.floormod(tf.cast(x[:, 0] * 10, tf.int32), 9), tf.int32)


def attention(x: Any) -> Any:
    heads = tf.reshape(x, (-1, 2, 3))
    scores = tf.nn.softmax(tf.einsum("bqd,bkd->bqk", heads, heads))
    return tf.reshape(tf.einsum("bqk,bkd->bqd", scores, heads), (tf.shape(x)[0], WIDTH))


def recurrence(x: Any) -> Any:
    """A loop over time, the batch in the second axis of what it goes through."""
    steps = tf.transpose(tf.reshape(x, (-1, 3, 2)), (1, 0, 2))
    state = tf.zeros((tf.shape(x)[0], 2))
    for number in tf.range(3):
        state = tf.tanh(state + steps[number])
    return state


APART = {
    "elementwise": lambda x: tf.nn.relu(x) * 2.0 + tf.exp(-x),
    "product": lambda x: x @ WEIGHTS,
    "flipped product": lambda x: tf.transpose(
        tf.matmul(WEIGHTS, x, transpose_a=True, transpose_b=True)
    ),
    "mean of each": lambda x: tf.reduce_mean(x, axis=1, keepdims=True) + x,
    "softmax": lambda x: tf.nn.softmax(x),
    "batch sizes in shapes": lambda x: tf.reshape(x, (tf.shape(x)[0] * 2, 3)) * tf.ones((1, 3)),
    "convolution": lambda x: tf.nn.conv2d(
        tf.reshape(x, (-1, 2, 3, 1)), tf.constant(KERNEL), 1, "SAME"
    ),
    "transposed convolution": lambda x: tf.nn.conv2d_transpose(
        tf.reshape(x, (-1, 2, 3, 1)),
        tf.constant(KERNEL[..., ::-1, :1]),
        tf.shape(x)[0] * [1, 0, 0, 0] + [0, 2, 3, 1],
        1,
    ),
    "attention": attention,
    "lookup": lambda x: tf.gather(TABLE, rows(x)),
    "one hot": lambda x: tf.one_hot(rows(x), 9),
    "columns": lambda x: tf.concat([x[:, :2], tf.gather(x, [4, 1], axis=1)], axis=1),
    "stack": lambda x: tf.stack([x, x + 1], axis=1)[:, 1],
    "top": lambda x: tf.nn.top_k(x, 2),
    "filled": lambda x: tf.fill((tf.shape(x)[0], 2), 3.0) + x[:, :1],
    "tile": lambda x: tf.tile(x, (1, 2)),
    "loop": recurrence,
    "second output": lambda x: tf.raw_ops.TopKV2(input=x, k=2, sorted=True).indices,
    "branch": lambda x: tf.cond(tf.shape(x)[1] > 3, lambda: x * 2, lambda: x),
    "two outputs": lambda x: {"a": x * 2, "b": tf.argmax(x, axis=1), "c": tf.constant([1.0, 2.0])},
}
"""Functions of each example, of which the outputs have one row (or two) per example."""

MIXED = {
    "mean": (lambda x: tf.reduce_mean(x, axis=0), "works along the batch"),
    "centred": (lambda x: x - tf.reduce_mean(x, axis=0, keepdims=True), "works along the batch"),
    "similarity": (lambda x: tf.matmul(x, x, transpose_b=True), "two batch dimensions"),
    "covariance": (lambda x: tf.matmul(x, x, transpose_a=True), "no batch dimension"),
    "sum over einsum": (lambda x: tf.einsum("bi,bj->ij", x, x), "no batch dimension"),
    "cumulated": (lambda x: tf.cumsum(x, axis=0), "works along the batch"),
    "reversed": (lambda x: tf.reverse(x, [0]), "works along the batch"),
    "backwards": (lambda x: x[::-1], "another order"),
    "but the first": (lambda x: x[1:], "fixed number"),
    "softmax of columns": (
        lambda x: tf.nn.softmax(tf.transpose(x)),
        "works along the batch",
    ),
    "over the number": (
        lambda x: x / tf.cast(tf.shape(x)[0], tf.float32),
        "the number of examples",
    ),
    "positions": (
        lambda x: x + tf.cast(tf.range(tf.shape(x)[0]), tf.float32)[:, None],
        "the number of examples",
    ),
    "transposed": (lambda x: tf.transpose(x), "whose first dimension is not the batch"),
    "interleaved": (
        lambda x: tf.reshape(tf.transpose(tf.reshape(x, (-1, 2, 3)), (1, 0, 2)), (-1, 3)),
        "interleaves",
    ),
    "noise": (lambda x: x + tf.random.normal(tf.shape(x)), "draws random numbers|number of ex"),
    "statistics": (
        lambda x: tf.compat.v1.nn.fused_batch_norm(
            tf.reshape(x, (-1, 1, 1, WIDTH)), tf.ones(WIDTH), tf.zeros(WIDTH)
        )[0],
        "statistics of the batch",
    ),
    "one by one": (lambda x: tf.map_fn(lambda row: row * 2, x), "one by one"),
    "until all are done": (
        lambda x: tf.while_loop(lambda y: tf.reduce_any(y < 9), lambda y: [y * 2 + 1], [x])[0],
        "works along the batch",
    ),
    "a count beside": (
        lambda x: tf.while_loop(lambda n, _: n < 3, lambda n, y: (n + 1, y * 2), [0, x])[0],
        "whose first dimension is not the batch",
    ),
    "number of examples": (lambda x: tf.shape(x), "whose first dimension is not the batch"),
}


def traced(function: Any) -> Any:
    """The function of a batch of unknown size."""
    spec = tf.TensorSpec((None, WIDTH))
    return tf.function(function, input_signature=[spec]).get_concrete_function()


def checked(function: Any, division: Division, **bindings: Any) -> Any:
    """The flat program, divided, and the division, after the check that it may be."""
    program = load_program(function)
    known = {"batch_size": BATCH, "shapes": None} | bindings
    division = with_inputs(division, program, known["shapes"])
    require_divisible(program, capture_states(program), division, known)
    return divided(program, division)


@pytest.mark.parametrize("name", APART)
@pytest.mark.parametrize(
    "division",
    [Division(parts=3, in_flight=1), Division(parts=2, scope=REPLICA)],
    ids=["pieces", "replicas"],
)
def test_parts_give_what_the_whole_gives(name, division):
    """Seven examples in three pieces that take turns, and on two replicas, of unequal sizes."""
    function = traced(APART[name])
    program = checked(function, division)
    parts = build_function(program.graph_def, find_ends(program), program.captures)
    x = tf.constant(RANDOM.uniform(size=(BATCH, WIDTH)).astype(np.float32))
    for ours, theirs in zip(tf.nest.flatten(parts(x)), tf.nest.flatten(function(x)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    smaller = x[:1]  # fewer than parts: some are empty
    np.testing.assert_allclose(
        tf.nest.flatten(parts(smaller))[0], tf.nest.flatten(function(smaller))[0], rtol=1e-5
    )


@pytest.mark.parametrize("name", MIXED)
def test_what_mixes_examples_is_refused(name):
    """With the op that does, and what would work."""
    function, told = MIXED[name]
    with pytest.raises(UsageError, match=told) as raised:
        checked(traced(function), Division(parts=2))
    assert "without strategy" in str(raised.value)


def test_pieces_take_turns():
    """With one in flight every product waits for all of the piece before; with two, the third
    waits for the first, and the second for none."""

    def after(in_flight):
        program = checked(
            traced(lambda x: tf.tanh(x @ WEIGHTS)), Division(parts=3, in_flight=in_flight)
        )
        before: dict[str, set[str]] = {}
        for node in program.graph_def.node:
            names = {name.lstrip("^").partition(":")[0] for name in node.input}
            before[node.name] = names.union(*(before.get(name, set()) for name in names))
        return before

    one, two = after(1), after(2)
    assert {"piece_0/Tanh", "piece_1/Tanh"} <= one["piece_2/matmul"]
    assert "piece_0/Tanh" in two["piece_2/matmul"]
    assert "piece_0/Tanh" not in two["piece_1/matmul"]


def test_pieces_share_what_replicas_have_copies_of():
    """Pieces read a variable once and share constants; a replica has its own constant and variable,
    with what is computed from that alone, but for a variable that the program hands on."""
    weight, table = tf.Variable(WEIGHTS), tf.Variable(0.0)

    def run(x):
        scale = tf.cond(tf.shape(x)[1] > 2, lambda: table.read_value(), lambda: 1.0)
        return (x @ tf.abs(weight)) @ tf.constant(WEIGHTS.T) * scale

    function = traced(run)
    for scope, count in (("piece", 1), (REPLICA, 2)):
        program = checked(function, Division(parts=2, scope=scope))
        ops = [node.op for node in program.graph_def.node if "batch/" not in node.name]
        large = [
            node
            for node in program.graph_def.node
            if node.op == "Const" and len(node.attr["value"].tensor.tensor_shape.dim) == 2
        ]
        assert (ops.count("Abs"), len(large)) == (count, count)
        assert len(program.copies) == count - 1
        assert len(program.captures) == len(program.variables) == 2 + count - 1


def test_loops_take_what_they_only_read_as_a_value():
    """A loop that reads one variable and writes another keeps the second alone, and computes the
    same; who asks the loop for its handle gets the handle itself."""
    read, written = tf.Variable(WEIGHTS[:, :2]), tf.Variable(0.0)

    def run(x):
        def step(number, state):
            written.assign_add(1.0)
            return number + 1, state + x @ read

        return tf.while_loop(lambda n, _: n < 3, step, [0, tf.zeros((tf.shape(x)[0], 2))])[1]

    function = traced(run)
    before = load_program(function)
    after = with_reads_before_loops(before)
    inputs = {
        name: [kind for kind in node.attr["T"].list.type if kind == tf.resource.as_datatype_enum]
        for name, program in (("before", before), ("after", after))
        for node in program.graph_def.node
        if "While" in node.op
    }
    assert {name: len(kinds) for name, kinds in inputs.items()} == {"before": 2, "after": 1}
    found = build_function(after.graph_def, find_ends(after), after.captures)
    x = tf.ones((2, WIDTH))
    np.testing.assert_allclose(found(x)[0], function(x), rtol=1e-6)
    assert with_reads_before_loops(after) is after


@pytest.mark.parametrize("strategy", ["pipeline:4", "hybrid"])
def test_live_programs_are_placed_applied_and_verified(strategy):
    """As any other: on its devices, with the plan's transfers, and the outputs of the whole."""
    weights = [tf.Variable(WEIGHTS), tf.Variable(WEIGHTS.T)]
    function = traced(lambda x: tf.tanh(x @ weights[0]) @ weights[1])
    devices = "4xGPU:1GiB" if strategy == "hybrid" else "2xGPU:1GiB"
    plan = placer.place(function, devices=devices, batch_size=8, strategy=strategy, time_limit=1.0)
    assert plan.request["strategy"].startswith(strategy.partition(":")[0] + ":")
    found = placer.verify(function, plan)
    found.raise_for_mismatch()
    assert found.counts["actual_transfers"] == found.counts["matched_transfers"]
    placed = placer.apply(function, plan)
    x = tf.random.stateless_uniform((8, WIDTH), seed=(1, 2))
    np.testing.assert_allclose(placed(x), function(x), rtol=1e-5)


def test_a_file_is_divided_without_its_weights(tmp_path, capsys):
    """A SavedModel as two replicas on the command line: planned, written, and checked; what was
    written runs with another batch."""
    module = tf.Module()
    module.weight = tf.Variable(WEIGHTS)
    spec = tf.TensorSpec((None, WIDTH), name="x")
    module.run = tf.function(lambda x: tf.tanh(x @ module.weight), input_signature=[spec])
    model, plan, placed = (str(tmp_path / name) for name in ("model", "plan.json", "placed"))
    tf.saved_model.save(module, model, signatures=module.run.get_concrete_function())
    request = ["--devices", "2xGPU:1GiB", "--batch-size", "8", "--strategy", "replicas", "-o", plan]
    assert main(["place", model, *request]) == 0
    assert "batch 8 · replicas:2" in capsys.readouterr().out
    assert main(["apply", model, plan, "-o", placed]) == 0
    assert main(["verify", model, plan]) == 0
    assert "\nRan as planned" in capsys.readouterr().out
    x = tf.random.stateless_uniform((5, WIDTH), seed=(1, 2))
    outputs = tf.saved_model.load(placed).signatures["serving_default"](x=x)
    np.testing.assert_allclose(next(iter(outputs.values())), module.run(x), rtol=1e-5)


def saved_replicas(folder, *, learns=False):
    """A module with a signature that reads a variable in a loop, saved, and planned as two
    replicas; one that ``learns`` has a function that writes the weight in a loop."""
    module, spec = tf.Module(), tf.TensorSpec((None, WIDTH), name="x")
    module.weight, module.scale = (
        tf.Variable(WEIGHTS, name="weight"),
        tf.Variable(1.0, name="scale"),
    )

    def run(x):
        step = lambda number, y: (number + 1, y * module.scale)  # noqa: E731
        return tf.tanh(tf.while_loop(lambda number, _: number < 2, step, [0, x @ module.weight])[1])

    def learn():
        return tf.while_loop(
            lambda number: number < 2,
            lambda number: module.weight.assign_add(WEIGHTS) is not None and number + 1,
            [0],
        )

    if learns:
        module.learn = tf.function(learn)
        module.learn.get_concrete_function()
    module.run = tf.function(run, input_signature=[spec])
    model = str(folder / "model")
    tf.saved_model.save(module, model, signatures=module.run.get_concrete_function())
    settings = {"batch_size": 8, "time_limit": 1.0}
    return model, placer.place(model, "2xGPU:1GiB", strategy="replicas", **settings)


def test_every_loader_restores_the_weights_to_each_replica(tmp_path):
    """One variable more, which is restored from the same bytes by load_placed and by sessions, on
    the other device; the step sends no weight, and the plan says what each loader puts where."""
    model, plan = saved_replicas(tmp_path)
    size = WEIGHTS.nbytes
    weights = {name: device for name, device in plan.variables.items() if "weight" in name}
    assert sorted(weights.values()) == ["GPU:0", "GPU:1"]
    assert max(row.bytes for row in plan.transfers) <= 4 * WIDTH * 4
    for loader in ("load_placed", "save_variable_devices", "v1"):
        held = plan.loading.devices[loader]
        assert {held["GPU:0"], held["GPU:1"]} == {size + 4}  # and a scalar
    placed = placer.apply(model, plan, tmp_path / "placed", rehearse=True)
    kept = sum(file.stat().st_size for file in (tmp_path / "placed" / "variables").iterdir())
    assert kept < sum(f.stat().st_size for f in (tmp_path / "model/variables").iterdir()) + 2000
    loaded = placer.load_placed(placed)
    own = [loaded.weight, *vars(loaded.placer_replicas).values()]
    copies = [v for v in own if isinstance(v, tf.Variable) and v.shape.rank]
    assert len({variable.device for variable in copies}) == len(copies) == 2
    for variable in copies:
        np.testing.assert_array_equal(variable, WEIGHTS)
    x = np.ones((3, WIDTH), np.float32)
    v1 = tf.compat.v1
    with (
        tf.Graph().as_default() as graph,
        v1.Session(config=v1.ConfigProto(device_count={"CPU": 3})) as session,
    ):
        signature = v1.saved_model.load(session, ["serve"], str(placed)).signature_def
        ends = signature["serving_default"]
        (y,) = session.run([end.name for end in ends.outputs.values()], {ends.inputs["x"].name: x})
        handles = [op for op in graph.get_operations() if op.type == "VarHandleOp"]
        assert len({op.device for op in handles}) == 2
    np.testing.assert_allclose(y, np.tanh(x @ WEIGHTS), rtol=1e-5)


@pytest.mark.parametrize("learns", [False, True])
def test_replicas_of_a_model_of_tensorflow_1_have_the_weights(tmp_path, learns):
    """Its restore op gives each copy the value, in a session and by both other loaders; outputs are
    those of the whole, but for the last bit (tanh at the end of a tensor is not that of a vector on
    every processor); a variable that an op of the file updates stays one."""
    v1, path, placed = tf.compat.v1, str(tmp_path / "model"), tmp_path / "placed"
    values = np.ones((3, WIDTH), np.float32)
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, WIDTH], "x")
        weight = v1.get_variable("weight", initializer=WEIGHTS, use_resource=True)
        y = tf.tanh(x @ weight)
        if learns:
            v1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(y))
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(session, path, {"x": x}, {"y": y})
        expected = session.run(y, {x: values})
    settings = {"batch_size": 8, "time_limit": 1.0}
    plan = placer.place(path, "2xGPU:1GiB", strategy="replicas", **settings)
    copies = () if learns else ("weight/replica_1",)
    assert sorted(plan.variables) == ["weight", *copies]
    placed = placer.apply(path, plan, placed, rehearse=True)
    held = plan.loading.devices["v1"]
    assert held == dict.fromkeys(("GPU:0", "GPU:1")[: 2 - learns], held["GPU:0"])
    for load in (placer.load_placed, lambda folder: tf.saved_model.load(str(folder))):
        (found,) = load(placed).signatures["serving_default"](x=tf.constant(values)).values()
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    config = v1.ConfigProto(device_count={"CPU": 3})
    with tf.Graph().as_default() as graph, v1.Session(config=config) as session:
        v1.saved_model.load(session, ["serve"], str(placed))
        found = session.run("Tanh:0", {"x:0": values})
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        handles = [op for op in graph.get_operations() if op.type == "VarHandleOp"]
        assert len({op.device for op in handles}) == 2 - learns


def test_a_variable_that_a_saved_function_writes_stays_one(tmp_path):
    """Whoever loads the model may call that function, which knows of no copies."""
    _, plan = saved_replicas(tmp_path, learns=True)
    assert sorted(plan.variables) == ["scale", "scale/replica_1", "weight"]
    assert [name.partition("/")[0] for name in plan.model["division"]["variables"]] == ["scale"]


def test_as_few_micro_batches_as_fit():
    """A peak of the whole batch that is over the cap, and of some parts that is not."""
    weight = tf.Variable(tf.ones((64, 64)))
    spec = tf.TensorSpec((None, 64))
    function = tf.function(lambda x: tf.tanh(tf.tanh(x @ weight) @ weight), input_signature=[spec])
    request = {"batch_size": 512, "offload": "never", "time_limit": 1.0}
    plan = placer.place(function, "GPU:150KiB", strategy="micro-batches", **request)
    parts = int(plan.request["strategy"].partition(":")[2])
    assert plan.fits
    assert parts > 1
    fewer = placer.place(function, "GPU:150KiB", strategy=f"micro-batches:{parts - 1}", **request)
    assert not fewer.fits


@pytest.mark.parametrize(
    ("strategy", "devices", "told"),
    [
        ("replicas", "GPU:1GiB", "use strategy='micro-batches'"),
        ("hybrid", "2xGPU:1GiB", "name more, or use strategy='replicas'"),
        ("hybrid:3", "4xGPU:1GiB", "write hybrid:2"),
        ("pipeline", "GPU:1GiB", "one for each stage"),
        (
            "replicas:5",
            "2xGPU:1GiB",
            "requires 5 accelerators, one for each replica; devices has 2",
        ),
        ("replicas", "GPU:1GiB", "strategy='replicas' requires two accelerators or more"),
        ("replicas:1", "2xGPU:1GiB", "makes one replica, .* such as replicas:2"),
        ("stages:2", "2xGPU:1GiB", "strategy must be micro-batches, replicas"),
    ],
)
def test_strategies_that_these_devices_cannot_run_are_refused(strategy, devices, told):
    """One message each, with the nearest thing that works."""
    with pytest.raises(UsageError, match=told):
        placer.place(traced(abs), devices, batch_size=BATCH, strategy=strategy)


@pytest.mark.parametrize(
    ("function", "parts", "batch", "told"),
    [
        (abs, 9, BATCH, "ask for at most 7"),
        (abs, 2, None, "batch_size=N"),
        (lambda x: tf.constant(1.0), 2, BATCH, "nothing in the program depends|no output depends"),
    ],
)
def test_batches_that_cannot_be_divided_are_refused(function, parts, batch, told):
    """Too few examples, an unknown number, and none that matter."""
    with pytest.raises((UsageError, ShapeError), match=told):
        checked(traced(function), Division(parts=parts), batch_size=batch)


def test_training_is_divided_from_its_loss():
    """A program that updates variables is refused, and says by what it can be done."""
    weight = tf.Variable(1.0)

    def step(x):
        weight.assign_add(tf.reduce_sum(x))
        return x * weight

    with pytest.raises(UsageError, match=r"only inference.*placer\.micro_batches"):
        checked(traced(step), Division(parts=2))
