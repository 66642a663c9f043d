"""Every shape that is reported is the shape of the tensor that really ran."""

import re
from collections import defaultdict

import numpy as np
import pytest
from layered_graphs import layered_graph

tf = pytest.importorskip("tensorflow")

from placer.extraction.analysis import analyse_program  # noqa: E402
from placer.extraction.graph_defs.tensor_types import UNSIZED  # noqa: E402
from placer.extraction.reading.loading import load_program  # noqa: E402
from placer.extraction.shapes import imported_shapes  # noqa: E402
from placer.extraction.shapes.binding import capture_states  # noqa: E402

v1 = tf.compat.v1
RESERVE_SPACES = {
    ("FusedBatchNormV3", 5),
    ("FusedBatchNormGradV3", 3),
    ("FusedBatchNormGradV3", 4),
}
"""Scalars or empty, as oneDNN is on or off; TensorFlow's own shape function is wrong about some."""
BODY = re.compile(r"(.*)/(body|cond|then|else)/_\d+/(.*)")


def trace(program, extraction):
    """(op, output) -> shapes seen while the flat graph runs once on its bound inputs."""
    rng = np.random.default_rng(0)
    graph = tf.Graph()
    with graph.as_default():
        variables = {
            f"{v.handle}:0": v1.get_variable(
                f"captured_{n}", v.shape, v.dtype, use_resource=True
            ).handle
            for n, v in enumerate(program.variables)
        }
        constants = {
            f"{name}:0": tf.constant(value.numpy())
            for name, value in program.captures.items()
            if value.dtype != tf.resource
        }
        v1.import_graph_def(program.graph_def, name="", input_map=variables | constants)
        initialise = v1.global_variables_initializer()
    config = v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    feeds = {}
    for item in program.inputs:
        properties = extraction.graph.ops[item.tensor.split(":")[0]].info.outputs[0]
        dtype = tf.as_dtype(properties.dtype).as_numpy_dtype
        feeds[item.tensor] = (rng.random(properties.shape) * 2).astype(dtype)
    metadata = v1.RunMetadata()
    options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
    with v1.Session(graph=graph, config=config) as session:
        session.run(initialise)
        fetches = [tensor for _, tensor in program.outputs], list(program.targets)
        session.run(fetches, feeds, options=options, run_metadata=metadata)
    seen = defaultdict(set)
    for device in metadata.step_stats.dev_stats:
        for node in device.node_stats:
            for output in node.output:
                shape = tuple(dim.size for dim in output.tensor_description.shape.dim)
                seen[node.node_name, output.slot].add(shape)
    return seen


def find_op(graph, name):
    """The op that ran under ``name``, looking into the bodies of control flow."""
    if name in graph.ops:
        return graph.ops[name]
    found = BODY.match(name)
    if not found or found[1] not in graph.ops:
        return None
    key = {"then": "then_branch", "else": "else_branch"}.get(found[2], found[2])
    bodies = graph.ops[found[1]].bodies.get(key, ())
    return find_op(graph.functions[bodies[0]], found[3]) if bodies else None


def compare(source, **bindings):
    """Counts (main ops, body ops) compared with what ran; asserts that all shapes agree."""
    program = load_program(source)
    extraction = analyse_program(program, capture_states(program), **bindings)
    main = body = 0
    for (name, slot), shapes in trace(program, extraction).items():
        op = find_op(extraction.graph, name)
        if op is None or slot >= len(op.info.outputs):
            continue
        properties = op.info.outputs[slot]
        if properties.dtype in UNSIZED or (op.op_type, slot) in RESERVE_SPACES:
            continue
        if properties.shape is not None and None not in properties.shape:
            assert shapes == {properties.shape}, (name, slot)
        main += name in extraction.graph.ops
        body += name not in extraction.graph.ops
    assert extraction.unknown == ()
    return main, body


def test_a_convolutional_training_step():
    """Convolution, batch normalisation, pooling and all gradients, the batch bound afterwards."""
    kernel = tf.Variable(tf.random.normal([3, 3, 2, 4]), name="kernel")
    scale, offset = tf.Variable(tf.ones([4])), tf.Variable(tf.zeros([4]))
    dense = tf.Variable(tf.random.normal([4, 5]), name="dense")

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 8, 8, 2], tf.float32, name="image"),
            tf.TensorSpec([None], tf.int32, name="label"),
        ]
    )
    def step(image, label):
        with tf.GradientTape() as tape:
            x = tf.nn.conv2d(image, kernel, 1, "SAME")
            x, _, _ = v1.nn.fused_batch_norm(x, scale, offset, is_training=True)
            x = tf.nn.max_pool2d(tf.nn.relu(x), 2, 2, "VALID")
            x = tf.reshape(x, [tf.shape(x)[0], -1, 4])
            x = tf.reduce_mean(x, axis=1) @ dense
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(label, x))
        variables = [kernel, scale, offset, dense]
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(0.1 * gradient)
        return loss

    main, _ = compare(step, batch_size=3)
    assert main > 60


def test_a_recurrent_training_step():
    """Loops with TensorArrays, forwards and backwards: nothing unknown inside the bodies."""
    cell = tf.Variable(tf.random.normal([10, 6]), name="cell")

    @tf.function(input_signature=[tf.TensorSpec([None, None, 4], tf.float32, name="x")])
    def step(x):
        with tf.GradientTape() as tape:
            length = tf.shape(x)[1]
            inputs = tf.TensorArray(tf.float32, length).unstack(tf.transpose(x, [1, 0, 2]))
            outputs = tf.TensorArray(tf.float32, length, element_shape=[None, 6])

            def body(i, state, outputs):
                state = tf.tanh(tf.concat([inputs.read(i), state], 1) @ cell)
                return i + 1, state, outputs.write(i, state)

            start = tf.zeros([tf.shape(x)[0], 6])
            _, _, outputs = tf.while_loop(
                lambda i, *_: i < length,
                body,
                (0, start, outputs),
                maximum_iterations=length,
                shape_invariants=(
                    tf.TensorShape([]),
                    tf.TensorShape([None, 6]),
                    tf.TensorShape(None),
                ),
            )
            loss = tf.reduce_sum(outputs.stack() ** 2)
        cell.assign_sub(0.01 * tape.gradient(loss, cell))
        return loss

    main, body = compare(step, shapes={"x": (3, 7, 4)})
    assert main > 40
    assert body > 50


def test_branches_and_a_loop_that_grows():
    """An If inside a loop, and a loop variable whose length changes, which stays unknown."""

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    def run(x):
        def body(i, y):
            y = tf.cond(tf.reduce_sum(y) > 0, lambda: y - 1.0, lambda: y * 2.0)
            return i + 1, y

        return tf.while_loop(lambda i, _: i < 3, body, (0, x))[1]

    main, body = compare(run, batch_size=5)
    assert main + body > 15

    @tf.function(input_signature=[tf.TensorSpec([1, 3], tf.float32, name="x")])
    def grow(x):
        return tf.while_loop(
            lambda y: tf.shape(y)[0] < 4,
            lambda y: (tf.concat([y, y[:1]], 0),),
            (x,),
            shape_invariants=(tf.TensorShape([None, 3]),),
        )[0]

    program = load_program(grow)
    extraction = analyse_program(program, {})
    loop = next(op for op in extraction.graph.ops.values() if op.bodies)
    assert loop.info.outputs[-1].shape == (None, 3) or (None, 3) in [
        output.shape for output in loop.info.outputs
    ]
    assert loop.output_name(0) in extraction.unknown or extraction.unknown


def test_sizes_that_depend_on_data():
    """Where is taken at its largest with a warning; a given shape says better."""

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    def run(x):
        return tf.gather_nd(x, tf.where(x > 0.5)) * 2.0

    program = load_program(run)
    extraction = analyse_program(program, {}, batch_size=4)
    where = next(op for op in extraction.graph.ops.values() if op.op_type == "Where")
    assert where.info.outputs[0].shape == (12, 2)
    (code, _, ops) = extraction.warnings[0]
    assert (code, ops) == ("data_dependent_shape", (where.name,))
    bound = analyse_program(program, {}, batch_size=4, shapes={where.name: (5, 2)})
    assert bound.unknown == bound.warnings == ()
    assert bound.graph.ops["mul"].info.outputs[0].shape == (5,)


def test_parts_of_a_long_concatenation_have_gradients_of_their_sizes():
    """Twenty columns of a recommender side by side, the batch bound afterwards: the sizes that the
    gradient is split by come from one ``ShapeN`` of all."""
    tables = [tf.Variable(tf.random.normal([5, 2 + n % 3])) for n in range(20)]

    @tf.function(input_signature=[tf.TensorSpec([20, None], tf.int32, name="ids")])
    def step(ids):
        with tf.GradientTape() as tape:
            rows = [tf.nn.embedding_lookup(table, ids[n]) for n, table in enumerate(tables)]
            loss = tf.reduce_sum(tf.nn.relu(tf.concat(rows, axis=1)))
        for table, gradient in zip(tables, tape.gradient(loss, tables), strict=True):
            table.assign_sub(0.1 * tf.convert_to_tensor(gradient))
        return loss

    types = {node.op for node in step.get_concrete_function().graph.as_graph_def().node}
    assert {"ShapeN", "SplitV"} <= types
    main, _ = compare(step, shapes={"ids": (20, 3)})
    assert main > 60


def test_sparse_lookups_know_their_rows():
    """A sparse embedding lookup has one row for each example, whatever the ids turn out to be."""
    table = tf.Variable(tf.random.normal([100, 8]), name="table")

    @tf.function(input_signature=[tf.TensorSpec([None, 6], tf.int64, name="ids")])
    def run(ids):
        sparse = tf.sparse.from_dense(ids)
        return tf.nn.safe_embedding_lookup_sparse(table, sparse, combiner="mean")

    program = load_program(run)
    extraction = analyse_program(program, capture_states(program), batch_size=4)
    assert extraction.unknown == ()
    (fetch,) = extraction.graph.fetches
    assert extraction.graph.tensors[fetch].properties.shape == (4, 8)
    seen = trace(program, extraction)
    common = [key for key in seen if key[0] in extraction.graph.ops]
    assert len(common) > 20
    for name, slot in common:
        properties = extraction.graph.ops[name].info.outputs[slot]
        shapes = seen[name, slot]
        for shape in shapes if properties.dtype not in UNSIZED else ():
            assert len(shape) == len(properties.shape)
            assert all(a <= b for a, b in zip(shape, properties.shape, strict=True)), name


def test_a_v1_loop_with_tensor_arrays_and_its_gradient(v1_loops):
    """Reads have the shape of writes, pops of pushes, loop variables the one they enter with."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, None, 3], name="x")
        kernel = tf.constant(np.ones([3 + 4, 4], np.float32))
        steps = tf.shape(x)[1]
        items = tf.TensorArray(tf.float32, steps).unstack(tf.transpose(x, [1, 0, 2]))

        def step(i, state, outputs):
            state = tf.tanh(tf.concat([items.read(i), state], 1) @ kernel)
            return i + 1, state, outputs.write(i, state)

        state = tf.zeros([tf.shape(x)[0], 4])
        outputs = tf.TensorArray(tf.float32, steps)
        _, _, outputs = tf.while_loop(lambda i, *_: i < steps, step, (0, state, outputs))
        (gradient,) = tf.gradients(tf.reduce_sum(outputs.stack()), [kernel])
        tf.identity(gradient, name="gradient")
    assert {"StackPopV2", "TensorArrayGradV3"} <= {op.type for op in graph.get_operations()}
    main, _ = compare(graph, shapes={"x": (2, 5, 3)})
    assert main > 150


def test_a_v1_loop_whose_variables_change_is_not_taken_to_keep_them(v1_loops):
    """A variable that grows, and one that nobody knows, are unknown; what data picks is bounded."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [4, 3], name="x")
        any_rows, anything = tf.TensorShape([None, 3]), tf.TensorShape(None)
        grown, picked, odd, same = tf.while_loop(
            lambda grown, *_: tf.shape(grown)[0] < 20,
            lambda grown, picked, odd, same: (
                tf.concat([grown, grown], 0),
                tf.boolean_mask(picked, picked[:, 0] > 0.5),
                v1.py_func(lambda a: a[:2], [odd], tf.float32),
                same * 2.0,
            ),
            (x, x, x, x),
            shape_invariants=(any_rows, any_rows, anything, tf.TensorShape([4, 3])),
        )
        for name, tensor in zip("gpos", (grown, picked, odd, same), strict=True):
            tf.identity(tensor, name=name)
    found = analyse_program(load_program(graph), {})
    shapes = {name: found.graph.tensors[f"{name}:0"].properties.shape for name in "gpos"}
    assert shapes == {"g": (None, 3), "p": (4, 3), "o": None, "s": (4, 3)}
    assert "data_dependent_shape" in [code for code, *_ in found.warnings]
    assert {found.graph.ops[name].op_type for name in found.unknown_roots} == {"Merge"}


def test_what_nobody_can_bound_is_listed():
    """An output without any bound stays unknown, is listed, and its root is named."""

    @tf.function(input_signature=[tf.TensorSpec([4], tf.int32, name="limits")])
    def run(limits):
        ragged = tf.raw_ops.RaggedRange(starts=0 * limits, limits=limits, deltas=limits + 1)
        return ragged.rt_dense_values * 2

    extraction = analyse_program(load_program(run), {})
    assert extraction.unknown_roots == ("RaggedRange",)
    assert set(extraction.unknown) == {"RaggedRange:1", "mul_1:0", "Identity:0"}


def test_import_graph_def_finds_the_same_shapes(monkeypatch):
    """The bare import of a graph with variables, calls and a loop, against TensorFlow's own."""
    program = load_program(layered_graph(300))
    bare = analyse_program(program, {}, batch_size=4)
    asked = []

    def import_whole(scratch):
        asked.append(len(scratch.node))
        with tf.Graph().as_default() as graph:
            tf.graph_util.import_graph_def(scratch, name="")
        return graph, {operation.name: operation for operation in graph.get_operations()}

    monkeypatch.setattr(imported_shapes, "_import", import_whole)
    assert analyse_program(program, {}, batch_size=4) == bare
    assert max(asked) >= 250
